//! Reports of gaps: which packets a responder misses, and which it keeps behind them.
//!
//! No standard has them. Their opcode is one of those for manufacturers (0xC0 to 0xFF), so they
//! travel only between queue pairs whose two ends have agreed on them out of band. The payload, in
//! network byte order:
//!
//! ```text
//!   0      4 bytes   [`GapReport::FORMAT`]
//!   4      2 bytes   packets missing, at least 1    \ a run; up to
//!   6      2 bytes   packets kept, at least 1       / MAX_GAP_RUNS
//!   8      ...
//! ```
//! A report has at least one run. The first begins at the PSN of the BTH: everything before it is
//! executed.

/// Maximum runs of a report.
pub const MAX_GAP_RUNS: usize = 32;
/// Maximum length of the payload of a report in bytes.
pub const MAX_GAP_REPORT_LEN: usize = FORMAT_LEN + MAX_GAP_RUNS * RUN_LEN;

const FORMAT_LEN: usize = 4;
const RUN_LEN: usize = 4;

/// Packets that are missing, and packets behind them that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapRun {
    /// Packets missing, at least 1.
    pub missing: u16,
    /// Packets kept behind them, at least 1.
    pub kept: u16,
}

/// The payload of a gap report.
///
/// ```
/// use roce_wire::{GapReport, GapRun, MAX_GAP_REPORT_LEN};
///
/// let runs = [GapRun { missing: 1, kept: 80 }, GapRun { missing: 3, kept: 2 }];
/// let mut payload = [0; MAX_GAP_REPORT_LEN];
/// let len = GapReport::write(runs, &mut payload);
/// assert_eq!(len, 12);
/// let report = GapReport::parse(&payload[..len]).unwrap();
/// assert!(report.runs().eq(runs));
/// assert_eq!(report.packets(), 86);
/// assert!(GapReport::parse(b"other").is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapReport<'a> {
    runs: &'a [[u8; RUN_LEN]],
}

impl<'a> GapReport<'a> {
    /// The first bytes: those of another manufacturer's packets with this opcode differ.
    pub const FORMAT: [u8; FORMAT_LEN] = *b"rce1";

    /// Reads the payload; `None` if it is something else, or has no run.
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let (runs, rest) = payload.strip_prefix(&Self::FORMAT)?.as_chunks();
        let report = Self { runs };
        let is_sound = rest.is_empty() && (1..=MAX_GAP_RUNS).contains(&runs.len());
        (is_sound && report.runs().all(|it| it.missing > 0 && it.kept > 0)).then_some(report)
    }

    /// Returns the runs, in the order of PSNs.
    pub fn runs(self) -> impl ExactSizeIterator<Item = GapRun> + 'a {
        self.runs.iter().map(|&[a, b, c, d]| GapRun {
            missing: u16::from_be_bytes([a, b]),
            kept: u16::from_be_bytes([c, d]),
        })
    }

    /// Returns the packets of all runs.
    pub fn packets(self) -> u32 {
        self.runs().map(|it| u32::from(it.missing) + u32::from(it.kept)).sum()
    }

    /// Writes the first [`MAX_GAP_RUNS`] of `runs` as a payload; returns its length.
    ///
    /// # Panics
    /// If `into` is shorter than that.
    pub fn write(runs: impl IntoIterator<Item = GapRun>, into: &mut [u8]) -> usize {
        into[..FORMAT_LEN].copy_from_slice(&Self::FORMAT);
        let mut len = FORMAT_LEN;
        for GapRun { missing, kept } in runs.into_iter().take(MAX_GAP_RUNS) {
            let [a, b] = missing.to_be_bytes();
            let [c, d] = kept.to_be_bytes();
            into[len..len + RUN_LEN].copy_from_slice(&[a, b, c, d]);
            len += RUN_LEN;
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_read_as_they_were_written_and_no_more_than_fit(
            counts in prop::collection::vec((1..=u16::MAX, 1..=u16::MAX), 1..40),
        ) {
            let runs: Vec<_> =
                counts.into_iter().map(|(missing, kept)| GapRun { missing, kept }).collect();
            let mut payload = [0; MAX_GAP_REPORT_LEN];
            let len = GapReport::write(runs.iter().copied(), &mut payload);
            let report = GapReport::parse(&payload[..len]).expect("a report");
            prop_assert!(report.runs().eq(runs.into_iter().take(MAX_GAP_RUNS)));
        }

        #[test]
        fn any_bytes_are_a_report_that_is_written_the_same_or_none(
            bytes in prop::collection::vec(0..3u8, 0..200),
            is_report: bool,
        ) {
            let mut payload = if is_report { GapReport::FORMAT.to_vec() } else { vec![] };
            payload.extend(bytes);
            if let Some(report) = GapReport::parse(&payload) {
                let mut again = [0; MAX_GAP_REPORT_LEN];
                let len = GapReport::write(report.runs(), &mut again);
                prop_assert_eq!(&again[..len], &payload[..]);
            }
        }
    }

    #[test]
    fn empty_runs_cut_ones_and_none_are_no_report() {
        for runs in [&[][..], &[0, 0, 0, 1], &[0, 1, 0, 0], &[0, 1, 0], &[0, 1, 0, 1, 0]] {
            assert_eq!(GapReport::parse(&[&GapReport::FORMAT, runs].concat()), None, "{runs:?}");
        }
    }
}
