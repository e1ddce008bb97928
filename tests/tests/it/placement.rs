//! ATOMIC WRITE and FLUSH, as C programs see them.

use roce_test_macros::tier1;
use roce_tests::fixtures::Cable;
use roce_tests::verbs_program::VerbsProgram;

#[tier1]
fn c_programs_store_words_at_once_and_flush_what_they_wrote() {
    let cable = Cable::with_mtu(1500);
    VerbsProgram::linked("placement").run_all(&cable.left, |_| {});
}
