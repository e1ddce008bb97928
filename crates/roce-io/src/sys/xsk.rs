//! An AF_XDP socket: frames in memory shared with the kernel, and four rings that say whose they are.
//!
//! The memory has chunks of a page, which receive, and behind them slots of several chunks, which send.
//! What the kernel writes into a ring is checked before it is used.

mod ring;

use std::{
    collections::VecDeque,
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr, slice,
};

use socket2::{Domain, Type};

use self::ring::Ring;
use super::{prefetch::prefetch, shared_memory::SharedMemory, socket};

/// Bytes of a chunk: the kernel takes a page at most.
const CHUNK_LEN: usize = 4096;
/// Bytes of a line that is fetched before the next frame is looked at.
const PREFETCHED: usize = 512;
/// The step that fails with `ENOBUFS` if a process may not lock so much memory.
pub(crate) const LOCKING_MEMORY: &str = "registering memory for frames";
/// An address outside of the memory: the kernel skips what has it.
const NOWHERE: u64 = u64::MAX << 16;

/// What to open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XskConfig {
    /// Index of the interface.
    pub(crate) interface: u32,
    /// Its receive queue.
    pub(crate) queue: u32,
    /// Chunks that receive, a power of two.
    pub(crate) receive_chunks: u32,
    /// Slots that send.
    pub(crate) slots: u32,
    /// Bytes of the longest frame to send.
    pub(crate) max_frame_len: usize,
    /// Copy, even where the driver could do without.
    pub(crate) copies: bool,
}

impl XskConfig {
    /// Returns the bytes of memory that it locks.
    pub(crate) fn memory_len(&self) -> usize {
        self.receive_chunks as usize * CHUNK_LEN + self.slots as usize * self.slot_len()
    }

    fn slot_len(&self) -> usize {
        self.max_frame_len.next_multiple_of(CHUNK_LEN)
    }
}

/// An AF_XDP socket on a receive queue of an interface.
///
/// Invariants
/// 1. `memory` has `receive_chunks` chunks, and behind them `left.len()` slots of `slot_len` bytes, a
///    multiple of a chunk.
/// 2. A chunk that receives is the kernel's while its address is in the fill ring or in the kernel; it is
///    ours from when the receive ring names it until its address is written to the fill ring *and* that is
///    published, in [`give_back`](Self::give_back).
/// 3. A slot in `free` is ours. One with `left > 0` is the kernel's.
/// 4. No other code in this process accesses the mapping.
#[derive(Debug)]
pub(crate) struct Xsk {
    fd: socket::Socket,
    receive: Ring<libc::xdp_desc>,
    fill: Ring<u64>,
    send: Ring<libc::xdp_desc>,
    completions: Ring<u64>,
    memory: SharedMemory,
    receive_chunks: usize,
    slot_len: usize,
    /// A stack: the slot freed last is used first, while its cache lines are warm.
    free: Vec<u32>,
    /// Chunks of each slot that the kernel has not completed.
    left: Box<[u8]>,
    /// What is in the send ring, in order.
    in_ring: VecDeque<InRing>,
    /// Number of the first entry of `in_ring`.
    settled: u32,
    /// Frames among `in_ring`.
    unsent: usize,
    has_fragments: bool,
    is_zero_copy: bool,
    unusable: u64,
}

/// A frame in the send ring.
#[derive(Clone, Copy, Debug)]
struct InRing {
    /// `None`: it was taken back.
    slot: Option<u32>,
    entries: u32,
}

/// A part of a received frame, or all of it.
#[derive(Debug)]
pub(crate) struct Fragment<'a> {
    /// `None`: the kernel's lengths do not fit the memory.
    pub(crate) bytes: Option<&'a mut [u8]>,
    /// Another fragment of the frame follows.
    pub(crate) continues: bool,
}

impl Xsk {
    /// Opens a socket, and binds it to a receive queue.
    pub(crate) fn open(config: &XskConfig) -> Result<Self, (&'static str, io::Error)> {
        let at = |step| move |error| (step, error);
        let fd = socket::open(Domain::from(libc::AF_XDP), Type::RAW, None)
            .map_err(at("opening an AF_XDP socket"))?;
        let (slot_len, len) = (config.slot_len(), config.memory_len());
        let per_slot = slot_len / CHUNK_LEN;
        let receive_chunks = config.receive_chunks as usize;
        let memory = SharedMemory::map(len, libc::MAP_POPULATE, None)
            .map_err(at("allocating memory for frames"))?;
        let registration = libc::xdp_umem_reg {
            addr: memory.base().as_ptr() as u64,
            len: len as u64,
            chunk_size: CHUNK_LEN as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        let set = |name, value: u32| socket::set(fd.as_fd(), libc::SOL_XDP, name, &value);
        socket::set(fd.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)
            .map_err(at(LOCKING_MEMORY))?;
        let entries = (config.slots as usize * per_slot).next_power_of_two().max(2) as u32;
        for (name, entries) in [
            (libc::XDP_RX_RING, config.receive_chunks),
            (libc::XDP_UMEM_FILL_RING, config.receive_chunks),
            (libc::XDP_TX_RING, entries),
            (libc::XDP_UMEM_COMPLETION_RING, entries),
        ] {
            set(name, entries).map_err(at("making a ring"))?;
        }
        let offsets = offsets(fd.as_fd()).map_err(at("asking for the layout of the rings"))?;
        let mapped = at("mapping a ring");
        let of = fd.as_fd();
        let receive =
            Ring::map(of, &offsets.rx, config.receive_chunks, libc::XDP_PGOFF_RX_RING as u64);
        let fill =
            Ring::map(of, &offsets.fr, config.receive_chunks, libc::XDP_UMEM_PGOFF_FILL_RING);
        let send = Ring::map(of, &offsets.tx, entries, libc::XDP_PGOFF_TX_RING as u64);
        let completions = Ring::map(of, &offsets.cr, entries, libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        let (receive, fill) = (receive.map_err(mapped)?, fill.map_err(mapped)?);
        let (send, completions) = (send.map_err(mapped)?, completions.map_err(mapped)?);
        let mut this = Self {
            receive,
            fill,
            send,
            completions,
            memory,
            receive_chunks,
            slot_len,
            free: (0..config.slots).rev().collect(),
            left: vec![0; config.slots as usize].into(),
            in_ring: VecDeque::new(),
            settled: 0,
            unsent: 0,
            has_fragments: true,
            is_zero_copy: false,
            unusable: 0,
            fd,
        };
        for chunk in 0..receive_chunks {
            this.fill.write((chunk * CHUNK_LEN) as u64);
        }
        this.fill.publish();
        this.bind(config).map_err(at("binding an AF_XDP socket"))?;
        Ok(this)
    }

    fn bind(&mut self, config: &XskConfig) -> io::Result<()> {
        let copy = if config.copies { libc::XDP_COPY } else { 0 };
        let bind = |fragments| {
            let flags = libc::XDP_USE_NEED_WAKEUP | copy | fragments;
            socket::bind_xdp(self.fd.as_fd(), config.interface, config.queue, flags)
        };
        self.has_fragments = match bind(libc::XDP_USE_SG) {
            Ok(()) => true,
            // Kernels before 6.6 have no frames of several chunks.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => bind(0).map(|()| false)?,
            Err(error) => return Err(error),
        };
        let mut options = libc::xdp_options { flags: 0 };
        socket::get(self.fd.as_fd(), libc::SOL_XDP, libc::XDP_OPTIONS, &mut options)?;
        self.is_zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
        Ok(())
    }

    /// Returns true if frames may have several chunks.
    pub(crate) fn has_fragments(&self) -> bool {
        self.has_fragments
    }

    /// Returns the bytes of the longest frame that can be sent and received.
    pub(crate) fn max_frame_len(&self) -> usize {
        if self.has_fragments { self.slot_len } else { CHUNK_LEN - HEADROOM }
    }

    /// Returns true if the card reads and writes the frames where they are.
    pub(crate) fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Returns true if a frame waits.
    #[inline]
    pub(crate) fn has_frame(&self) -> bool {
        self.receive.has_entry()
    }

    /// Lends the next fragment of a frame. Its chunk goes back with [`give_back`](Self::give_back).
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Fragment<'_>> {
        let entry = self.receive.read()?;
        if let Some(next) = self.receive.look()
            && let Some((_, at, len)) = self.received(&next)
        {
            let len = len.min(PREFETCHED);
            // SAFETY: `received` has shown that the bytes lie inside the memory. Prefetching reads nothing.
            prefetch(unsafe { slice::from_raw_parts(self.memory.base().add(at).as_ptr(), len) });
        }
        let continues = entry.options & libc::XDP_PKT_CONTD != 0;
        let Some((chunk, at, len)) = self.received(&entry) else {
            self.unusable += 1;
            return Some(Fragment { bytes: None, continues });
        };
        // The kernel sees the address when it is published, which takes `&mut self`.
        self.fill.write((chunk * CHUNK_LEN) as u64);
        // SAFETY: invariants 1, 2 and 4: the bytes lie inside a chunk that is ours until `give_back`, which
        // takes `&mut self`, so that no reference to them is left.
        let bytes = unsafe { slice::from_raw_parts_mut(self.memory.base().add(at).as_ptr(), len) };
        Some(Fragment { bytes: Some(bytes), continues })
    }

    /// Returns chunk, place and length of what an entry describes, if that is inside a chunk that receives.
    #[inline]
    fn received(&self, entry: &libc::xdp_desc) -> Option<(usize, usize, usize)> {
        let (at, len) = (usize::try_from(entry.addr).ok()?, entry.len as usize);
        let chunk = at / CHUNK_LEN;
        (chunk < self.receive_chunks && at % CHUNK_LEN + len <= CHUNK_LEN)
            .then_some((chunk, at, len))
    }

    /// Gives the chunks of all fragments back to the kernel.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        self.receive.release();
        self.fill.publish();
        if self.fill.needs_wakeup() {
            // It waits for chunks, with a driver that takes them itself.
            let _empty = recv_nothing(self.fd.as_fd());
        }
    }

    /// Lends the slot that [`push`](Self::push) sends; `None` if none is free.
    pub(crate) fn slot(&mut self) -> Option<&mut [u8]> {
        let per_slot = (self.slot_len / CHUNK_LEN) as u32;
        let slot = *self.free.last().filter(|_| self.send.space() >= per_slot)?;
        let (at, len) = (self.place_of(slot), self.slot_len);
        // SAFETY: invariants 1, 3 and 4: the bytes are those of a slot that is ours until it is pushed, which
        // takes `&mut self`. The memory was zeroed, and only bytes were written to it.
        Some(unsafe { slice::from_raw_parts_mut(self.memory.base().add(at).as_ptr(), len) })
    }

    /// Puts the first `len` bytes of the slot lent last into the send ring, unless that is not possible. The
    /// kernel sees them with [`publish`](Self::publish).
    pub(crate) fn push(&mut self, len: usize) {
        if len == 0 || len > self.slot_len || self.slot().is_none() {
            return;
        }
        let Some(slot) = self.free.pop() else { return };
        let (mut at, mut rest) = (self.place_of(slot), len);
        let mut entries = 0;
        while rest > 0 {
            let part = rest.min(CHUNK_LEN);
            rest -= part;
            let options = if rest > 0 { libc::XDP_PKT_CONTD } else { 0 };
            self.send.write(libc::xdp_desc { addr: at as u64, len: part as u32, options });
            at += CHUNK_LEN;
            entries += 1;
        }
        self.left[slot as usize] = entries as u8;
        self.in_ring.push_back(InRing { slot: Some(slot), entries });
        self.unsent += 1;
    }

    /// Shows the kernel what was pushed.
    pub(crate) fn publish(&mut self) {
        self.send.publish();
    }

    /// Returns the number of frames in the ring that the kernel has not taken, as far as
    /// [`settle`](Self::settle) has seen.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent
    }

    /// Returns true if the kernel sends only when told to.
    pub(crate) fn needs_kick(&self) -> bool {
        self.send.needs_wakeup()
    }

    /// Tells the kernel to send.
    pub(crate) fn kick(&self) -> io::Result<()> {
        // SAFETY: `sendto` without a buffer and without an address.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_sendto,
                self.fd.as_raw_fd(),
                ptr::null::<u8>(),
                0,
                libc::MSG_DONTWAIT,
                ptr::null::<libc::sockaddr>(),
                0,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Notes which frames the kernel has taken from the ring; returns how many.
    pub(crate) fn settle(&mut self) -> usize {
        let mut read = self.send.read_by_kernel().wrapping_sub(self.settled);
        let mut taken = 0;
        while let Some(frame) = self.in_ring.front().copied()
            && frame.entries <= read
        {
            read -= frame.entries;
            self.settled = self.settled.wrapping_add(frame.entries);
            taken += usize::from(frame.slot.is_some());
            self.in_ring.pop_front();
        }
        self.unsent -= taken;
        taken
    }

    /// Takes the slots back that the kernel has done with.
    pub(crate) fn reap(&mut self) {
        let first = self.receive_chunks * CHUNK_LEN;
        while let Some(address) = self.completions.read() {
            let slot = usize::try_from(address).ok().and_then(|at| at.checked_sub(first));
            let Some(slot) = slot.map(|at| at / self.slot_len) else { continue };
            match self.left.get_mut(slot) {
                Some(left @ 1..) => {
                    *left -= 1;
                    if *left == 0 {
                        self.free.push(slot as u32);
                    }
                }
                // It was taken back, or there is none such.
                _ => self.unusable += 1,
            }
        }
        self.completions.release();
    }

    /// Takes the frames back that the kernel has not taken, but for the first `kept`, of which it has not told
    /// yet. Returns how many.
    pub(crate) fn take_back(&mut self, kept: usize) -> usize {
        let mut taken_back = 0;
        let mut at = self.settled;
        let mut seen = 0;
        for frame in &mut self.in_ring {
            let entries = at..at.wrapping_add(frame.entries);
            at = entries.end;
            let Some(slot) = frame.slot else { continue };
            seen += 1;
            if seen <= kept {
                continue;
            }
            // A driver that reads the memory itself may be at it; it completes them in the end.
            if !self.is_zero_copy {
                let mut index = entries.start;
                while index != entries.end {
                    let nothing = libc::xdp_desc { addr: NOWHERE, len: 0, options: 0 };
                    self.send.overwrite(index, nothing);
                    index = index.wrapping_add(1);
                }
                self.left[slot as usize] = 0;
                self.free.push(slot);
            }
            frame.slot = None;
            taken_back += 1;
        }
        self.unsent -= taken_back;
        taken_back
    }

    /// Returns how many frames the kernel has dropped for want of room, and how many of its entries were
    /// unusable.
    pub(crate) fn dropped(&self) -> (u64, u64) {
        // SAFETY: plain data, for which all zeros is a value.
        let mut statistics: libc::xdp_statistics = unsafe { mem::zeroed() };
        let read =
            socket::get(self.fd.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS, &mut statistics);
        match read {
            Ok(()) => (statistics.rx_dropped + statistics.rx_ring_full, self.unusable),
            Err(_) => (0, self.unusable),
        }
    }

    fn place_of(&self, slot: u32) -> usize {
        self.receive_chunks * CHUNK_LEN + slot as usize * self.slot_len
    }
}

impl AsFd for Xsk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Bytes that the kernel keeps free at the begin of a chunk that receives.
const HEADROOM: usize = 256;

fn offsets(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: plain data, for which all zeros is a value.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { mem::zeroed() };
    socket::get(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    Ok(offsets)
}

/// Receives nothing: it wakes the driver.
fn recv_nothing(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: `recvfrom` without a buffer and without an address.
    let received = unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    if received < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
