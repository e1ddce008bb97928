//! Registered memory whose pages go away, and on-demand paging, as C programs see them.

use std::process::Command;

use roce_test_macros::tier1;
use roce_tests::fixtures::Cable;
use roce_tests::verbs_program::{VerbsProgram, expect_success, library};

/// Runs the scenarios of the program whose name begins so.
fn run_scenarios(start: &str) {
    VerbsProgram::linked("absent").run_scenarios(start);
}

#[tier1]
fn a_request_on_memory_that_is_gone_fails_alone_whichever_end_and_thread_accesses_it() {
    run_scenarios("loss-");
}

#[tier1]
fn faults_of_the_program_have_the_effect_of_its_own_actions_and_those_of_requests_have_none() {
    run_scenarios("signals-");
}

#[tier1]
fn a_handler_that_was_installed_first_is_kept_without_the_preloaded_library() {
    let cable = Cable::with_mtu(1500);
    let program = VerbsProgram::linked("absent");
    for scenario in ["signals-default", "signals-ignored", "signals-handler-before"] {
        let mut command = Command::new(program.file());
        command.arg(scenario).env("LD_PRELOAD", library());
        expect_success(scenario, &cable.left, command);
    }
}

#[tier1]
fn memory_registered_on_demand_is_paged_in_by_accesses_and_by_advice() {
    run_scenarios("paging-");
}
