//! What congestion notifications make of a sender.

use std::collections::VecDeque;
use std::time::Duration;

use super::cnp_rate::CnpRate;
use crate::Timestamp;

/// What the receiver of a direction answered to marked packets, and what the sender made of it, as
/// captured. Rates are those of bytes on the wire.
///
/// ```
/// let capture = roce_dissect::Reaction::default();
/// assert_eq!((capture.cnps, capture.rate_before), (0, None));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaction {
    /// CNPs for this sender.
    pub cnps: u64,
    /// CNPs that followed a captured mark. Where packets are captured before the switch that marks
    /// them, there are none.
    pub answers: u64,
    /// Mean time from the last mark before such a CNP to it. Earlier marks may have come too soon
    /// after another CNP, and have drawn none.
    pub answered_after: Option<Duration>,
    /// Shortest time between two CNPs.
    pub min_interval: Option<Duration>,
    /// Mean rate of the last packets before a CNP, in bits per second.
    pub rate_before: Option<u64>,
    /// Mean rate of the packets after it.
    pub rate_after: Option<u64>,
}

/// Packets of which a rate is taken.
const PACKETS: usize = 16;
/// Fewest of them.
const MIN_PACKETS: usize = 4;

/// The sender of a direction whose packets are ECN-capable.
#[derive(Clone, Debug, Default)]
pub(super) struct Sender {
    /// The last packets: time and bytes on the wire.
    recent: VecDeque<(Timestamp, u64)>,
    /// Packets since the last CNP.
    since_cnp: usize,
    /// The rate after the last CNP is still to be taken.
    is_after_due: bool,
    last_cnp: Option<Timestamp>,
    /// A CNP without a mark before it was reported.
    is_without_mark: bool,
    /// The last mark since the last CNP.
    last_mark: Option<Timestamp>,
    cnp_rate: CnpRate,
    cnps: u64,
    answers: u64,
    answered_after: Duration,
    min_interval: Option<Duration>,
    before: Sum,
    after: Sum,
}

/// Bytes in a time.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    bytes: u64,
    time: Duration,
}

impl Sum {
    /// Adds packets. The bytes of the first were sent before the time begins.
    fn add<'a>(&mut self, packets: impl Iterator<Item = &'a (Timestamp, u64)> + Clone) {
        let (Some(first), Some(last)) = (packets.clone().next(), packets.clone().last()) else {
            return;
        };
        self.bytes += packets.skip(1).map(|(_, bytes)| bytes).sum::<u64>();
        self.time += last.0.since(first.0);
    }

    fn rate(&self) -> Option<u64> {
        let seconds = self.time.as_secs_f64();
        (seconds > 0.0).then(|| (self.bytes as f64 * 8.0 / seconds) as u64)
    }
}

impl Sender {
    /// Notes a packet.
    pub(super) fn on_packet(&mut self, time: Timestamp, wire_bytes: u64, is_marked: bool) {
        if self.recent.len() == PACKETS {
            self.recent.pop_front();
        }
        self.recent.push_back((time, wire_bytes));
        self.since_cnp = self.since_cnp.saturating_add(1);
        if self.since_cnp == PACKETS {
            self.take_after();
        }
        if is_marked {
            self.last_mark = Some(time);
        }
    }

    /// Notes that a CNP has no mark before it. Returns true for the first.
    pub(super) fn is_first_without_mark(&mut self) -> bool {
        !std::mem::replace(&mut self.is_without_mark, true)
    }

    /// Notes a CNP for this sender. Returns a number of CNPs and their time if these are too many.
    pub(super) fn on_cnp(&mut self, time: Timestamp) -> Option<(u32, Duration)> {
        self.take_after();
        self.cnps += 1;
        if let Some(marked) = self.last_mark.take() {
            self.answers += 1;
            self.answered_after += time.since(marked);
        }
        let interval = self.last_cnp.replace(time).map(|last| time.since(last));
        self.min_interval = [self.min_interval, interval].into_iter().flatten().min();
        if self.recent.len() >= MIN_PACKETS {
            self.before.add(self.recent.iter());
        }
        (self.since_cnp, self.is_after_due) = (0, true);
        self.cnp_rate.note(time)
    }

    /// Takes the rate after the last CNP, if enough packets have come since.
    fn take_after(&mut self) {
        if std::mem::take(&mut self.is_after_due) && self.since_cnp >= MIN_PACKETS {
            let before = self.recent.len().saturating_sub(self.since_cnp);
            self.after.add(self.recent.iter().skip(before));
        }
    }

    pub(super) fn reaction(&self) -> Option<Reaction> {
        let answers = u32::try_from(self.answers).unwrap_or(u32::MAX);
        (self.cnps > 0).then(|| Reaction {
            cnps: self.cnps,
            answers: self.answers,
            answered_after: self.answered_after.checked_div(answers),
            min_interval: self.min_interval,
            rate_before: self.before.rate(),
            rate_after: self.after.rate(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_halves_its_rate_at_each_cnp_is_seen_to_do_so() {
        let mut sender = Sender::default();
        let (mut time, mut gap) = (0, 1_000);
        for _ in 0..5 {
            for number in 0..40 {
                time += gap;
                sender.on_packet(Timestamp(time), 1_000, number == 39);
            }
            sender.on_cnp(Timestamp(time + 300));
            gap *= 2;
        }
        let reaction = sender.reaction().unwrap();
        assert_eq!((reaction.cnps, reaction.answers), (5, 5));
        assert_eq!(reaction.answered_after, Some(Duration::from_nanos(300)));
        assert_eq!(reaction.min_interval, Some(Duration::from_nanos(80_000)));
        // Before the five CNPs the gaps are 1, 2, 4, 8 and 16 µs; after all but the last 2 to 16.
        assert_eq!(reaction.rate_before, Some(5 * 8_000_000_000 / 31));
        assert_eq!(reaction.rate_after, Some(4 * 8_000_000_000 / 30));
    }

    #[test]
    fn a_mark_that_came_too_soon_after_a_cnp_does_not_count_as_the_cause_of_the_next() {
        let mut sender = Sender::default();
        for (marked, answered) in [(1_000, 1_300), (5_000_000, 5_000_300)] {
            sender.on_packet(Timestamp(marked), 1_000, true);
            sender.on_cnp(Timestamp(answered));
            sender.on_packet(Timestamp(answered + 100), 1_000, true);
        }
        let reaction = sender.reaction().unwrap();
        assert_eq!((reaction.cnps, reaction.answers), (2, 2));
        assert_eq!(reaction.answered_after, Some(Duration::from_nanos(300)));
    }

    #[test]
    fn a_cnp_without_packets_or_marks_has_neither_rate_nor_answer() {
        let mut sender = Sender::default();
        sender.on_cnp(Timestamp(1));
        let expected = Reaction { cnps: 1, ..Reaction::default() };
        assert_eq!(sender.reaction(), Some(expected));
        assert_eq!(Sender::default().reaction(), None);
    }
}
