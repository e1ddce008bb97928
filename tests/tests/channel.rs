//! The device of librdmacm as C programs use it, by its commands.

use roce_test_macros::tier1;
use roce_tests::verbs_program::VerbsProgram;

#[tier1("librdmacm-dev")]
fn channels_of_rdma_cm_behave_as_the_device_of_the_kernel() {
    VerbsProgram::linked("channel").run_scenarios("");
}
