//! Attributes of tests that `cargo test` leaves out and `cargo xtask test` runs, by tier.
//!
//! ```
//! use roce_test_macros::tier1;
//!
//! #[tier1]
//! fn needs_network_namespaces() {}
//!
//! #[tier1("tshark")]
//! fn needs_a_program() {}
//! ```
#![forbid(unsafe_code)]

use proc_macro::TokenStream;

/// A test of tier 1, which needs network namespaces, or what the argument names.
#[proc_macro_attribute]
pub fn tier1(needs: TokenStream, test: TokenStream) -> TokenStream {
    ignored("1", &needs, "network namespaces", test)
}

/// A test of tier 2, which needs qemu, or what the argument names.
#[proc_macro_attribute]
pub fn tier2(needs: TokenStream, test: TokenStream) -> TokenStream {
    ignored("2", &needs, "qemu", test)
}

/// Puts `#[test]` and `#[ignore]` in front of a test. `cargo xtask test` reads the tier from the
/// reason that libtest prints.
fn ignored(tier: &str, needs: &TokenStream, default: &str, test: TokenStream) -> TokenStream {
    let needs = needs.to_string();
    let needs = if needs.is_empty() { default } else { needs.trim_matches('"') };
    let reason = format!("tier {tier}: needs {needs} (cargo xtask test runs it)");
    let attributes = format!("#[test] #[ignore = {reason:?}]").parse::<TokenStream>();
    attributes.expect("two attributes").into_iter().chain(test).collect()
}
