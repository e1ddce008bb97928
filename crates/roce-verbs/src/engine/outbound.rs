//! Frames that go out: built by the endpoint, sealed, and put where they leave.

use std::collections::{BTreeMap, VecDeque};

use roce_io::{DeviceCapabilities, TxFrame};
use roce_transport::{Endpoint, Instant, TransmitLimits, TransmitQueue};

use crate::frame_sealer::FrameSealer;
use crate::memory::MrTable;
use crate::path::Via;
use crate::qpn_allocator::QpnAllocator;
use crate::trace::TraceObserver;

/// Frames sent in one round.
pub(super) const TRANSMIT_BUDGET: usize = 32;
/// Frames for this engine, and frames for other processes of this host, that may wait to be
/// delivered.
pub(super) const MAX_LOCAL_FRAMES: usize = 16;
/// The largest set of outer headers: Ethernet with a VLAN tag, IPv6, UDP.
const MAX_HEADROOM: usize = 66;

/// The slots of the interface. Each of the three queues may be full, and then stops the queue
/// pairs whose packets leave through it, but none of the others.
pub(crate) const WIRE_QUEUE: TransmitQueue = TransmitQueue(0);
/// Frames from this engine to itself.
pub(crate) const LOOPBACK_QUEUE: TransmitQueue = TransmitQueue(1);
/// Frames for other processes of this host.
pub(crate) const LO_QUEUE: TransmitQueue = TransmitQueue(2);

/// A frame for an address of this host.
pub(super) type LocalFrame = (Vec<u8>, TxFrame);

/// The way of packets from the endpoint to a transmit queue.
pub(super) struct Outbound<'a> {
    pub(super) now: Instant,
    pub(super) limits: TransmitLimits,
    /// `None` where there is no `lo`.
    pub(super) lo_limits: Option<DeviceCapabilities>,
    pub(super) endpoint: &'a mut Endpoint<TraceObserver>,
    pub(super) memory: &'a mut MrTable,
    pub(super) sealer: FrameSealer<'a>,
    pub(super) qpns: &'a QpnAllocator,
    pub(super) drops: &'a mut BTreeMap<&'static str, u64>,
    pub(super) loopback_queue: &'a mut VecDeque<LocalFrame>,
    pub(super) lo_queue: &'a mut VecDeque<LocalFrame>,
    /// Where the last frame's transport header began: the best guess for the next one.
    pub(super) headroom: &'a mut usize,
    pub(super) acks_after_send: &'a mut bool,
    /// Frames of this round.
    pub(super) sent: &'a mut usize,
}

impl Outbound<'_> {
    /// Writes the next frame for the interface into `slot`, if there is one. Frames for this host
    /// are built there too, and put into their queues.
    pub(super) fn next_frame(&mut self, slot: &mut [u8]) -> Option<TxFrame> {
        // Whoever sent one message has nothing more to send.
        let is_over =
            *self.sent > 0 && !self.endpoint.has_pending_transmit() && !*self.acks_after_send;
        while !is_over && *self.sent < TRANSMIT_BUDGET {
            let guess = *self.headroom;
            // Should the guess be wrong, the longest train has room behind longer headers, too.
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
                // The queue pair keeps its path alive, so this cannot be; a packet without a way
                // is lost, and the protocol recovers from loss.
                self.drop_for("drop_no_path");
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
                self.drop_for("drop_unsealable");
                continue;
            }
            let outgoing = if transmit.packets > 1 {
                TxFrame::train(len, start, transmit.segment_len)
            } else {
                TxFrame::single(len)
            };
            match entry.via {
                Via::Interface => return Some(outgoing),
                Via::ThisHost if self.qpns.owns(transmit.dest_qpn) => {
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
                Via::ThisHost => self.drop_for("drop_no_loopback_interface"),
                Via::NoRoute => self.drop_for("drop_no_route"),
            }
        }
        None
    }

    fn drop_for(&mut self, why: &'static str) {
        *self.drops.entry(why).or_default() += 1;
    }
}

fn fits(outgoing: TxFrame, limits: DeviceCapabilities) -> bool {
    outgoing.len <= limits.max_frame_len
}
