//! Processes on one address, of which one is killed at random moments.

use roce_test_macros::tier1;
use roce_tests::fixtures::Cable;
use roce_tests::verbs_program::{VerbsProgram, expect_success};

/// `ROCE_KILL_SECONDS` runs it longer, `ROCE_SEED` repeats its moments.
#[tier1]
fn processes_that_share_an_address_survive_that_one_of_them_is_killed() {
    let setting = |name: &str| std::env::var(name).ok();
    let seconds = setting("ROCE_KILL_SECONDS").unwrap_or("20".to_owned());
    let cable = Cable::with_mtu(1500);
    let mut command = VerbsProgram::linked("processes").command(&seconds);
    command.args(setting("ROCE_SEED"));
    expect_success("processes", &cable.left, command);
}
