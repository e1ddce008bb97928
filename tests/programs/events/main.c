/* Completions and events with several threads: each is delivered once, waits end as reads do. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "events.h"

static const struct scenario scenarios[] = {
	{"pollers-of-a-queue", pollers_of_a_queue},
	{"pollers-of-an-extended-queue", pollers_of_an_extended_queue},
	{"pollers-of-a-single-threaded-queue", pollers_of_a_single_threaded_queue},
	{"destroyed-queue-leaves-nothing", destroyed_queue_leaves_nothing},
	{"destroyed-queue-leaves-others", destroyed_queue_leaves_others},
	{"destroyed-objects-leave-no-event", destroyed_objects_leave_no_event},
	{"destroyed-channels-leave-no-descriptor", destroyed_channels_leave_no_descriptor},
	{"channel-with-a-thread-that-blocks", channel_with_a_thread_that_blocks},
	{"channel-with-a-thread-that-polls", channel_with_a_thread_that_polls},
	{"channel-with-a-thread-of-epoll", channel_with_a_thread_of_epoll},
	{"channel-with-an-executor", channel_with_an_executor},
	{"channel-with-many-pollers", channel_with_many_pollers},
	{"descriptors-as-those-of-the-kernel", descriptors_as_those_of_the_kernel},
	{"signals-of-which-some-restart-calls", signals_of_which_some_restart_calls},
	{"cancelled-wait-for-completions", cancelled_wait_for_completions},
	{"cancelled-wait-for-events", cancelled_wait_for_events},
	{"cancelled-asynchronously", cancelled_asynchronously},
	{"cancelled-where-that-is-disabled", cancelled_where_that_is_disabled},
	{"cancelled-before-other-calls", cancelled_before_other_calls},
	{"tearing-of-messages-that-arrive", tearing_of_messages_that_arrive},
	{"tearing-of-messages-that-are-sent", tearing_of_messages_that_are_sent},
	{"tearing-beside-atomics", tearing_beside_atomics},
	{"exit-then-wait", exit_then_wait},
	{"exit-then-join-a-thread-that-waits", exit_then_join_a_thread_that_waits},
	{"exit-then-poll-the-descriptor", exit_then_poll_the_descriptor},
	{"exit-then-wait-for-an-event", exit_then_wait_for_an_event},
};

int rounds(int count)
{
	const char *wanted = getenv("ROUNDS");
	if (wanted)
		return atoi(wanted);
	return getenv("FEW_ROUNDS") ? (count + 19) / 20 : count;
}

void make_non_blocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	CHECK(flags >= 0);
	CHECK_EQ(fcntl(fd, F_SETFL, flags | O_NONBLOCK), 0);
}

bool is_readable(int fd)
{
	struct pollfd set = {.fd = fd, .events = POLLIN};
	int count = poll(&set, 1, 0);
	CHECK(count >= 0);
	return count > 0;
}

int main(int argc, char **argv)
{
	return run_scenario(argc, argv, scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}
