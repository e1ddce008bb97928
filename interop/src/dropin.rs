//! Unmodified RDMA programs on our library: what runs, as a table.
//!
//! `cargo xtask dropin` runs it. A [`Program`] is a command line as its documentation shows it, and
//! what it must print. [`local`] runs it by `roce run --local`, in one private host or in several;
//! [`rxe`] runs one end by `roce run` and the other on the kernel's `rdma_rxe` in the guest.

mod ceph;
mod dapl;
mod device_counter;
mod fio;
mod folder;
mod ibverbs_utils;
mod iscsi;
mod libfabric;
pub mod local;
pub mod open_mpi;
mod perftest;
mod preloaded_rsockets;
mod profilers;
mod program;
pub mod pypi;
pub mod python_suite;
pub mod qemu;
mod qperf;
mod rdmacm_utils;
mod rsockets;
mod ruby;
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
        ("perftest, rdma_cm", perftest::CONNECTED),
        ("rdmacm-utils", rdmacm_utils::PROGRAMS),
        ("rdmacm-utils, rsockets", rsockets::PROGRAMS),
        ("librspreload", preloaded_rsockets::PROGRAMS),
        ("qperf", qperf::PROGRAMS),
        ("UCX", ucx::PROGRAMS),
        ("UCX, rdma_cm", ucx::CONNECTED),
        ("libfabric", libfabric::PROGRAMS),
        ("DAPL", dapl::PROGRAMS),
        ("fio", fio::PROGRAMS),
        ("tgt and libiscsi", iscsi::PROGRAMS),
        ("Ruby", ruby::PROGRAMS),
        ("Ceph", ceph::PROGRAMS),
        ("profilers", profilers::PROGRAMS),
    ];
    groups
        .into_iter()
        .flat_map(|(group, programs)| programs.iter().map(move |program| program.of(group)))
        .filter(|program| program.is_quick || !is_quick)
        .collect()
}

/// What programs print that failed by themselves, whatever the library did, as they do on a busy machine
/// now and then: perftest when its measurement of the processor's clock was disturbed, and with `-R` when
/// its client connects again before its server listens again; rping when its main thread closes the
/// channel before its other thread waits for an event again.
const FAILED_ALONE: [&str; 3] = [
    "Correlation coefficient",
    "RDMA_CM_EVENT_REJECTED; error: 8",
    "rdma_get_cm_event: Bad file descriptor",
];

/// Runs a program, and twice more at most where it [failed by itself](FAILED_ALONE). Returns what `run`
/// did, and the text of the program.
fn repeated<T>(run: impl Fn() -> Result<(T, String), Fault>) -> Result<(T, String), Fault> {
    for _ in 0..2 {
        let (ended, text) = run()?;
        if !FAILED_ALONE.iter().any(|words| text.contains(words)) {
            return Ok((ended, text));
        }
    }
    run()
}

/// Fails unless a program did what it must.
fn judge(expects: Expects, is_success: bool, text: &str) -> Result<(), Fault> {
    let (wants_success, texts) = match expects {
        Expects::Success(texts) => (true, texts),
        Expects::Refusal(says) => (false, &[says][..]),
        Expects::SuccessOrRefusal(texts, _) if is_success => (true, texts),
        Expects::SuccessOrRefusal(_, says) => (false, &[says][..]),
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
    fn a_program_that_failed_by_itself_runs_again_but_not_for_ever() {
        let runs = std::cell::Cell::new(0);
        let after = |bad| {
            runs.set(0);
            repeated(|| {
                runs.set(runs.get() + 1);
                let text = if runs.get() > bad { "result" } else { "Correlation coefficient r^2" };
                Ok((runs.get(), text.to_owned()))
            })
            .unwrap()
        };
        assert_eq!(after(0), (1, "result".to_owned()));
        assert_eq!(after(2), (3, "result".to_owned()));
        assert!(after(3).1.contains(FAILED_ALONE[0]) && runs.get() == 3);
    }

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
        let either = Expects::SuccessOrRefusal(&["one"], "not supported");
        assert!(judge(either, true, "one").is_ok());
        assert!(judge(either, false, "not supported").is_ok());
        assert!(judge(either, true, "not supported").is_err());
        assert!(judge(either, false, "one").is_err());
    }

    #[test]
    fn no_line_is_in_the_table_twice_and_the_quick_table_is_part_of_it() {
        let names = |quick| -> Vec<String> {
            programs(quick).iter().map(|it| format!("{} {}", it.group, it.title())).collect()
        };
        let (mut all, quick) = (names(false), names(true));
        assert!(quick.len() > 10 && quick.iter().all(|it| all.contains(it)));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
