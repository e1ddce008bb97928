//! A verified packet that outlives its frame.

use roce_wire::{Headers, ICRC_LEN, Packet, PathMtu, Verified, opcode};

use crate::qp::send_queue::packets_for;

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
