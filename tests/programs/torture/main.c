/* What programs do to libibverbs beside transfers: fork, exit, signals, threads, destroying in the
 * wrong order, very many objects. */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "torture.h"

static const struct scenario scenarios[] = {
	{"fork-before-open", fork_before_open},
	{"fork-after-open", fork_after_open},
	{"fork-connected", fork_connected},
	{"fork-outstanding", fork_outstanding},
	{"fork-beside-posting", fork_beside_posting},
	{"fork-after-close", fork_after_close},
	{"fork-and-exec", fork_and_exec},
	{"own-device", own_device},
	{"exit-in-the-main-thread", exit_in_the_main_thread},
	{"exit-in-a-thread", exit_in_a_thread},
	{"exit-after-a-signal", exit_after_a_signal},
	{"exit-in-a-call", exit_in_a_call},
	{"signals-end-waits-for-completions", signals_end_waits_for_completions},
	{"signals-restart-waits-for-completions", signals_restart_waits_for_completions},
	{"signals-end-waits-for-events", signals_end_waits_for_events},
	{"signals-restart-waits-for-events", signals_restart_waits_for_events},
	{"signals-beside-polls", signals_beside_polls},
	{"threads-on-one-queue-pair", threads_on_one_queue_pair},
	{"threads-on-many-queue-pairs", threads_on_many_queue_pairs},
	{"threads-open-and-close", threads_open_and_close},
	{"wrong-order", wrong_order},
	{"closed-context", closed_context},
	{"unacknowledged-completion-event", unacknowledged_completion_event},
	{"unacknowledged-event", unacknowledged_event},
	{"many-contexts", many_contexts},
	{"many-closed-devices", many_closed_devices},
	{"many-objects", many_objects},
	{"many-queue-pairs", many_queue_pairs},
	{"events-of-two-contexts", events_of_two_contexts},
	{"events-of-a-full-completion-queue", events_of_a_full_completion_queue},
};

int rounds(int count)
{
	return getenv("FEW_ROUNDS") ? (count + 19) / 20 : count;
}

int main(int argc, char **argv)
{
	return run_scenario(argc, argv, scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}
