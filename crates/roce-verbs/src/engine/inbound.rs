//! Frames that come in: parsed, checked, and handed to the endpoint.

use std::collections::BTreeMap;
use std::io;

use roce_io::RxFrame;
use roce_transport::{Endpoint, Instant};
use roce_wire::{BadIcrc, Frame, Packet, ParseOptions, Unverified, WireError};

use crate::gid::GidTable;
use crate::memory::MrTable;
use crate::trace::TraceObserver;

/// The way of a frame from a device to the endpoint.
pub(super) struct Inbound<'a> {
    pub(super) now: Instant,
    pub(super) endpoint: &'a mut Endpoint<TraceObserver>,
    pub(super) memory: &'a mut MrTable,
    pub(super) gids: &'a GidTable,
    pub(super) drops: &'a mut BTreeMap<&'static str, u64>,
}

impl Inbound<'_> {
    pub(super) fn frame(&mut self, received: RxFrame<'_>) {
        self.parse(received.bytes, received.segment_len, received.udp_checksum_partial);
    }

    pub(super) fn parse(
        &mut self,
        bytes: &[u8],
        segment_len: Option<usize>,
        checksum_partial: bool,
    ) {
        let options = ParseOptions { udp_checksum_offloaded: checksum_partial };
        // Looked at where it lies, here and below: moving it takes as long as reading it.
        let parsed = Frame::parse_with(bytes, options);
        let frame = match &parsed {
            Ok(frame) => frame,
            Err(error) => return self.drop_for(error.counter()),
        };
        if !self.gids.owns(frame.destination()) {
            return self.drop_for("drop_not_our_address");
        }
        match segment_len {
            None => self.packet(frame.packet()),
            Some(segment_len) => self.train(frame, segment_len),
        }
    }

    fn train(&mut self, frame: &Frame<'_>, segment_len: usize) {
        let payload = frame.payload();
        let mut next = 0;
        for packet in frame.packets(Some(segment_len)) {
            // The next one comes on its way while this one is checked.
            next += segment_len;
            let end = payload.len().min(next + segment_len);
            roce_io::prefetch(payload.get(next..end).unwrap_or(&[]));
            self.packet(packet);
        }
    }

    #[inline(always)]
    fn packet(&mut self, packet: Result<Packet<'_, Unverified>, WireError>) {
        match packet.map(|packet| packet.verify_icrc()) {
            Ok(Ok(ref packet)) => self.endpoint.handle_packet(self.now, packet, self.memory),
            Ok(Err(_)) => self.drop_for(BadIcrc::COUNTER),
            Err(error) => self.drop_for(error.counter()),
        }
    }

    fn drop_for(&mut self, why: &'static str) {
        *self.drops.entry(why).or_default() += 1;
    }

    pub(super) fn frames_of(&mut self, device: &'static str, result: io::Result<usize>) -> usize {
        result.unwrap_or_else(|error| {
            let name = if device == "lo" { "lo_receive_error" } else { "wire_receive_error" };
            note_device_error(self.drops, name, &error);
            0
        })
    }
}

/// A device that fails is counted and told of once in a while; the protocol's own timers
/// decide when a peer is given up.
pub(super) fn note_device_error(
    drops: &mut BTreeMap<&'static str, u64>,
    name: &'static str,
    error: &io::Error,
) {
    let count = drops.entry(name).or_default();
    *count += 1;
    // Powers of two: the first one at once, a storm of them seldom.
    if count.is_power_of_two() {
        tracing::warn!(count, %error, "{name}");
    }
}
