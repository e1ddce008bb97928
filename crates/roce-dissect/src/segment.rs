//! Trains: telling the packets in one frame apart.
//!
//! A kernel hands packets of one queue pair up and down as one large frame, and what captures on
//! a virtual link, or in front of a card that segments, sees that frame. Nothing in it says where
//! it is to be cut. But each packet has its BTH and its own ICRC: the right length is the one
//! after which the same queue pair and the next PSN stand, and up to which the ICRC is right.

use roce_wire::{BTH_LEN, BthView, ICRC_LEN, KnownOpcode};

use crate::outer::RoceFrame;
use crate::{Icrc, IcrcSkipped, RoceVersion};

/// No single packet is longer: headers, 4096 bytes and an ICRC.
pub(crate) const MAX_PACKET_LEN: usize = 40 + 4096 + ICRC_LEN;

impl<'a> RoceFrame<'a> {
    /// The ICRC of the packet at `start` with `len` bytes on the wire, the `index`-th of a train.
    pub(crate) fn check_icrc(&self, start: usize, len: usize, index: u16) -> Icrc {
        if let Some(why) = self.no_icrc {
            return Icrc::Unchecked(why);
        }
        let packet = self.bytes.get(start..start + len);
        let Some((packet, carried)) = packet.and_then(|packet| packet.split_last_chunk()) else {
            return Icrc::Unchecked(IcrcSkipped::Truncated);
        };
        let carried = u32::from_le_bytes(*carried);
        let Some(expected) = self.expected_icrc(packet, index) else {
            return Icrc::Unchecked(IcrcSkipped::Truncated);
        };
        // Packets gathered from a sender that does not count share one identification.
        let gathered = || index > 0 && self.expected_icrc(packet, 0) == Some(carried);
        if expected == carried || gathered() {
            Icrc::Right
        } else {
            Icrc::Wrong { carried, expected }
        }
    }

    fn expected_icrc(&self, packet: &[u8], index: u16) -> Option<u32> {
        match self.version {
            RoceVersion::V1 => roce_wire::expected_icrc_v1(self.ip.first_chunk()?, packet),
            RoceVersion::V2 => {
                let identification = self.identification.wrapping_add(index);
                roce_wire::expected_icrc(self.ip, self.udp?, identification, packet)
            }
        }
    }

    /// Bytes of each packet but the last, if this is a train; for a frame that is not right as
    /// one packet.
    pub(crate) fn segment_len(&self) -> Option<usize> {
        let first = BthView::split(self.bytes).ok()?.0;
        if self.version == RoceVersion::V1 {
            return None;
        }
        let longest = MAX_PACKET_LEN.min(self.len.saturating_sub(MIN_PACKET_LEN));
        let mut trials = 0;
        let mut looks_right = None;
        for len in (MIN_PACKET_LEN..=longest).step_by(4) {
            let Some(next) = self.bytes.get(len..).and_then(|rest| BthView::split(rest).ok())
            else {
                break;
            };
            if !same_pair(first, next.0) {
                continue;
            }
            if self.check_icrc(0, len, 0) == Icrc::Right {
                return Some(len);
            }
            // The first may be the one that is damaged, or cut off by the capture.
            if looks_right.is_none() && self.walks(first, len) {
                looks_right = Some(len);
            }
            trials += 1;
            if trials == MAX_TRIALS {
                break;
            }
        }
        looks_right
    }

    /// Does every packet of this length but the first follow the one before?
    fn walks(&self, first: BthView<'_>, len: usize) -> bool {
        let mut before = first;
        for start in (len..self.bytes.len()).step_by(len) {
            let Ok((bth, _)) = BthView::split(&self.bytes[start..]) else { break };
            if !same_pair(first, bth) || bth.psn() != before.psn().advanced_by(1) {
                return false;
            }
            before = bth;
        }
        true
    }
}

fn same_pair(first: BthView<'_>, next: BthView<'_>) -> bool {
    first.dest_qp() == next.dest_qp()
        && first.partition_key() == next.partition_key()
        && next.version() == 0
        && KnownOpcode::new(next.opcode()).is_some()
}

/// A BTH and an ICRC.
const MIN_PACKET_LEN: usize = BTH_LEN + ICRC_LEN;

/// Lengths that are tried in earnest: the payload of an attacker may hold BTHs without end.
const MAX_TRIALS: u32 = 32;
