//! Packets that arrived before a missing one, kept until it arrives.

use std::collections::VecDeque;
use std::iter;

use roce_wire::{GapRun, Packet, PathMtu, Psn, Verified};

use crate::rc::kept_packet::KeptPacket;

/// The packets of one direction of a queue pair that arrived out of order, by their PSNs.
///
/// Three limits bound it: the endpoint's bytes, as many bytes as the endpoint has left, so that one
/// queue pair never takes more than half, and [`MAX_PACKETS`].
#[derive(Debug, Default)]
pub(crate) struct ReorderBuffer(
    /// `None` without packets: an idle queue pair holds no memory for them.
    Option<Box<Packets>>,
);

#[derive(Debug, Default)]
struct Packets {
    /// In the order of PSNs, each once.
    by_psn: VecDeque<(Psn, KeptPacket)>,
    /// Charged to the budget.
    bytes: usize,
}

/// The bytes that all reorder buffers of an endpoint may hold.
#[derive(Debug)]
pub(crate) struct ReorderBudget {
    limit: usize,
    used: usize,
}

/// What became of a packet that arrived out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Kept,
    /// It is kept already.
    Duplicate,
    /// There is no room for it.
    NoRoom,
}

/// Maximum packets that a queue pair keeps: an insertion moves half of their entries at most.
const MAX_PACKETS: usize = 4096;
/// What a packet costs beside its own bytes: its entry, in a queue that may be half empty, and its
/// place on the heap.
const PACKET_OVERHEAD: usize = 80;

impl ReorderBudget {
    /// A budget of `limit` bytes; with 0 nothing is kept.
    pub(crate) const fn new(limit: usize) -> Self {
        Self { limit, used: 0 }
    }

    /// Bytes charged by all queue pairs.
    pub(crate) const fn used(&self) -> usize {
        self.used
    }

    /// Returns true if a buffer that holds `held` bytes may hold `more`.
    const fn admits(&self, held: usize, more: usize) -> bool {
        held + more <= self.limit.saturating_sub(self.used + more)
    }
}

impl ReorderBuffer {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Keeps `packet`, whose PSN is behind `expected`.
    pub(crate) fn keep(
        &mut self,
        packet: &Packet<'_, Verified>,
        expected: Psn,
        budget: &mut ReorderBudget,
    ) -> Arrival {
        let psn = packet.headers().bth.psn;
        let kept = self.0.as_deref();
        let index = kept.map_or(0, |it| it.index_of(psn, expected));
        if kept.and_then(|it| it.by_psn.get(index)).is_some_and(|(other, _)| *other == psn) {
            return Arrival::Duplicate;
        }
        let (packets, bytes) = kept.map_or((0, 0), |it| (it.by_psn.len(), it.bytes));
        let charge = KeptPacket::len_of(packet) + PACKET_OVERHEAD;
        if packets >= MAX_PACKETS || !budget.admits(bytes, charge) {
            return Arrival::NoRoom;
        }
        let kept = self.0.get_or_insert_default();
        kept.by_psn.insert(index, (psn, KeptPacket::from(packet)));
        kept.bytes += charge;
        budget.used += charge;
        Arrival::Kept
    }

    /// Takes the packet `expected`, if it is kept. Those before it are not needed any more.
    pub(crate) fn take(&mut self, expected: Psn, budget: &mut ReorderBudget) -> Option<KeptPacket> {
        loop {
            let kept = self.0.as_deref_mut()?;
            let ahead = kept.by_psn.front()?.0.distance_from(expected);
            if ahead > 0 {
                return None;
            }
            let (_, packet) = kept.by_psn.pop_front()?;
            let charge = packet.len() + PACKET_OVERHEAD;
            kept.bytes -= charge;
            budget.used -= charge;
            if kept.by_psn.is_empty() {
                self.0 = None;
            }
            if ahead == 0 {
                return Some(packet);
            }
        }
    }

    /// Returns the PSNs that are kept, from `psn` on.
    pub(crate) fn psns_from(&self, psn: Psn, expected: Psn) -> impl Iterator<Item = Psn> {
        let kept = self.0.as_deref();
        let from = kept.map_or(0, |it| it.index_of(psn, expected));
        kept.into_iter().flat_map(move |it| it.by_psn.iter().skip(from).map(|(psn, _)| *psn))
    }

    /// Returns which packets from `expected` on are missing, and which are kept.
    pub(crate) fn runs(&self, expected: Psn, mtu: PathMtu) -> impl Iterator<Item = GapRun> {
        let kept = self.0.as_deref().into_iter().flat_map(|it| &it.by_psn);
        let mut kept = kept.map(move |(psn, packet)| (*psn, packet.span(mtu))).peekable();
        let mut at = expected;
        iter::from_fn(move || {
            let missing = u16::try_from(kept.peek()?.0.distance_from(at)).ok()?;
            at = at.advanced_by(u32::from(missing));
            let mut packets = 0;
            while let Some((_, span)) = kept.next_if(|(psn, _)| *psn == at) {
                packets += span;
                at = at.advanced_by(span);
            }
            // A run that is too long, or empty, is not reported, and so is nothing behind it.
            let kept = u16::try_from(packets).ok()?;
            (missing > 0 && kept > 0).then_some(GapRun { missing, kept })
        })
    }

    /// Drops all packets.
    pub(crate) fn clear(&mut self, budget: &mut ReorderBudget) {
        budget.used -= self.0.take().map_or(0, |it| it.bytes);
    }
}

impl Packets {
    /// The position of the first packet that is not before `psn`; mostly that is the end.
    fn index_of(&self, psn: Psn, expected: Psn) -> usize {
        let is_last = self.by_psn.back().is_none_or(|(last, _)| psn.distance_from(*last) > 0);
        if is_last {
            return self.by_psn.len();
        }
        let ahead = psn.distance_from(expected);
        self.by_psn.partition_point(|(other, _)| other.distance_from(expected) < ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use roce_wire::{Bth, Frame, ICRC_LEN, OuterHeaders, Qpn, UdpChecksum, opcode, seal};

    const EXPECTED: Psn = Psn::wrapping(0xff_ff00);
    const CHARGE: usize = 12 + PACKET_OVERHEAD;

    fn frame(ahead: u32) -> Vec<u8> {
        let psn = EXPECTED.advanced_by(ahead);
        let bth = Bth::new(opcode::RC_SEND_ONLY, Qpn::new(7).unwrap(), psn);
        let outer = OuterHeaders::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut bytes = vec![0; outer.len()];
        bytes.extend(bth.to_bytes());
        bytes.extend([0; ICRC_LEN]);
        let len = bytes.len() - outer.len();
        seal(&outer, 1, &mut bytes, len, UdpChecksum::Zero).unwrap();
        bytes
    }

    fn keep(buffer: &mut ReorderBuffer, ahead: u32, budget: &mut ReorderBudget) -> Arrival {
        let bytes = frame(ahead);
        let frame = Frame::parse(&bytes).unwrap();
        buffer.keep(&frame.packet().unwrap().verify_icrc().unwrap(), EXPECTED, budget)
    }

    fn psn_of(packet: &KeptPacket) -> Psn {
        packet.parts().0.bth.psn
    }

    proptest! {
        #[test]
        fn packets_leave_in_order_each_once_and_the_budget_is_that_of_what_is_kept(
            arrivals in prop::collection::vec(1..600u32, 0..80),
        ) {
            let (mut buffer, mut budget) = (ReorderBuffer::default(), ReorderBudget::new(1 << 20));
            let mut distinct = std::collections::BTreeSet::new();
            for ahead in arrivals {
                let expected = if distinct.insert(ahead) { Arrival::Kept } else { Arrival::Duplicate };
                prop_assert_eq!(keep(&mut buffer, ahead, &mut budget), expected);
                prop_assert_eq!(budget.used(), distinct.len() * CHARGE);
            }
            for ahead in 1..600 {
                let psn = EXPECTED.advanced_by(ahead);
                let taken = buffer.take(psn, &mut budget).map(|it| psn_of(&it));
                prop_assert_eq!(taken, distinct.contains(&ahead).then_some(psn));
            }
            prop_assert!(buffer.is_empty());
            prop_assert_eq!(budget.used(), 0);
        }
    }

    #[test]
    fn a_queue_pair_never_holds_more_than_the_endpoint_has_left() {
        let mut budget = ReorderBudget::new(12 * CHARGE);
        let mut counts = vec![];
        let mut buffers: Vec<_> = (0..3).map(|_| ReorderBuffer::default()).collect();
        for buffer in &mut buffers {
            let kept = (1..100).take_while(|it| keep(buffer, *it, &mut budget) == Arrival::Kept);
            counts.push(kept.count());
        }
        assert_eq!(counts, [6, 3, 1], "always some for the next");
        buffers.iter_mut().for_each(|it| it.clear(&mut budget));
        assert_eq!(budget.used(), 0);
        assert_eq!(keep(&mut buffers[0], 1, &mut ReorderBudget::new(0)), Arrival::NoRoom);
    }

    #[test]
    fn packets_that_are_not_needed_any_more_are_dropped() {
        let (mut buffer, mut budget) = (ReorderBuffer::default(), ReorderBudget::new(1 << 20));
        [1, 2, 5]
            .into_iter()
            .for_each(|it| assert_eq!(keep(&mut buffer, it, &mut budget), Arrival::Kept));
        assert_eq!(buffer.take(EXPECTED.advanced_by(4), &mut budget), None);
        assert_eq!(budget.used(), CHARGE);
        assert!(buffer.take(EXPECTED.advanced_by(5), &mut budget).is_some());
    }

    #[test]
    fn the_number_of_packets_is_bounded_too() {
        let (mut buffer, mut budget) = (ReorderBuffer::default(), ReorderBudget::new(1 << 30));
        let kept = (1..5000).filter(|it| keep(&mut buffer, *it, &mut budget) == Arrival::Kept);
        assert_eq!(kept.count(), MAX_PACKETS);
    }
}
