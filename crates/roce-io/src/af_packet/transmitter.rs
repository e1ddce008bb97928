//! Sends frames: slots are filled, handed to the kernel in batches, and kept while its queues are
//! full, within the bounds of [`Stall`].

use std::{collections::VecDeque, io, os::fd::BorrowedFd, time::Instant};

use crate::{
    device::{DeviceCapabilities, TxFrame},
    error::DeviceError,
    stall::{Stall, Verdict},
    sys::{self, mmsg},
    vnet_hdr::{self, HEADER_LEN, MAX_FRAME_LEN},
};

/// Every slot is either free or ready.
#[derive(Debug)]
pub(super) struct Transmitter {
    slots: Vec<Vec<u8>>,
    /// A stack: the slot freed last is reused first, while its cache lines are warm.
    free: Vec<usize>,
    /// In sending order.
    ready: VecDeque<Ready>,
    /// The socket bypasses the queueing discipline.
    bypass: bool,
    stall: Stall,
    counts: Counts,
}

#[derive(Clone, Copy, Debug)]
struct Ready {
    slot: usize,
    len: usize,
    is_train: bool,
}

#[derive(Debug, Default)]
struct Counts {
    queue_full: u64,
    too_long: u64,
    refused: u64,
    no_carrier: u64,
    stalled: u64,
    down: u64,
    gone: u64,
}

impl Transmitter {
    pub(super) fn new(slots: usize, bypass: bool) -> Self {
        Self {
            slots: vec![vec![0; FRAME_AT + MAX_FRAME_LEN]; slots],
            free: (0..slots).collect(),
            ready: VecDeque::with_capacity(slots),
            bypass,
            stall: Stall::default(),
            counts: Counts::default(),
        }
    }

    /// Lends free slots to `fill` until it returns `None`, none is free, the batch is full, or the
    /// frame may not be sent.
    pub(super) fn fill(
        &mut self,
        capabilities: &DeviceCapabilities,
        interface: &str,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> Result<(), DeviceError> {
        let mut staged = 0;
        while let Some(&slot) = self.free.last().filter(|_| staged < MAX_BATCH_LEN) {
            let buffer = &mut self.slots[slot];
            let Some(tx_frame) = fill(&mut buffer[FRAME_AT..]) else { break };
            if let Err(error) =
                vnet_hdr::check(&buffer[FRAME_AT..], &tx_frame, capabilities, interface)
            {
                match error {
                    DeviceError::SegmentTooLong { .. } => self.counts.too_long += 1,
                    _ => self.counts.refused += 1,
                }
                return Err(error);
            }
            buffer[FRAME_AT - HEADER_LEN..FRAME_AT]
                .copy_from_slice(&vnet_hdr::tx_header(&tx_frame));
            self.free.pop();
            staged += tx_frame.len;
            let is_train = tx_frame.segment_len.is_some();
            self.ready.push_back(Ready { slot, len: tx_frame.len, is_train });
        }
        Ok(())
    }

    /// Hands the ready frames to the kernel; returns how many it took. Reads the clock only if the
    /// kernel refuses a frame.
    pub(super) fn flush(
        &mut self,
        socket: BorrowedFd<'_>,
        interface: &str,
        clock: fn() -> Instant,
    ) -> io::Result<usize> {
        let (mut sent, mut down_before, mut refusal) = (0, false, None);
        while !self.ready.is_empty() {
            match self.send(socket, self.ready.len()) {
                Ok(count) => sent += count,
                Err(error) => match error.raw_os_error() {
                    // EAGAIN: the socket's buffer is full; ENOBUFS: the interface's queue is full,
                    // or it has no carrier yet.
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => {
                        if self.send_train_without_bypass(socket, interface) {
                            sent += 1;
                            continue;
                        }
                        self.counts.queue_full += 1;
                        self.on_queue_full(socket, interface, clock());
                        break;
                    }
                    // It may be a pending error from when the interface was down.
                    Some(libc::ENETDOWN) if !down_before => down_before = true,
                    code @ Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                        self.drop_ready(|counts| match code {
                            Some(libc::ENETDOWN) => &mut counts.down,
                            _ => &mut counts.gone,
                        });
                        return Err(error);
                    }
                    // The kernel refuses the first frame only.
                    code => {
                        match code {
                            Some(libc::EMSGSIZE) => self.counts.too_long += 1,
                            _ => self.counts.refused += 1,
                        }
                        self.release(1);
                        refusal = Some(error);
                    }
                },
            }
        }
        refusal.map_or(Ok(sent), Err)
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns when to offer refused frames again.
    pub(super) fn next_attempt(&self) -> Option<Instant> {
        self.stall.next_attempt().filter(|_| self.has_unsent())
    }

    pub(super) fn counters(&self) -> [(&'static str, u64); 7] {
        let Counts { queue_full, too_long, refused, no_carrier, stalled, down, gone } = self.counts;
        [
            ("socket_sent_queue_full", queue_full),
            ("socket_sent_too_long", too_long),
            ("socket_sent_refused", refused),
            ("socket_sent_no_carrier", no_carrier),
            ("socket_sent_stalled", stalled),
            ("socket_sent_down", down),
            ("socket_sent_gone", gone),
        ]
    }

    /// Keeps or drops the frames that the kernel refused because a queue is full.
    fn on_queue_full(&mut self, socket: BorrowedFd<'_>, interface: &str, now: Instant) {
        // If the query fails, the time limit alone decides.
        let has_carrier = sys::interface::is_running(socket, interface).unwrap_or(true);
        match self.stall.on_refused(now, has_carrier) {
            Verdict::Keep => {}
            Verdict::DropWithoutCarrier => self.drop_ready(|counts| &mut counts.no_carrier),
            Verdict::DropStalled => self.drop_ready(|counts| &mut counts.stalled),
        }
    }

    /// Drops all ready frames, under one counter.
    fn drop_ready(&mut self, counter: impl Fn(&mut Counts) -> &mut u64) {
        *counter(&mut self.counts) += self.ready.len() as u64;
        self.release(self.ready.len());
    }

    /// Sends the first train through the queueing discipline if the bypass may be why it was
    /// refused, and ends the bypass if that succeeds. On an interface that does not take trains
    /// whole (such as a tap) the kernel segments only there; with the bypass it reports a full
    /// queue.
    fn send_train_without_bypass(&mut self, socket: BorrowedFd<'_>, interface: &str) -> bool {
        let set_bypass = |on: bool| {
            let name = libc::PACKET_QDISC_BYPASS;
            sys::socket::set_int(socket, libc::SOL_PACKET, name, on.into()).is_ok()
        };
        // Without a carrier the queueing discipline would accept every frame and drop it. The
        // second query takes the kernel's lock on all interfaces, so it comes last.
        let has_carrier = || {
            sys::interface::is_running(socket, interface).unwrap_or(true)
                && sys::interface::has_carrier(socket, interface).unwrap_or(true)
        };
        let is_train = self.ready.front().is_some_and(|ready| ready.is_train);
        if !(self.bypass && is_train && has_carrier() && set_bypass(false)) {
            return false;
        }
        let is_sent = self.send(socket, 1).is_ok();
        self.bypass = !is_sent && set_bypass(true);
        is_sent
    }

    /// Hands at least one of the first `count` frames to the kernel, or returns its error.
    fn send(&mut self, socket: BorrowedFd<'_>, count: usize) -> io::Result<usize> {
        let mut frames = self
            .ready
            .iter()
            .take(count)
            .map(|ready| &self.slots[ready.slot][FRAME_AT - HEADER_LEN..FRAME_AT + ready.len]);
        let sent = match (count, frames.next()) {
            (1, Some(frame)) => mmsg::send_one(socket, frame).map(|()| 1)?,
            (_, first) => mmsg::send(socket, first.into_iter().chain(frames))?,
        };
        self.stall.on_taken();
        self.release(sent);
        Ok(sent)
    }

    fn release(&mut self, count: usize) {
        self.free.extend(self.ready.drain(..count).map(|ready| ready.slot));
    }
}

/// Bytes of a full batch: two trains. Larger batches save little and make the receiver idle, then
/// fall behind: between two namespaces, at path MTU 1024, READs of 1 MiB ran at 25 Gbit/s with
/// eight trains a batch and at 36 Gbit/s with two.
const MAX_BATCH_LEN: usize = 96 << 10;

/// Offset of the frame in its slot: aligned, with the virtio header directly before it.
const FRAME_AT: usize = 16;
