//! Segmentation of packet trains.
//!
//! The kernel passes packets of one queue pair as one large frame, which a capture on a virtual
//! link or before a segmenting network card contains. The frame does not record the packet
//! length. The dissector finds it from BTH and ICRC: the ICRC is correct up to the right length,
//! and a BTH with the same queue pair follows.

use roce_wire::{BTH_LEN, BthView, ICRC_LEN, KnownOpcode};

use crate::outer::RoceFrame;
use crate::{Icrc, IcrcSkipped, RoceVersion};

/// Maximum length of a packet: headers, 4096 bytes of payload and ICRC.
pub(crate) const MAX_PACKET_LEN: usize = 40 + 4096 + ICRC_LEN;

impl<'a> RoceFrame<'a> {
    /// Checks the ICRC of the packet at `start` with `len` bytes on the wire, the `index`-th of a
    /// train.
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
        // GRO may merge packets of a sender that uses one IP identification for all.
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

    /// Returns the bytes of each packet but the last if this is a train. Called for frames whose
    /// ICRC is not correct as one packet.
    pub(crate) fn segment_len(&self) -> Option<usize> {
        let first = BthView::split(self.bytes).ok()?.0;
        if self.version == RoceVersion::V1 {
            return None;
        }
        let longest = MAX_PACKET_LEN.min(self.len.saturating_sub(MIN_PACKET_LEN));
        let mut trials = 0;
        let mut plausible = None;
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
            // The first packet may itself be damaged or truncated.
            if plausible.is_none() && self.has_sequential_psns(first, len) {
                plausible = Some(len);
            }
            trials += 1;
            if trials == MAX_TRIALS {
                break;
            }
        }
        plausible
    }

    /// Returns true if the PSNs of packets of this length increase by one.
    fn has_sequential_psns(&self, first: BthView<'_>, len: usize) -> bool {
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

/// Minimum length of a packet: BTH and ICRC.
const MIN_PACKET_LEN: usize = BTH_LEN + ICRC_LEN;

/// Maximum number of lengths to try; a hostile payload may contain any number of BTHs.
const MAX_TRIALS: u32 = 32;
