//! What C programs do to libibverbs beside transfers: fork, exit, signals, threads, destroying in the
//! wrong order, very many objects.

use roce_test_macros::tier1;
use roce_tests::verbs_program::VerbsProgram;

/// Runs the scenarios of the program whose name begins so.
fn run_scenarios(start: &str) {
    VerbsProgram::linked("torture").run_scenarios(start);
}

#[tier1]
fn children_of_a_process_with_a_device_fail_on_its_objects_and_use_their_own() {
    run_scenarios("fork-");
}

#[tier1]
fn a_process_ends_in_order_while_a_peer_writes_into_its_memory() {
    run_scenarios("exit-");
}

#[tier1]
fn signals_end_or_restart_waits_as_reads() {
    run_scenarios("signals-");
}

#[tier1]
fn threads_share_queue_pairs_and_queues() {
    run_scenarios("threads-");
}

#[tier1]
fn an_object_in_use_is_busy_and_stays_whole() {
    run_scenarios("wrong-order");
}

#[tier1]
fn no_peer_reaches_the_memory_of_a_context_that_was_closed_with_objects() {
    run_scenarios("closed-");
}

#[tier1]
fn destroying_waits_for_events_that_are_not_acknowledged() {
    run_scenarios("unacknowledged-");
}

#[tier1]
fn contexts_and_objects_leave_nothing_behind() {
    run_scenarios("many-");
}

#[tier1]
fn asynchronous_events_go_to_the_context_of_their_object() {
    run_scenarios("events-");
}
