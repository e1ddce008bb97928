//! A packet, as the actors of a queue pair handle it.

use roce_wire::{Headers, Packet, Verified};

/// Headers and payload of a verified packet that its queue pair has admitted: one that was just
/// received, or one that was kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedPacket<'a> {
    headers: &'a Headers,
    payload: &'a [u8],
}

impl<'a> ReceivedPacket<'a> {
    /// The packet with these headers and this payload.
    pub(crate) const fn new(headers: &'a Headers, payload: &'a [u8]) -> Self {
        Self { headers, payload }
    }

    #[inline]
    pub(crate) const fn headers(&self) -> &'a Headers {
        self.headers
    }

    #[inline]
    pub(crate) const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

impl<'a> From<&'a Packet<'_, Verified>> for ReceivedPacket<'a> {
    #[inline]
    fn from(packet: &'a Packet<'_, Verified>) -> Self {
        Self::new(packet.headers(), packet.payload())
    }
}
