//! A verified packet that outlives its frame.

use alloc::boxed::Box;
use alloc::vec::Vec;

use roce_wire::{Packet, PacketView, PathMtu, Verified, opcode};

use crate::qp::segmentation::packets_for;

/// A packet whose ICRC was verified, with bytes of its own: it is handled later than its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptPacket {
    /// From the first byte of the BTH to the last pad byte.
    bytes: Box<[u8]>,
}

impl KeptPacket {
    /// Returns the packet.
    pub(crate) fn view(&self) -> PacketView<'_> {
        PacketView::parse(&self.bytes).expect("the bytes of a packet")
    }

    /// Returns the PSNs that it uses: those of the responses, of a READ request.
    pub(crate) fn span(&self, mtu: PathMtu) -> u32 {
        if self.bytes[0] != opcode::RC_READ_REQUEST.code().0 {
            return 1;
        }
        let len = self.view().reth().map_or(0, |reth| reth.len);
        packets_for(u64::from(len), mtu)
    }

    /// Returns true if `packet`, of the same PSN, asks for or brings the same. A packet that is
    /// sent again may differ in the bits for ACKs and congestion, and a response in its place in
    /// the response too.
    pub(crate) fn is_repeated_by(&self, packet: &Packet<'_, Verified>) -> bool {
        let (first, again) = (self.view(), packet.view());
        if first.is_request() {
            return first.opcode() == again.opcode() && first.behind_bth() == again.behind_bth();
        }
        first.atomic_ack() == again.atomic_ack() && first.payload() == again.payload()
    }

    /// Returns the bytes that `packet` takes as a kept one.
    pub(crate) fn len_of(packet: &Packet<'_, Verified>) -> usize {
        packet.view().len_with_pad()
    }

    /// Length in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl From<&Packet<'_, Verified>> for KeptPacket {
    fn from(packet: &Packet<'_, Verified>) -> Self {
        let (view, len) = (packet.view(), Self::len_of(packet));
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(view.bth().bytes());
        bytes.extend_from_slice(view.behind_bth());
        bytes.resize(len, 0); // the pad
        Self { bytes: bytes.into() }
    }
}
