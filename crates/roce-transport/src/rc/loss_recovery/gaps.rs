//! Sequence numbers that are known to be missing, and when they are repaired.

use alloc::vec::Vec;
use core::ops::Range;

use crate::Instant;

/// Missing sequence numbers: requests that the peer reports missing, and responses before which
/// others have arrived.
///
/// A gap is repaired, that is sent or requested again, once it has been known for as long as packets
/// are late, and again if it is still reported together with packets that were sent after the repair, or
/// longer than a round trip after it.
#[derive(Debug, Default)]
pub(crate) struct Gaps(
    /// In order, without overlaps.
    Vec<Gap>,
);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    start: u64,
    end: u64,
    noted_at: Instant,
    repair: Repair,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repair {
    /// What is missing may still arrive by itself until then.
    Waits(Instant),
    Due,
    /// Sent at this time, behind this sequence number.
    Sent(Instant, u64),
}

/// How gaps are timed, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GapTiming {
    /// From when a gap is known to its repair.
    pub(crate) lateness: u64,
    /// From a repair to the next one, where nothing was sent after it.
    pub(crate) again: u64,
    /// What arrives this soon after a repair was late.
    pub(crate) min_rtt: u64,
}

/// Maximum gaps: those behind them are noted when these are closed.
const MAX_GAPS: usize = 64;

impl Gaps {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of packets in all gaps.
    pub(crate) fn packets(&self) -> u64 {
        self.0.iter().map(|it| it.end - it.start).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Of the sequence numbers in `span` those in `missing` are missing, in order and inside `span`.
    /// Returns for how long the latest packet was missing that has arrived without a repair, in
    /// nanoseconds.
    pub(crate) fn update(
        &mut self,
        span: Range<u64>,
        missing: impl IntoIterator<Item = Range<u64>>,
        timing: GapTiming,
        now: Instant,
    ) -> Option<u64> {
        let first = self.0.partition_point(|it| it.end <= span.start);
        let count = self.0[first..].partition_point(|it| it.start < span.end);
        let known: Vec<Gap> = self.0.drain(first..first + count).collect();
        let mut found = Vec::new();
        if let Some(gap) = known.first().and_then(|it| it.clipped(0..span.start)) {
            found.push(gap);
        }
        let mut latest = None;
        let mut close = |gap: &Gap, to: Range<u64>| {
            if gap.clipped(to).is_some() {
                latest = latest.max(gap.lateness(timing, now));
            }
        };
        let mut at = span.start;
        for range in missing {
            known.iter().for_each(|it| close(it, at..range.start));
            at = range.start;
            for gap in &known {
                let Some(part) = gap.clipped(range.clone()) else { continue };
                found.extend(Gap::new(at..part.start, timing, now));
                found.push(part.still_missing(span.end, timing, now));
                at = part.end;
            }
            found.extend(Gap::new(at..range.end, timing, now));
            at = range.end;
        }
        known.iter().for_each(|it| close(it, at..span.end));
        if let Some(gap) = known.last().and_then(|it| it.clipped(span.end..u64::MAX)) {
            found.push(gap);
        }
        self.0.splice(first..first, found);
        self.0.truncate(MAX_GAPS);
        latest
    }

    /// The gaps that have waited until `now` are due.
    pub(crate) fn expire(&mut self, now: Instant) {
        for gap in &mut self.0 {
            if matches!(gap.repair, Repair::Waits(until) if until <= now) {
                gap.repair = Repair::Due;
            }
        }
    }

    /// All gaps are due.
    pub(crate) fn expire_all(&mut self) {
        self.0.iter_mut().for_each(|it| it.repair = Repair::Due);
    }

    /// Returns the instant at which a gap is due next.
    pub(crate) fn next_due_at(&self) -> Option<Instant> {
        let waits = self.0.iter().filter_map(|it| match it.repair {
            Repair::Waits(until) => Some(until),
            _ => None,
        });
        waits.min()
    }

    /// Returns the first gap from `seq` on that is due.
    pub(crate) fn next_due(&self, seq: u64) -> Option<Range<u64>> {
        let due = self.0.iter().find(|it| it.repair == Repair::Due && it.start >= seq);
        due.map(|it| it.start..it.end)
    }

    /// Returns true if a gap begins in `span`.
    pub(crate) fn begins_in(&self, span: Range<u64>) -> bool {
        self.0.iter().any(|it| span.contains(&it.start))
    }

    /// What is missing of `span` was sent or requested again, behind everything before `sent_to`.
    pub(crate) fn on_repaired(&mut self, span: Range<u64>, sent_to: u64, now: Instant) {
        let mut parts = Vec::with_capacity(self.0.len() + 2);
        for gap in &self.0 {
            parts.extend(gap.clipped(0..span.start));
            let inside = gap.clipped(span.clone());
            parts.extend(inside.map(|it| Gap { repair: Repair::Sent(now, sent_to), ..it }));
            parts.extend(gap.clipped(span.end..u64::MAX));
        }
        self.0 = parts;
    }
}

impl Gap {
    fn new(range: Range<u64>, timing: GapTiming, now: Instant) -> Option<Self> {
        let Range { start, end } = range;
        let repair = match timing.lateness {
            0 => Repair::Due,
            wait => Repair::Waits(Instant::from_nanos(now.as_nanos().saturating_add(wait))),
        };
        (start < end).then_some(Self { start, end, noted_at: now, repair })
    }

    /// The part of it inside `range`.
    fn clipped(&self, range: Range<u64>) -> Option<Self> {
        let (start, end) = (self.start.max(range.start), self.end.min(range.end));
        (start < end).then_some(Self { start, end, ..*self })
    }

    /// It is still missing, while packets before `newest` have arrived.
    fn still_missing(self, newest: u64, timing: GapTiming, now: Instant) -> Self {
        match self.repair {
            Repair::Sent(at, sent_to)
                if (newest > sent_to && nanos_between(at, now) >= timing.lateness)
                    || nanos_between(at, now) >= timing.again =>
            {
                Self { repair: Repair::Due, ..self }
            }
            _ => self,
        }
    }

    /// For how long it was missing, if it has arrived now without a repair.
    fn lateness(&self, timing: GapTiming, now: Instant) -> Option<u64> {
        let is_repaired = match self.repair {
            Repair::Sent(at, _) => nanos_between(at, now) >= timing.min_rtt,
            _ => false,
        };
        (!is_repaired).then(|| nanos_between(self.noted_at, now))
    }
}

fn nanos_between(from: Instant, to: Instant) -> u64 {
    to.as_nanos().saturating_sub(from.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::iter;

    const TIMING: GapTiming = GapTiming { lateness: 10, again: 100, min_rtt: 50 };

    const fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn ranges(set: &BTreeSet<u64>, span: Range<u64>) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = vec![];
        for &seq in set.range(span) {
            match ranges.last_mut().filter(|it| it.end == seq) {
                Some(last) => last.end += 1,
                None => ranges.push(seq..seq + 1),
            }
        }
        ranges
    }

    fn members(gaps: &Gaps) -> Vec<u64> {
        gaps.0.iter().flat_map(|it| it.start..it.end).collect()
    }

    proptest! {
        #[test]
        fn it_holds_what_was_last_said_of_each_sequence_number(
            steps in prop::collection::vec((0..60u64, 0..30u64, any::<u64>()), 1..40),
        ) {
            let (mut gaps, mut expected) = (Gaps::default(), BTreeSet::new());
            for (i, (start, len, bits)) in steps.into_iter().enumerate() {
                let (span, now) = (start..start + len, at(i as u64));
                let missing: BTreeSet<u64> =
                    span.clone().filter(|seq| bits >> (seq - start) & 1 == 1).collect();
                gaps.update(span.clone(), ranges(&missing, span.clone()), TIMING, now);
                expected.retain(|seq| !span.contains(seq));
                expected.extend(missing);
                prop_assert_eq!(members(&gaps), expected.iter().copied().collect::<Vec<_>>());
                if bits % 3 == 0 {
                    gaps.on_repaired(start..start + 5, 60, now);
                    prop_assert_eq!(members(&gaps), expected.iter().copied().collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn a_gap_is_repaired_after_its_wait_and_again_if_later_packets_overtake_the_repair() {
        let mut gaps = Gaps::default();
        gaps.update(5..20, [5..7, 10..12], TIMING, at(0));
        assert_eq!((gaps.next_due(0), gaps.next_due_at()), (None, Some(at(10))));
        gaps.expire(at(9));
        assert_eq!(gaps.next_due(0), None);
        gaps.expire(at(10));
        assert_eq!(gaps.next_due(0), Some(5..7));
        gaps.on_repaired(5..6, 20, at(10));
        assert_eq!(gaps.next_due(0), Some(6..7), "one packet did not fit");
        gaps.on_repaired(6..12, 20, at(20));
        gaps.update(5..20, iter::once(5..7), TIMING, at(109));
        assert_eq!(gaps.next_due(0), None, "the report is of before the repair");
        gaps.update(5..21, iter::once(5..7), TIMING, at(19));
        assert_eq!(gaps.next_due(0), None, "they may have overtaken it by chance");
        gaps.update(5..21, iter::once(5..7), TIMING, at(20));
        assert_eq!(gaps.next_due(0), Some(5..6));
    }

    #[test]
    fn what_arrives_without_a_repair_or_too_soon_after_it_was_late() {
        let mut gaps = Gaps::default();
        gaps.update(0..9, [1..2, 3..4, 5..6], TIMING, at(0));
        assert_eq!(gaps.update(1..2, [], TIMING, at(7)), Some(7));
        gaps.on_repaired(3..9, 9, at(10));
        assert_eq!(gaps.update(3..4, [], TIMING, at(59)), Some(59));
        assert_eq!(gaps.update(0..9, [], TIMING, at(60)), None);
        assert!(gaps.is_empty());
    }

    #[test]
    fn the_number_of_gaps_is_bounded() {
        let mut gaps = Gaps::default();
        gaps.update(0..1000, (0..500).map(|it| 2 * it..2 * it + 1), TIMING, at(0));
        assert_eq!(gaps.0.len(), MAX_GAPS);
        assert_eq!(gaps.0.first().map(|it| it.start), Some(0), "the oldest");
    }
}
