//! Memory windows and device memory, as C programs see them.

use roce_test_macros::tier1;
use roce_tests::verbs_program::VerbsProgram;

/// Runs the scenarios of the program whose name begins so.
fn run_scenarios(start: &str) {
    VerbsProgram::linked("windows").run_scenarios(start);
}

#[tier1]
fn windows_open_what_they_are_bound_to_until_they_are_invalidated_or_bound_anew() {
    run_scenarios("window-");
}

#[tier1]
fn device_memory_is_copied_registered_and_transferred_as_other_memory() {
    run_scenarios("device-");
}
