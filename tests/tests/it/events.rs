//! Completions and events of C programs with several threads.

use roce_test_macros::tier1;
use roce_tests::verbs_program::{VerbsProgram, roce_run};

/// Runs the scenarios of the program whose name begins so.
fn run_scenarios(start: &str) {
    VerbsProgram::linked("events").run_scenarios(start);
}

/// Runs scenarios of the program that gcc has instrumented.
fn run_instrumented(sanitizer: &str, starts: &[&str]) {
    let flag = format!("-fsanitize={sanitizer}");
    let program = VerbsProgram::linked_with("events", &format!("events-{sanitizer}"), &[&flag]);
    for start in starts {
        program.run_scenarios_by(start, |scenario| {
            let mut command = roce_run();
            // The runtime of a sanitizer is loaded first.
            command.args(["--", "env", "-u", "LD_PRELOAD"]).arg(program.file()).arg(scenario);
            // The stack of a cancelled thread confuses the check of this one stack, also in `read`.
            command.env("ASAN_OPTIONS", "use_sigaltstack=0");
            // The library has no instrumentation: its locks are not seen, nor are its threads' ends.
            command.env("TSAN_OPTIONS", "ignore_noninstrumented_modules=1:report_thread_leaks=0");
            command.env("TIME_LIMIT", "120");
            command
        });
    }
}

#[tier1]
fn each_completion_is_delivered_once_and_whole_to_one_of_several_pollers() {
    run_scenarios("pollers-");
}

#[tier1]
fn no_aligned_word_of_a_message_is_seen_in_parts_by_another_thread() {
    run_scenarios("tearing-");
}

#[tier1]
fn a_destroyed_object_leaves_no_event_to_read() {
    run_scenarios("destroyed-");
}

#[tier1]
fn threads_take_each_announced_event_of_a_channel_while_connections_come_and_go() {
    run_scenarios("channel-");
}

#[tier1]
fn descriptors_of_events_are_those_of_the_kernel_to_poll_select_epoll_and_sigio() {
    run_scenarios("descriptors-");
}

#[tier1("librdmacm-dev")]
fn a_wait_goes_on_or_ends_as_the_handler_of_the_signal_that_came_has_it() {
    run_scenarios("signals-");
}

#[tier1]
fn a_thread_that_waits_is_cancelled_as_in_read_and_loses_no_event() {
    run_scenarios("cancelled-");
}

#[tier1]
fn waits_end_with_their_event_after_exit_has_begun() {
    run_scenarios("exit-");
}

#[tier1]
fn the_address_sanitizer_finds_nothing_beside_threads_cancellation_and_exit() {
    run_instrumented("address", &["destroyed-", "channel-", "cancelled-", "exit-"]);
}

#[tier1]
fn the_thread_sanitizer_finds_nothing_beside_pollers_and_connections_that_come_and_go() {
    // Not where a thread is cancelled in a call that the sanitizer ignores: it takes that for a bug.
    run_instrumented("thread", &["pollers-", "destroyed-", "channel-"]);
}
