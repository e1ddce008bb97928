//! A verified packet that outlives its frame.

use alloc::boxed::Box;

use roce_wire::{BTH_LEN, Headers, ICRC_LEN, Packet, PathMtu, Verified, opcode};

use crate::qp::segmentation::packets_for;

/// A packet whose ICRC was verified, with bytes of its own: it is handled later than its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptPacket {
    /// From the first byte of the BTH to the last pad byte.
    bytes: Box<[u8]>,
}

impl KeptPacket {
    /// Returns the headers and the payload, without pad.
    pub(crate) fn parts(&self) -> (Headers, &[u8]) {
        let (headers, rest) = Headers::parse(&self.bytes).expect("the bytes of a packet");
        let payload = headers.split_payload(rest).expect("the bytes of a packet");
        (headers, payload)
    }

    /// Returns the PSNs that it uses: those of the responses, of a READ request.
    pub(crate) fn span(&self, mtu: PathMtu) -> u32 {
        if self.bytes[0] != opcode::RC_READ_REQUEST.code().0 {
            return 1;
        }
        let len = self.parts().0.reth.map_or(0, |reth| reth.len);
        packets_for(u64::from(len), mtu)
    }

    /// Returns true if `packet`, of the same PSN, asks for or brings the same. A packet that is
    /// sent again may differ in the bits for ACKs and congestion, and a response in its place in
    /// the response too.
    pub(crate) fn is_repeated_by(&self, packet: &Packet<'_, Verified>) -> bool {
        let (headers, payload) = self.parts();
        let again = packet.headers();
        if headers.bth.opcode.info().is_request() {
            let bytes = &packet.bytes()[..Self::len_of(packet)];
            return headers.bth.opcode == again.bth.opcode
                && self.bytes.get(BTH_LEN..) == bytes.get(BTH_LEN..);
        }
        headers.atomic_ack == again.atomic_ack && payload == packet.payload()
    }

    /// Returns the bytes that `packet` takes as a kept one.
    pub(crate) fn len_of(packet: &Packet<'_, Verified>) -> usize {
        packet.bytes().len() - ICRC_LEN
    }

    /// Length in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl From<&Packet<'_, Verified>> for KeptPacket {
    fn from(packet: &Packet<'_, Verified>) -> Self {
        Self { bytes: packet.bytes()[..Self::len_of(packet)].into() }
    }
}
