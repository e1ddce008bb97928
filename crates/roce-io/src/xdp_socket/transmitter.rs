//! Sends frames through an AF_XDP socket: slots are filled, shown to the kernel in batches, and kept while its
//! queues are full, within the bounds of [`Stall`].
//!
//! It is no [`Kernel`](crate::transmitter::Kernel): the slots are memory of the socket and free only once
//! a ring returns them, and a call of the kernel tells an error although it has taken frames, so that how
//! many it took is read from the ring.

use std::{io, os::fd::BorrowedFd, time::Instant};

use crate::{
    device::{DeviceCapabilities, TxFrame},
    error::DeviceError,
    send_counts::{SendCounts, is_full, is_lost},
    stall::{Stall, Verdict},
    sys::{self, xsk::Xsk},
    vnet_hdr,
};

/// What was sent, and what became of the rest.
#[derive(Debug, Default)]
pub(super) struct Transmitter {
    stall: Stall,
    /// The kernel has refused frames, which wait.
    waits: bool,
    /// Frames that the kernel has dropped, of which the ring does not tell yet that they are taken.
    dropped_untold: usize,
    /// The interface was down when frames were sent last.
    is_down: bool,
    /// It still is, as [`flush`](Self::flush) tells.
    down_error: Option<io::Error>,
    /// Frames that the kernel has taken, and those of them that it has dropped.
    taken: u64,
    dropped: u64,
    counts: SendCounts,
}

/// Frames of a full batch: as many as the kernel sends in one call.
const MAX_BATCH: usize = 32;
/// Calls without a result before frames are left in the ring. The kernel tells of what it has skipped with the
/// next call only.
const MAX_IDLE_KICKS: u32 = 3;
/// Calls of one flush: each takes a frame at least, or is idle.
const MAX_KICKS: u32 = 4096;

/// An interface, and any socket of its network namespace.
pub(super) type Queried<'a> = (&'a str, BorrowedFd<'a>);

impl Transmitter {
    /// Lends free slots to `fill` until it returns `None`, none is free, the batch is full, or the frame may
    /// not be sent.
    pub(super) fn fill(
        &mut self,
        socket: &mut Xsk,
        capabilities: &DeviceCapabilities,
        interface: &str,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> Result<(), DeviceError> {
        socket.reap();
        if socket.slot().is_none() {
            // What was taken back is in the ring until the kernel has looked at it, and told so.
            for _ in 0..2 {
                let _outcome = socket.kick();
            }
            socket.settle();
            socket.reap();
        }
        for _ in 0..MAX_BATCH {
            let Some(slot) = socket.slot() else { break };
            let Some(tx_frame) = fill(slot) else { break };
            vnet_hdr::check(slot, &tx_frame, capabilities, interface)
                .inspect_err(|error| self.counts.note_bad(error))?;
            if tx_frame.segment_len.is_some() {
                // A train of one packet. No kernel completes its checksum, and RoCE needs none.
                slot[tx_frame.headers_len - 2..tx_frame.headers_len].fill(0);
            }
            if self.is_down {
                // The ring would fill with frames that are stale when the interface is up.
                if let Err(error) = socket.kick() {
                    self.counts.note_lost(&error, 1);
                    self.down_error = Some(error);
                    continue;
                }
                self.is_down = false;
            }
            socket.push(tx_frame.len);
        }
        socket.publish();
        Ok(())
    }

    /// Makes the kernel send what is in the ring; returns how many frames it took.
    pub(super) fn flush(&mut self, socket: &mut Xsk, interface: Queried<'_>) -> io::Result<usize> {
        let (mut sent, mut idle) = (0, 0);
        self.waits = false;
        if let Some(error) = self.down_error.take() {
            return Err(error);
        }
        for _ in 0..MAX_KICKS {
            if socket.unsent() == 0 || socket.is_zero_copy() && !socket.needs_kick() {
                break;
            }
            let outcome = socket.kick();
            let taken = socket.settle();
            if taken > 0 {
                sent += taken;
                self.taken += taken as u64;
                self.dropped_untold = 0;
                self.stall.on_taken();
            }
            socket.reap();
            match outcome {
                Ok(()) if socket.is_zero_copy() => break,
                Ok(()) => {}
                // It took one, and dropped it: the interface has no carrier, or no room.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    self.dropped_untold += usize::from(taken == 0);
                    if is_running(interface) {
                        self.dropped += 1;
                        continue;
                    }
                    self.counts.no_carrier += 1 + self.take_back(socket);
                    break;
                }
                // EAGAIN: a batch is over, or the socket's buffer is full.
                Err(error) if is_full(&error) => {}
                Err(error) if is_lost(&error) => {
                    let left = self.take_back(socket);
                    self.counts.note_lost(&error, left);
                    self.is_down = true;
                    return Err(error);
                }
                Err(error) => {
                    self.counts.refused += self.take_back(socket);
                    return Err(error);
                }
            }
            idle = if taken > 0 { 0 } else { idle + 1 };
            if idle >= MAX_IDLE_KICKS {
                self.counts.queue_full += 1;
                self.on_queue_full(socket, interface);
                break;
            }
        }
        Ok(sent)
    }

    /// Keeps or drops the frames that the kernel does not take.
    fn on_queue_full(&mut self, socket: &mut Xsk, interface: Queried<'_>) {
        match self.stall.on_refused(Instant::now(), is_running(interface)) {
            Verdict::Keep => self.waits = true,
            Verdict::DropWithoutCarrier => self.counts.no_carrier += self.take_back(socket),
            Verdict::DropStalled => self.counts.stalled += self.take_back(socket),
        }
    }

    /// Takes back what the kernel has not taken.
    fn take_back(&mut self, socket: &mut Xsk) -> u64 {
        socket.take_back(self.dropped_untold) as u64
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.waits
    }

    /// Returns when to offer refused frames again.
    pub(super) fn next_attempt(&self) -> Option<Instant> {
        self.stall.next_attempt().filter(|_| self.has_unsent())
    }

    pub(super) fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let own = [("xdp_sent_frames", self.taken), ("socket_sent_dropped", self.dropped)];
        own.into_iter().chain(self.counts.counters())
    }
}

/// Returns true unless the flags of an interface say that it has no carrier.
fn is_running((name, any_socket): Queried<'_>) -> bool {
    sys::interface::is_running(any_socket, name).unwrap_or(true)
}
