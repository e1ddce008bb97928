//! Unmodified RDMA programs on our library: what runs, as a table.
//!
//! `cargo xtask dropin` runs it. A [`Program`] is a command line as its documentation shows it, and
//! what it must print. [`local`] runs it by `roce run --local`, in one private host or in several;
//! [`rxe`] runs one end by `roce run` and the other on the kernel's `rdma_rxe` in the guest.

mod folder;
mod ibverbs_utils;
mod libfabric;
pub mod local;
pub mod open_mpi;
mod perftest;
mod program;
pub mod pypi;
pub mod python_suite;
mod qperf;
pub mod rxe;
mod ucx;

pub use program::{Expects, Places, Program};

use crate::fault::{Fault, expect};

/// Returns every line, by table; with `is_quick` those of the quick table.
pub fn programs(is_quick: bool) -> Vec<Program> {
    let groups = [
        ("ibverbs-utils", ibverbs_utils::PROGRAMS),
        ("perftest, all sizes", perftest::SIZES),
        ("perftest, options", perftest::OPTIONS),
        ("perftest", perftest::RXE),
        ("qperf", qperf::PROGRAMS),
        ("UCX", ucx::PROGRAMS),
        ("libfabric", libfabric::PROGRAMS),
    ];
    groups
        .into_iter()
        .flat_map(|(group, programs)| programs.iter().map(move |program| program.of(group)))
        .filter(|program| program.is_quick || !is_quick)
        .collect()
}

/// Fails unless a program did what it must.
fn judge(expects: Expects, is_success: bool, text: &str) -> Result<(), Fault> {
    let (wants_success, texts) = match expects {
        Expects::Success(texts) => (true, texts),
        Expects::Refusal(says) => (false, &[says][..]),
    };
    expect(is_success == wants_success, || {
        let word = if is_success { "succeeded" } else { "failed" };
        format!("it {word}: {text}")
    })?;
    texts.iter().try_for_each(|wanted| {
        expect(text.contains(wanted), || format!("it did not print {wanted:?}: {text}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_red_that_fails_or_prints_something_else_or_works_where_it_must_not() {
        let success = Expects::Success(&["one", "two"]);
        assert!(judge(success, true, "two one").is_ok());
        assert!(judge(success, true, "one").is_err());
        assert!(judge(success, false, "one two").is_err());
        let refusal = Expects::Refusal("not supported");
        assert!(judge(refusal, false, "XRC: not supported").is_ok());
        assert!(judge(refusal, false, "Segmentation fault").is_err());
        assert!(judge(refusal, true, "not supported").is_err());
    }

    #[test]
    fn no_line_is_in_the_table_twice_and_the_quick_table_is_part_of_it() {
        let names = |quick| -> Vec<String> {
            programs(quick).iter().map(|it| format!("{} {}", it.group, it.line)).collect()
        };
        let (mut all, quick) = (names(false), names(true));
        assert!(quick.len() > 10 && quick.iter().all(|it| all.contains(it)));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
