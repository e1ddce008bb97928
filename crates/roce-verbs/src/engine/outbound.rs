//! Frames that go out: built by the endpoint, sealed, and put where they leave.

use std::collections::{BTreeMap, VecDeque};

use roce_io::{DeviceCapabilities, TxFrame};
use roce_transport::{Endpoint, Instant, TransmitLimits, TransmitQueue};

use crate::frame_sealer::FrameSealer;
use crate::lease::QpnLease;
use crate::memory::RegionTable;
use crate::path::Via;
use crate::trace::Watcher;

/// Frames sent in one round.
pub(super) const TRANSMIT_BUDGET: usize = 32;
/// Frames for this engine, and frames for other processes of this host, that may wait to be
/// delivered.
pub(super) const LOCAL_QUEUE: usize = 16;
/// The largest set of outer headers: Ethernet with a VLAN tag, IPv6, UDP.
const MOST_HEADROOM: usize = 66;

/// The slots of the interface. Each of the three queues may be full, and then stops the queue
/// pairs whose packets leave through it, but none of the others.
pub(crate) const TO_WIRE: TransmitQueue = TransmitQueue(0);
/// Frames from this engine to itself.
pub(crate) const TO_SELF: TransmitQueue = TransmitQueue(1);
/// Frames for other processes of this host.
pub(crate) const TO_LO: TransmitQueue = TransmitQueue(2);

/// A frame for an address of this host.
pub(super) type LocalFrame = (Vec<u8>, TxFrame);

/// The way of packets from the endpoint to a transmit queue.
pub(super) struct Outbound<'a> {
    pub(super) now: Instant,
    pub(super) limits: TransmitLimits,
    /// `None` where there is no `lo`.
    pub(super) lo_limits: Option<DeviceCapabilities>,
    pub(super) endpoint: &'a mut Endpoint<Watcher>,
    pub(super) memory: &'a mut RegionTable,
    pub(super) sealer: FrameSealer<'a>,
    pub(super) lease: &'a QpnLease,
    pub(super) drops: &'a mut BTreeMap<&'static str, u64>,
    pub(super) to_self: &'a mut VecDeque<LocalFrame>,
    pub(super) to_lo: &'a mut VecDeque<LocalFrame>,
    /// Where the last frame's transport header began: the best guess for the next one.
    pub(super) headroom: &'a mut usize,
    pub(super) acks_follow: &'a mut bool,
    /// Frames of this round.
    pub(super) sent: &'a mut usize,
}

impl Outbound<'_> {
    /// Writes the next frame for the interface into `slot`, if there is one. Frames for this host
    /// are built there too, and put into their queues.
    pub(super) fn next_frame(&mut self, slot: &mut [u8]) -> Option<TxFrame> {
        // Whoever sent one message has nothing more to send.
        let is_over = *self.sent > 0 && !self.endpoint.may_transmit() && !*self.acks_follow;
        while !is_over && *self.sent < TRANSMIT_BUDGET {
            let guess = *self.headroom;
            // Should the guess be wrong, the longest train has room behind longer headers, too.
            let end = (slot.len() + guess).saturating_sub(MOST_HEADROOM).min(slot.len());
            let buf = &mut slot[guess..end];
            let (now, limits, sealer) = (self.now, self.limits, &mut self.sealer);
            let next = self.endpoint.poll_transmit_sealed(now, self.memory, limits, buf, sealer);
            if next.is_none() && std::mem::take(self.acks_follow) {
                self.endpoint.hold_acks(false);
                continue;
            }
            let transmit = next?;
            *self.sent += 1;
            let Some(entry) = sealer.way() else {
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
                Via::ThisHost if self.lease.owns(transmit.dest_qpn) => {
                    self.to_self.push_back((frame.to_vec(), outgoing));
                    if self.to_self.len() >= LOCAL_QUEUE {
                        self.endpoint.suspend_transmit(TO_SELF);
                    }
                }
                Via::ThisHost if self.lo_limits.is_some_and(|limits| fits(outgoing, limits)) => {
                    self.to_lo.push_back((frame.to_vec(), outgoing));
                    if self.to_lo.len() >= LOCAL_QUEUE {
                        self.endpoint.suspend_transmit(TO_LO);
                    }
                }
                Via::ThisHost => self.drop_for("drop_no_loopback_interface"),
                Via::Nowhere => self.drop_for("drop_no_route"),
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
