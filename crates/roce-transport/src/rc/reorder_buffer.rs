//! Packets that arrived before a missing one, kept until it arrives.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::iter;
use core::net::IpAddr;

use roce_wire::{GapRun, Packet, PathMtu, Psn, Verified};

use crate::Instant;
use crate::rc::kept_packet::KeptPacket;
use crate::reorder_budget::ReorderBudget;

/// The packets of one direction of a queue pair that arrived out of order, by their PSNs.
///
/// `rc.rs` says what bounds it.
#[derive(Debug, Default)]
pub(crate) struct ReorderBuffer(
    /// `None` without packets: an idle queue pair holds no memory for them.
    Option<Box<Packets>>,
);

#[derive(Debug)]
struct Packets {
    /// In the order of PSNs, each once.
    by_psn: VecDeque<(Psn, KeptPacket)>,
    /// Charged to the budget.
    bytes: usize,
    /// Address to which they are charged.
    peer: IpAddr,
    /// The expected PSN when ages were checked last.
    checked_at: Option<Psn>,
}

/// What became of a packet that arrived out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Kept,
    /// It is kept already.
    Duplicate,
    /// Another packet of this PSN is kept.
    Differs,
    /// There is no room for it.
    NoRoom,
    /// No sender is so far ahead.
    TooFar,
}

/// Maximum distance between the missing packet and one behind it that is kept, in PSNs. A sender of this
/// crate has 2048 packets in flight. An insertion moves half as many entries at most.
pub(crate) const MAX_AHEAD: u32 = 4096;
/// What a packet costs beside its own bytes: its entry, in a queue that may be half empty, and its
/// place on the heap.
const PACKET_OVERHEAD: usize = 80;

impl ReorderBuffer {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Keeps `packet`, whose PSN is behind `expected`. Where room is needed, packets of this buffer that
    /// are further ahead make it.
    pub(crate) fn keep(
        &mut self,
        packet: &Packet<'_, Verified>,
        expected: Psn,
        budget: &mut ReorderBudget,
        now: Instant,
    ) -> Arrival {
        let (psn, peer) = (packet.bth().psn(), packet.source());
        if psn.distance_from(expected) > MAX_AHEAD as i32 {
            return Arrival::TooFar;
        }
        let kept = self.0.as_deref();
        let index = kept.map_or(0, |it| it.index_of(psn, expected));
        if let Some((_, other)) = kept.and_then(|it| it.by_psn.get(index)).filter(|it| it.0 == psn)
        {
            return if other.is_repeated_by(packet) {
                Arrival::Duplicate
            } else {
                Arrival::Differs
            };
        }
        let charge = KeptPacket::len_of(packet) + PACKET_OVERHEAD;
        while !budget.admits(self.0.as_deref().map_or(0, |it| it.bytes), charge, peer) {
            let kept = self.0.as_deref_mut();
            let Some(kept) = kept.filter(|it| it.by_psn.len() > index) else {
                self.0.take_if(|it| it.by_psn.is_empty());
                return Arrival::NoRoom;
            };
            let farthest = kept.by_psn.pop_back();
            kept.release(farthest.as_ref().map(|it| &it.1), budget);
        }
        let kept = self.0.get_or_insert_with(|| Box::new(Packets::of(peer)));
        kept.by_psn.insert(index, (psn, KeptPacket::from(packet)));
        kept.bytes += charge;
        budget.charge(charge, kept.peer, now);
        Arrival::Kept
    }

    /// Drops all packets if nothing has arrived that closes the gap before them since the last check.
    pub(crate) fn drop_idle(&mut self, expected: Psn, budget: &mut ReorderBudget) {
        let Some(kept) = self.0.as_deref_mut() else { return };
        if kept.checked_at.replace(expected) == Some(expected) {
            self.clear(budget);
        }
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
            kept.release(Some(&packet), budget);
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
        if let Some(kept) = self.0.take() {
            budget.release(kept.bytes, kept.peer);
        }
    }
}

impl Packets {
    fn of(peer: IpAddr) -> Self {
        Self { by_psn: VecDeque::new(), bytes: 0, peer, checked_at: None }
    }

    /// Gives back what `packet` was charged, which was taken out.
    fn release(&mut self, packet: Option<&KeptPacket>, budget: &mut ReorderBudget) {
        let charge = packet.map_or(0, |it| it.len() + PACKET_OVERHEAD);
        self.bytes -= charge;
        budget.release(charge, self.peer);
        // The overhead that is charged is that of a queue half full.
        if self.by_psn.capacity() > 64 + 4 * self.by_psn.len() {
            self.by_psn.shrink_to(2 * self.by_psn.len());
        }
    }

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
    use crate::fuzzing::packet::sealed;
    use proptest::prelude::*;
    use roce_wire::{Bth, Frame, OuterHeaders, Qpn, opcode};

    const EXPECTED: Psn = Psn::wrapping(0xff_ff00);
    const CHARGE: usize = 12 + PACKET_OVERHEAD;

    fn frame(ahead: u32, peer: u8) -> Vec<u8> {
        let psn = EXPECTED.advanced_by(ahead);
        let bth = Bth::new(opcode::RC_SEND_ONLY, Qpn::new(7).unwrap(), psn);
        let outer = OuterHeaders::new([10, 0, 0, peer].into(), [10, 0, 0, 2].into());
        sealed(&outer, &bth.to_bytes()).unwrap()
    }

    fn keep(buffer: &mut ReorderBuffer, ahead: u32, budget: &mut ReorderBudget) -> Arrival {
        keep_of(1, buffer, ahead, budget)
    }

    fn keep_of(
        peer: u8,
        buffer: &mut ReorderBuffer,
        ahead: u32,
        budget: &mut ReorderBudget,
    ) -> Arrival {
        let bytes = frame(ahead, peer);
        let frame = Frame::parse(&bytes).unwrap();
        let packet = frame.packet().unwrap().verify_icrc().unwrap();
        buffer.keep(&packet, EXPECTED, budget, Instant::default())
    }

    fn psn_of(packet: &KeptPacket) -> Psn {
        packet.view().bth().psn()
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
        let mut buffers: Vec<_> = (0..4).map(|_| ReorderBuffer::default()).collect();
        for (buffer, peer) in buffers.iter_mut().zip([1, 1, 1, 2]) {
            let kept =
                (1..100).take_while(|it| keep_of(peer, buffer, *it, &mut budget) == Arrival::Kept);
            counts.push(kept.count());
        }
        assert_eq!(counts, [6, 3, 0, 1], "always some for the next, and a quarter for other peers");
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
    fn packets_further_ahead_than_any_sender_goes_are_not_kept() {
        let (mut buffer, mut budget) = (ReorderBuffer::default(), ReorderBudget::new(1 << 30));
        for ahead in 1..5000 {
            let is_near = ahead <= MAX_AHEAD;
            let expected = if is_near { Arrival::Kept } else { Arrival::TooFar };
            assert_eq!(keep(&mut buffer, ahead, &mut budget), expected, "{ahead}");
        }
        assert_eq!(keep(&mut buffer, (1 << 23) - 1, &mut budget), Arrival::TooFar);
    }

    #[test]
    fn where_room_is_needed_the_packets_furthest_ahead_make_it() {
        let (mut buffer, mut budget) = (ReorderBuffer::default(), ReorderBudget::new(8 * CHARGE));
        for ahead in [10, 30, 20, 40] {
            assert_eq!(keep(&mut buffer, ahead, &mut budget), Arrival::Kept);
        }
        assert_eq!(keep(&mut buffer, 50, &mut budget), Arrival::NoRoom);
        assert_eq!(keep(&mut buffer, 25, &mut budget), Arrival::Kept);
        let ahead: Vec<_> = buffer.psns_from(EXPECTED, EXPECTED).collect();
        assert_eq!(ahead, [10, 20, 25, 30].map(|it| EXPECTED.advanced_by(it)));
        assert_eq!(budget.used(), 4 * CHARGE);
    }

    #[test]
    fn what_is_kept_goes_at_the_second_check_without_progress() {
        let (mut buffer, mut budget) = (ReorderBuffer::default(), ReorderBudget::new(1 << 20));
        assert!(!budget.take_check(Instant::from_nanos(u64::MAX)), "nothing is kept");
        keep(&mut buffer, 5, &mut budget);
        let at = budget.check_at().unwrap();
        assert!(!budget.take_check(Instant::default()) && budget.take_check(at));
        buffer.drop_idle(EXPECTED, &mut budget);
        buffer.drop_idle(EXPECTED.advanced_by(1), &mut budget);
        assert!(!buffer.is_empty());
        buffer.drop_idle(EXPECTED.advanced_by(1), &mut budget);
        assert!(buffer.is_empty());
        assert_eq!(budget.used(), 0);
        assert!(budget.take_check(budget.check_at().unwrap()));
        assert_eq!(budget.check_at(), None);
    }
}
