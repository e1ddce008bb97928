//! Completions and events of C programs with several threads.

use std::process::Command;

use roce_test_macros::tier1;
use roce_tests::fixtures::Cable;
use roce_tests::verbs_program::{VerbsProgram, expect_success};

/// Runs the scenarios of the program whose name begins so.
fn run_scenarios(start: &str) {
    run_program(&VerbsProgram::linked("events"), start, |_| {});
}

fn run_program(program: &VerbsProgram, start: &str, change: impl Fn(&mut Command)) {
    let cable = Cable::with_mtu(1500);
    let scenarios: Vec<_> =
        program.scenarios().into_iter().filter(|name| name.starts_with(start)).collect();
    assert!(!scenarios.is_empty(), "there are scenarios {start}*");
    for scenario in scenarios {
        let mut command = program.command(&scenario);
        change(&mut command);
        expect_success(&scenario, &cable.left, command);
    }
}

#[tier1]
fn each_completion_is_delivered_once_and_whole_to_one_of_several_pollers() {
    run_scenarios("pollers-");
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
fn a_thread_that_waits_is_cancelled_as_in_read_and_loses_no_event() {
    run_scenarios("cancelled-");
}

#[tier1]
fn waits_end_with_their_event_after_exit_has_begun() {
    run_scenarios("exit-");
}
