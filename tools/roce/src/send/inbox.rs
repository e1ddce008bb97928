//! Received packets that no expectation has taken yet.

use std::collections::VecDeque;

use roce_dissect::{Filter, Packet};

use super::held_packet::HeldPacket;

/// Received packets in their order, at most [`MAX_HELD`].
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// With the number of packets that came before.
    held: VecDeque<(u64, HeldPacket)>,
    received: u64,
    forgotten: u64,
}

impl Inbox {
    /// Keeps a received packet; forgets the oldest if there are too many.
    pub(super) fn push(&mut self, packet: &Packet<'_>) {
        if self.held.len() == MAX_HELD {
            self.held.pop_front();
            self.forgotten += 1;
        }
        self.held.push_back((self.received, HeldPacket::of(packet)));
        self.received += 1;
    }

    /// Takes the first packet out that passes, of those that came after the first `seen`.
    pub(super) fn take(&mut self, filter: &Filter, seen: u64) -> Option<HeldPacket> {
        let at = self.find(filter, seen)?;
        self.held.remove(at).map(|(_, held)| held)
    }

    /// Returns the first packet that passes, of those that came after the first `seen`.
    pub(super) fn first(&self, filter: &Filter, seen: u64) -> Option<&HeldPacket> {
        self.find(filter, seen).map(|at| &self.held[at].1)
    }

    /// Returns the number of received packets, which [`take`](Self::take) and [`first`](Self::first) take
    /// as `seen` to look at each only once.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Returns how many packets wait.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns how many packets were too many.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn find(&self, filter: &Filter, seen: u64) -> Option<usize> {
        let first = self.held.partition_point(|(before, _)| *before < seen);
        let passes = |held: &HeldPacket| held.read(|packet| filter.matches(packet)) == Some(true);
        (first..self.held.len()).find(|at| passes(&self.held[*at].1))
    }
}

/// Most packets that are kept.
const MAX_HELD: usize = 4096;

#[cfg(test)]
mod tests {
    use roce_dissect::{Dissector, Options, RawFrame};
    use roce_generator::{Draft, find_opcode};
    use roce_wire::OuterHeaders;

    use super::*;

    fn inbox(psns: std::ops::Range<u64>) -> Inbox {
        let mut inbox = Inbox::default();
        let outer = OuterHeaders::new([10, 9, 0, 1].into(), [10, 9, 0, 2].into());
        let mut dissector = Dissector::new(Options::default());
        for psn in psns {
            let mut draft =
                Draft::of_opcode(find_opcode("rc_send_only").unwrap(), b"", &outer).unwrap();
            draft.change(&[format!("psn={psn}").parse().unwrap()]).unwrap();
            draft.finish();
            let frame = RawFrame { number: psn, ..draft.frame() };
            dissector.handle_frame(frame, |packet| inbox.push(packet));
        }
        inbox
    }

    #[test]
    fn a_packet_is_taken_once_and_others_stay() {
        let mut inbox = inbox(1..4);
        let filter: Filter = "psn == 2".parse().unwrap();
        assert_eq!(inbox.take(&filter, 0).map(|it| it.number()), Some(2));
        assert!(inbox.take(&filter, 0).is_none());
        let both: Filter = "psn == 1 or psn == 3".parse().unwrap();
        assert_eq!(inbox.first(&both, 0).map(HeldPacket::number), Some(1));
        assert_eq!(inbox.first(&both, 1).map(HeldPacket::number), Some(3), "the last one");
        assert!(inbox.first(&both, 3).is_none(), "all were seen");
        assert_eq!((inbox.len(), inbox.received()), (2, 3));
    }

    #[test]
    fn findings_are_those_among_the_packets_before() {
        let inbox = inbox(5..8);
        for (psn, is_first) in [(5, true), (6, false), (7, false)] {
            let filter: Filter = format!("psn == {psn} and findings == joined").parse().unwrap();
            assert_eq!(inbox.first(&filter, 0).is_some(), is_first, "{psn}");
        }
    }

    #[test]
    fn the_oldest_of_too_many_is_forgotten() {
        let inbox = inbox(0..MAX_HELD as u64 + 3);
        assert_eq!((inbox.len(), inbox.forgotten()), (MAX_HELD, 3));
        assert!(inbox.first(&"psn == 2".parse().unwrap(), 0).is_none());
        assert!(inbox.first(&"psn == 3".parse().unwrap(), 0).is_some());
    }
}
