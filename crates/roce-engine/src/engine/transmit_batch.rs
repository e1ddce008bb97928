//! The frames of a round that leave: the endpoint writes them, and each goes to its queue.

use std::collections::VecDeque;

use roce_io::{DeviceCapabilities, LO_SOURCE, TxFrame};
use roce_transport::{Endpoint, Instant, Memory, Observer, TransmitLimits};

use super::drops::Drops;
use super::frame_sealer::FrameSealer;
use super::transmit_queues::{LO_QUEUE, LOOPBACK_QUEUE, LocalFrame, MAX_LOCAL_FRAMES};
use crate::own_numbers::OwnNumbers;
use crate::path_table::Via;

/// Most frames sent in one round.
pub(super) const TRANSMIT_BUDGET: usize = 32;
/// Bytes of the two MAC addresses at the start of a frame.
const MAC_ADDRESSES: usize = 2 * MAC_ADDRESS;
const MAC_ADDRESS: usize = 6;
/// Bytes of the largest set of outer headers: Ethernet with a VLAN tag, IPv6, UDP.
const MAX_HEADROOM: usize = 66;

/// The parts of the engine that a batch of frames to send needs.
pub(super) struct TransmitBatch<'a, O: Observer, M: Memory> {
    pub(super) now: Instant,
    pub(super) limits: TransmitLimits,
    /// `None` where there is no `lo`.
    pub(super) lo_limits: Option<DeviceCapabilities>,
    pub(super) endpoint: &'a mut Endpoint<O>,
    pub(super) memory: &'a mut M,
    pub(super) sealer: FrameSealer<'a>,
    pub(super) numbers: &'a OwnNumbers,
    pub(super) drops: &'a mut Drops,
    pub(super) loopback_queue: &'a mut VecDeque<LocalFrame>,
    pub(super) lo_queue: &'a mut VecDeque<LocalFrame>,
    /// As [`Framing::headroom`].
    pub(super) headroom: &'a mut usize,
    pub(super) acks_after_send: &'a mut bool,
    /// Frames sent in this round.
    pub(super) sent: &'a mut usize,
}

impl<O: Observer, M: Memory> TransmitBatch<'_, O, M> {
    /// Writes the next frame for the interface into `slot`, if there is one. Frames for this host
    /// are built there too, and put into their queues.
    pub(super) fn next_frame(&mut self, slot: &mut [u8]) -> Option<TxFrame> {
        // After a single message there is nothing more to send.
        let is_over =
            *self.sent > 0 && !self.endpoint.has_pending_transmit() && !*self.acks_after_send;
        while !is_over && *self.sent < TRANSMIT_BUDGET {
            let guess = *self.headroom;
            // The longest train fits behind longer headers too, should the guess be wrong.
            let end = (slot.len() + guess).saturating_sub(MAX_HEADROOM).min(slot.len());
            let buf = &mut slot[guess..end];
            let (now, limits, sealer) = (self.now, self.limits, &mut self.sealer);
            let next = self.endpoint.poll_transmit_sealed(now, self.memory, limits, buf, sealer);
            if next.is_none() && std::mem::take(self.acks_after_send) {
                self.endpoint.delay_acks(false);
                continue;
            }
            let transmit = next?;
            *self.sent += 1;
            let Some(entry) = sealer.path_entry() else {
                // Cannot happen: the queue pair keeps its path alive.
                self.drops.count("drop_no_path");
                continue;
            };
            let start = entry.sealer.len();
            if start != guess {
                slot.copy_within(guess..guess + transmit.len, start);
                *self.headroom = start;
            }
            let len = start + transmit.len;
            let frame = &mut slot[..len];
            if sealer.finish(&transmit, frame).is_err() {
                self.drops.count("drop_unsealable");
                continue;
            }
            let outgoing = if transmit.packets > 1 {
                TxFrame::train(len, start, transmit.segment_len)
            } else {
                TxFrame::single(len)
            };
            match entry.via {
                Via::Interface => return Some(outgoing),
                Via::Group => {
                    self.copy_to_lo(&slot[..len], outgoing);
                    return Some(outgoing);
                }
                Via::ThisHost if self.numbers.owns(transmit.dest_qpn) => {
                    self.loopback_queue.push_back((frame.to_vec(), outgoing));
                    if self.loopback_queue.len() >= MAX_LOCAL_FRAMES {
                        self.endpoint.suspend_transmit(LOOPBACK_QUEUE);
                    }
                }
                Via::ThisHost if self.lo_limits.is_some_and(|limits| fits(outgoing, limits)) => {
                    self.lo_queue.push_back((frame.to_vec(), outgoing));
                    if self.lo_queue.len() >= MAX_LOCAL_FRAMES {
                        self.endpoint.suspend_transmit(LO_QUEUE);
                    }
                }
                Via::ThisHost => self.drops.count("drop_no_loopback_interface"),
                Via::NoRoute => self.drops.count("drop_no_route"),
            }
        }
        None
    }

    /// Sends a frame to a multicast group to this host's members, too, this process's among them: the
    /// kernel does not pass them what leaves over the interface.
    #[cold]
    fn copy_to_lo(&mut self, frame: &[u8], outgoing: TxFrame) {
        if !self.lo_limits.is_some_and(|limits| fits(outgoing, limits)) {
            return self.drops.count("drop_no_loopback_interface");
        }
        if self.lo_queue.len() >= MAX_LOCAL_FRAMES {
            return self.drops.count("drop_no_room");
        }
        let mut copy = frame.to_vec();
        // As in all frames on `lo`: the kernel's own IP stack ignores them.
        copy[..MAC_ADDRESS].fill(0);
        copy[MAC_ADDRESS..MAC_ADDRESSES].copy_from_slice(&LO_SOURCE.0);
        self.lo_queue.push_back((copy, outgoing));
    }
}

#[inline]
fn fits(outgoing: TxFrame, limits: DeviceCapabilities) -> bool {
    outgoing.len <= limits.max_frame_len
}
