//! The receiving half of a round: parses frames, checks ICRCs, passes packets to the endpoint.

use roce_io::RxFrame;
use roce_transport::{Endpoint, Instant, Memory, Observer};
use roce_wire::{BadIcrc, Frame, Packet, ParseOptions, PfcFrame, Unverified, WireError};

use super::Engine;
use super::devices::Devices;
use super::drops::Drops;
use super::link_pauses::LinkPauses;
use super::transmit_queues::{LOOPBACK_QUEUE, MAX_LOCAL_FRAMES};
use crate::consumer::Consumer;
use crate::gid_table::GidTable;

/// Most frames of one round from one device: a round of full trains takes some 100 µs.
const RECEIVE_BUDGET: usize = 32;
/// Consecutive rounds that skip `lo` while frames come over the wire.
const MAX_ROUNDS_WITHOUT_LO: u32 = 7;

impl<C: Consumer> Engine<C> {
    pub(super) fn receive_batch(&mut self, now: Instant) -> usize {
        self.set_now(now);
        let received = self.receive(now);
        if self.devices.pauses.any() {
            self.devices.pauses.end_due(now, &mut self.endpoint);
        }
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        if self.management.is_some()
            && let (Some(management), mut parts) = self.management_parts()
        {
            management.run(now, &mut parts);
        }
        received
    }

    fn receive(&mut self, now: Instant) -> usize {
        let Devices { wire, lo, loopback, loopback_queue, pauses, rounds_without_lo, .. } =
            &mut self.devices;
        let mut batch = ReceiveBatch {
            now,
            endpoint: &mut self.endpoint,
            memory: &mut self.tables.memory,
            gids: &self.tables.gids,
            drops: &mut self.drops,
            pauses,
        };
        let mut received = 0;
        let from_wire = wire.receive(RECEIVE_BUDGET, &mut |frame| batch.frame(frame));
        received += batch.drops.note_error_of(from_wire, "wire_receive_error");
        // While frames come over the wire, the application more likely waits for those.
        let looks_at_lo = received == 0 || *rounds_without_lo >= MAX_ROUNDS_WITHOUT_LO;
        *rounds_without_lo = if looks_at_lo { 0 } else { *rounds_without_lo + 1 };
        if let Some(lo) = lo.as_mut().filter(|_| looks_at_lo) {
            let from_lo = lo.receive(RECEIVE_BUDGET, &mut |frame| batch.frame(frame));
            received += batch.drops.note_error_of(from_lo, "lo_receive_error");
        }
        if let Some(loopback) = loopback {
            // The sending half has emptied the queue into it.
            let from_itself = loopback.receive(RECEIVE_BUDGET, &mut |frame| batch.frame(frame));
            received += batch.drops.note_error_of(from_itself, "loopback_receive_error");
        } else {
            for _ in 0..RECEIVE_BUDGET {
                let Some((bytes, outgoing)) = loopback_queue.pop_front() else { break };
                batch.parse(&bytes, outgoing.segment_len, true);
                received += 1;
            }
        }
        if loopback_queue.len() < MAX_LOCAL_FRAMES {
            self.endpoint.resume_transmit(LOOPBACK_QUEUE);
        }
        received
    }
}

/// The parts of the engine that a batch of received frames needs.
pub(super) struct ReceiveBatch<'a, O: Observer, M: Memory> {
    now: Instant,
    endpoint: &'a mut Endpoint<O>,
    memory: &'a mut M,
    gids: &'a GidTable,
    drops: &'a mut Drops,
    pauses: &'a mut LinkPauses,
}

impl<O: Observer, M: Memory> ReceiveBatch<'_, O, M> {
    fn frame(&mut self, received: RxFrame<'_>) {
        self.parse(received.bytes, received.segment_len, received.udp_checksum_partial);
    }

    fn parse(&mut self, bytes: &[u8], segment_len: Option<usize>, checksum_partial: bool) {
        let options = ParseOptions { udp_checksum_offloaded: checksum_partial };
        // By reference, here and below: moving the frame takes as long as reading it.
        let parsed = Frame::parse_with(bytes, options);
        let frame = match &parsed {
            Ok(frame) => frame,
            Err(error) => return self.other_frame(bytes, error),
        };
        if !self.gids.owns(frame.destination()) {
            return self.group_frame(frame, segment_len);
        }
        match segment_len {
            None => self.packet(frame.packet()),
            Some(segment_len) => self.train(frame, segment_len),
        }
    }

    /// Handles a frame that is no RoCEv2 packet: a pause of the link, or an error.
    #[cold]
    fn other_frame(&mut self, bytes: &[u8], error: &WireError) {
        match PfcFrame::parse_any(bytes) {
            Ok(pause) => self.pauses.apply(self.now, &pause, self.endpoint),
            Err(_) => self.drops.count(error.counter()),
        }
    }

    /// Handles a frame to another address than this device's: that of a multicast group, or none that
    /// matters.
    #[cold]
    fn group_frame(&mut self, frame: &Frame<'_>, segment_len: Option<usize>) {
        if !self.endpoint.has_members(frame.destination()) {
            return self.drops.count("drop_not_our_address");
        }
        for packet in frame.packets(segment_len) {
            match packet.map(|packet| packet.verify_icrc()) {
                Ok(Ok(ref packet)) => {
                    self.endpoint.handle_group_packet(self.now, packet, self.memory);
                }
                Ok(Err(_)) => self.drops.count(BadIcrc::COUNTER),
                Err(error) => self.drops.count(error.counter()),
            }
        }
    }

    fn train(&mut self, frame: &Frame<'_>, segment_len: usize) {
        let payload = frame.payload();
        let mut next = 0;
        for packet in frame.packets(Some(segment_len)) {
            // The next packet is fetched while this one is checked.
            next += segment_len;
            let end = payload.len().min(next + segment_len);
            roce_io::prefetch(payload.get(next..end).unwrap_or(&[]));
            self.packet(packet);
        }
    }

    #[inline(always)] // 10 instructions per packet less than a call
    fn packet(&mut self, packet: Result<Packet<'_, Unverified<'_>>, WireError>) {
        match packet.map(|packet| packet.verify_icrc()) {
            Ok(Ok(ref packet)) => self.endpoint.handle_packet(self.now, packet, self.memory),
            Ok(Err(_)) => self.drops.count(BadIcrc::COUNTER),
            Err(error) => self.drops.count(error.counter()),
        }
    }
}
