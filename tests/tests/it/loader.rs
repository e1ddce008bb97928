//! Programs that load libibverbs at run time, as NCCL does.

use roce_test_macros::tier1;
use roce_tests::fixtures::Cable;
use roce_tests::verbs_program::{VerbsProgram, expect_success, roce_run};

#[tier1]
fn all_names_that_nccl_loads_are_found_with_their_versions_and_work() {
    let cable = Cable::with_mtu(1500);
    VerbsProgram::unlinked("loader").run_all(&cable.left, |_| {});
}

#[tier1]
fn a_library_that_is_not_preloaded_is_loaded_and_closed_at_any_time() {
    let cable = Cable::with_mtu(1500);
    let program = VerbsProgram::unlinked("loader");
    for scenario in program.scenarios() {
        let mut command = roce_run();
        command.args(["--", "env", "-u", "LD_PRELOAD"]).arg(program.file()).arg(&scenario);
        expect_success(&scenario, &cable.left, command);
    }
}
