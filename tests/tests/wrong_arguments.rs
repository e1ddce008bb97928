//! Wrong arguments of C programs fail as with rdma-core.

use roce_test_macros::tier1;
use roce_tests::fixtures::Cable;
use roce_tests::verbs_program::VerbsProgram;

#[tier1]
fn wrong_arguments_fail_with_the_errors_of_rdma_core() {
    let cable = Cable::with_mtu(1500);
    VerbsProgram::linked("arguments").run_all(&cable.left, |_| {});
}
