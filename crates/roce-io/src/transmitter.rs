//! Sends frames: slots are filled, handed to the kernel in batches, and kept while its queues are
//! full, within the bounds of [`Stall`].

use std::{collections::VecDeque, io, os::fd::BorrowedFd, time::Instant};

use crate::{
    device::{DeviceCapabilities, TxFrame},
    error::DeviceError,
    interface_errors::explain_refusal,
    interfaces::InterfaceInfo,
    send_counts::{SendCounts, is_full, is_lost},
    stall::{Stall, Verdict},
    vnet_hdr::{self, MAX_FRAME_LEN},
};

/// What hands frames to the kernel: a socket, or several.
pub(crate) trait Kernel {
    /// What is known of a frame that is ready, beside its length.
    type Note: Copy;

    /// Offset of the frame in its slot.
    const FRAME_AT: usize;

    /// Prepares the slot of a frame that was checked. Returns `None` for a frame that is left out.
    ///
    /// # Errors
    /// The frame may not be sent in this way.
    fn prepare(&self, slot: &mut [u8], frame: &TxFrame) -> Result<Option<Self::Note>, DeviceError>;

    /// Hands at least one of the first frames to the kernel and returns how many, or its error.
    fn send(&mut self, ready: &ReadyFrames<Self::Note>) -> io::Result<usize>;

    /// Says what to do about a queue without room.
    fn on_full(&mut self, ready: &ReadyFrames<Self::Note>) -> Full;
}

/// What to do about a queue without room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// So many frames were sent in another way.
    Sent(usize),
    /// The frames wait, unless the interface has no carrier.
    Waits { has_carrier: bool },
}

/// The slots, and which of them are ready.
#[derive(Debug)]
pub(crate) struct ReadyFrames<N> {
    slots: Vec<Vec<u8>>,
    /// In sending order.
    ready: VecDeque<Ready<N>>,
}

#[derive(Clone, Copy, Debug)]
struct Ready<N> {
    slot: usize,
    len: usize,
    note: N,
}

impl<N> ReadyFrames<N> {
    /// Returns the slots of the ready frames in sending order, the frames' lengths, and what is known of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], usize, &N)> {
        self.ready.iter().map(|it| (&self.slots[it.slot][..], it.len, &it.note))
    }

    pub(crate) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Returns what is known of the first frame.
    pub(crate) fn first(&self) -> Option<&N> {
        self.ready.front().map(|ready| &ready.note)
    }
}

/// Every slot is either free or ready.
#[derive(Debug)]
pub(crate) struct Transmitter<N> {
    frames: ReadyFrames<N>,
    /// A stack: the slot freed last is reused first, while its cache lines are warm.
    free: Vec<usize>,
    stall: Stall,
    counts: SendCounts,
}

impl<N: Copy> Transmitter<N> {
    /// Makes one with slots for the frames of a kind of kernel.
    pub(crate) fn new<K: Kernel<Note = N>>(slots: usize) -> Self {
        Self {
            frames: ReadyFrames {
                slots: vec![vec![0; K::FRAME_AT + MAX_FRAME_LEN]; slots],
                ready: VecDeque::with_capacity(slots),
            },
            free: (0..slots).collect(),
            stall: Stall::default(),
            counts: SendCounts::default(),
        }
    }

    /// Fills free slots, and hands all ready frames to the kernel; returns how many it took. Frames that
    /// the kernel refused wait for their time.
    pub(crate) fn transmit<K: Kernel<Note = N>>(
        &mut self,
        kernel: &mut K,
        device: (&InterfaceInfo, BorrowedFd<'_>),
        capabilities: &mut DeviceCapabilities,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        if self.next_attempt().is_some_and(|at| Instant::now() < at) {
            return Ok(0);
        }
        let refused = self.fill(kernel, capabilities, &device.0.name, fill).err();
        match self.flush(kernel) {
            Ok(sent) => refused.map_or(Ok(sent), |error| Err(error.into())),
            Err(error) => Err(explain_refusal(error, device, capabilities)),
        }
    }

    /// Lends free slots to `fill` until it returns `None`, none is free, the batch is full, or the
    /// frame may not be sent.
    fn fill<K: Kernel<Note = N>>(
        &mut self,
        kernel: &K,
        capabilities: &DeviceCapabilities,
        interface: &str,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> Result<(), DeviceError> {
        let mut staged = 0;
        while let Some(&slot) = self.free.last().filter(|_| staged < MAX_BATCH_LEN) {
            let buffer = &mut self.frames.slots[slot];
            let Some(tx_frame) = fill(&mut buffer[K::FRAME_AT..]) else { break };
            let note = vnet_hdr::check(&buffer[K::FRAME_AT..], &tx_frame, capabilities, interface)
                .map(|_frame| ())
                .and_then(|()| kernel.prepare(buffer, &tx_frame))
                .inspect_err(|error| self.counts.note_bad(error))?;
            staged += tx_frame.len;
            let Some(note) = note else { continue };
            self.free.pop();
            self.frames.ready.push_back(Ready { slot, len: tx_frame.len, note });
        }
        Ok(())
    }

    /// Hands the ready frames to the kernel; returns how many it took. Reads the clock only if the
    /// kernel refuses a frame.
    fn flush<K: Kernel<Note = N>>(&mut self, kernel: &mut K) -> io::Result<usize> {
        let (mut sent, mut down_before, mut refusal) = (0, false, None);
        while self.has_unsent() {
            match kernel.send(&self.frames) {
                Ok(count) => sent += self.on_taken(count),
                Err(error) if is_full(&error) => match kernel.on_full(&self.frames) {
                    Full::Sent(count) => sent += self.on_taken(count),
                    Full::Waits { has_carrier } => {
                        self.on_full(Instant::now(), has_carrier);
                        break;
                    }
                },
                // It may be a pending error from when the interface was down.
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) && !down_before => {
                    down_before = true;
                }
                Err(error) if is_lost(&error) => {
                    let dropped = self.drop_ready();
                    self.counts.note_lost(&error, dropped);
                    return Err(error);
                }
                // The kernel refuses the first frame only.
                Err(error) => {
                    self.counts.note_refused(&error);
                    self.release(1);
                    refusal = Some(error);
                }
            }
        }
        refusal.map_or(Ok(sent), Err)
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.frames.ready.is_empty()
    }

    /// Returns when to offer refused frames again.
    pub(crate) fn next_attempt(&self) -> Option<Instant> {
        self.stall.next_attempt().filter(|_| self.has_unsent())
    }

    pub(crate) fn counters(&self) -> [(&'static str, u64); 7] {
        self.counts.counters()
    }

    fn on_taken(&mut self, count: usize) -> usize {
        self.stall.on_taken();
        self.release(count);
        count
    }

    /// Keeps or drops the frames that the kernel refused because a queue is full.
    fn on_full(&mut self, now: Instant, has_carrier: bool) {
        self.counts.queue_full += 1;
        match self.stall.on_refused(now, has_carrier) {
            Verdict::Keep => {}
            Verdict::DropWithoutCarrier => self.counts.no_carrier += self.drop_ready(),
            Verdict::DropStalled => self.counts.stalled += self.drop_ready(),
        }
    }

    /// Drops all ready frames, and returns how many.
    fn drop_ready(&mut self) -> u64 {
        let count = self.frames.len();
        self.release(count);
        count as u64
    }

    fn release(&mut self, count: usize) {
        self.free.extend(self.frames.ready.drain(..count).map(|ready| ready.slot));
    }
}

/// Bytes of a full batch: two trains. Larger batches save little and make the receiver idle, then
/// fall behind: between two namespaces, at path MTU 1024, READs of 1 MiB ran at 25 Gbit/s with
/// eight trains a batch and at 36 Gbit/s with two.
const MAX_BATCH_LEN: usize = 96 << 10;
