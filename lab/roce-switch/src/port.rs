//! A port: an interface behind a packet socket.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use roce_io::{
    AfPacket, AfPacketConfig, FrameDevice, GsoMode, OpenError, ReceiveMode, RxFrame,
    SegmentChecksum, Segmenter, TxFrame,
};

use crate::checksum;
use crate::ethernet_frame::{ETHERNET_LEN, VLAN_LEN};

/// An interface that the switch receives from and sends to.
#[derive(Debug)]
pub(crate) struct Port {
    device: AfPacket,
    segmenter: Segmenter,
    packet: Vec<u8>,
    tagged: Vec<u8>,
    /// Frames to send.
    outgoing: VecDeque<Box<[u8]>>,
    unsent: u64,
}

impl Port {
    /// Opens an interface of this thread's network namespace.
    pub(crate) fn open(interface: &str, mtu: u32) -> Result<Self, OpenError> {
        let config = AfPacketConfig {
            promiscuous: true,
            gso: GsoMode::Off,
            receive: ReceiveMode::Ring { slots: RING_SLOTS },
            // The kernel takes off the outer of two tags.
            max_receive_len: mtu as usize + ETHERNET_LEN + VLAN_LEN,
            transmit_slots: TRANSMIT_SLOTS,
            ..AfPacketConfig::new(interface)
        };
        Ok(Self {
            device: AfPacket::open(&config)?,
            segmenter: Segmenter::default(),
            packet: Vec::new(),
            tagged: Vec::new(),
            outgoing: VecDeque::new(),
            unsent: 0,
        })
    }

    pub(crate) fn interface(&self) -> &str {
        &self.device.interface().name
    }

    pub(crate) fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.device.wait_fds()
    }

    /// Lends each waiting frame, at most `budget` of them, as it would be on a wire. Returns how many.
    pub(crate) fn receive(&mut self, budget: usize, on_frame: &mut dyn FnMut(&[u8])) -> usize {
        let Self { segmenter, packet, tagged, .. } = self;
        let received = self.device.receive(budget, &mut |frame: RxFrame<'_>| {
            let on_frame = &mut |bytes: &[u8]| match frame.vlan_tag {
                Some(tag) => on_frame(with_tag(bytes, tag, tagged)),
                None => on_frame(bytes),
            };
            if frame.segment_len.is_some() {
                segmenter.segment(frame, SegmentChecksum::Completed, on_frame);
            } else if frame.udp_checksum_partial {
                packet.clear();
                packet.extend_from_slice(frame.bytes);
                checksum::complete(packet);
                on_frame(packet);
            } else {
                on_frame(frame.bytes);
            }
        });
        // The interface went down or away: nothing comes in until it is back.
        received.unwrap_or(0)
    }

    /// Returns true if frames wait since the interface's queue was full.
    pub(crate) fn has_unsent(&self) -> bool {
        self.device.has_unsent()
    }

    /// Queues a frame to send.
    pub(crate) fn push(&mut self, frame: &[u8]) {
        if self.outgoing.len() < MAX_OUTGOING {
            self.outgoing.push_back(frame.into());
        } else {
            self.unsent += 1;
        }
    }

    /// Sends what is queued, as far as the interface takes it.
    pub(crate) fn flush(&mut self) {
        while !self.outgoing.is_empty() || self.device.has_unsent() {
            let outgoing = &mut self.outgoing;
            let sent = self.device.transmit(&mut |slot| {
                let frame = outgoing.pop_front()?;
                // Longer than a slot is no frame that came in by a ring.
                slot.get_mut(..frame.len())?.copy_from_slice(&frame);
                Some(TxFrame::single(frame.len()))
            });
            match sent {
                Ok(0) => break,
                Ok(_) => {}
                // The frame is longer than the MTU, or the interface is down: the device counts it.
                Err(_) => {}
            }
        }
    }

    /// Returns frames that found the socket's ring full.
    pub(crate) fn ring_dropped(&self) -> u64 {
        self.counter("socket_rcvd_dropped")
    }

    /// Returns frames that could not be received whole.
    pub(crate) fn unusable(&self) -> u64 {
        self.counter("socket_rcvd_unusable")
    }

    /// Returns frames that the interface did not take.
    pub(crate) fn unsent(&self) -> u64 {
        let names = ["too_long", "refused", "no_carrier", "stalled", "down", "gone"];
        let of_device = names.map(|name| self.counter(&format!("socket_sent_{name}")));
        self.unsent + of_device.iter().sum::<u64>()
    }

    fn counter(&self, name: &str) -> u64 {
        let counters = self.device.counters();
        counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    }
}

/// Writes the frame with a VLAN tag behind its addresses, where it was on the wire.
fn with_tag<'a>(bytes: &[u8], tag: [u8; VLAN_LEN], tagged: &'a mut Vec<u8>) -> &'a [u8] {
    let (addresses, rest) = bytes.split_at(ADDRESSES_LEN.min(bytes.len()));
    tagged.clear();
    for part in [addresses, &tag, rest] {
        tagged.extend_from_slice(part);
    }
    tagged
}

/// Bytes of the two addresses of a frame.
const ADDRESSES_LEN: usize = 12;

/// Frames that a socket keeps while the loop sleeps.
const RING_SLOTS: usize = 1024;

const TRANSMIT_SLOTS: usize = 32;

/// Frames that wait for an interface whose queue is full.
const MAX_OUTGOING: usize = 4096;
