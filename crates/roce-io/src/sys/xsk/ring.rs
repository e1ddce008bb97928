//! Rings of entries that this process and the kernel pass to each other.

use std::{
    io,
    marker::PhantomData,
    mem::size_of,
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use super::super::shared_memory::SharedMemory;

/// A ring. This process either writes entries, or reads them.
///
/// Invariants
/// 1. `producer`, `consumer` and `flags` point to aligned words inside the mapping, `entries` to `len` aligned
///    entries inside it.
/// 2. `len` is a power of two.
/// 3. The kernel reads no entry before it is published, and writes none before it is released.
#[derive(Debug)]
pub(super) struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    len: u32,
    /// Entries that this process has written, or read, since the begin.
    own: u32,
    /// Entries that the kernel has written, as far as this process has looked; for rings that it reads.
    seen: u32,
    _mapping: SharedMemory,
    _entries: PhantomData<T>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and this value is its only user.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps a ring of a socket, with as many entries as it was made with.
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        offsets: &libc::xdp_ring_offset,
        len: u32,
        page_offset: u64,
    ) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let place = |offset: u64| usize::try_from(offset).ok().filter(|it| *it < MAX_OFFSET);
        let (Some(entries_at), true) = (place(offsets.desc), len.is_power_of_two()) else {
            return Err(invalid());
        };
        let mapped = entries_at + len as usize * size_of::<T>();
        let mapping = SharedMemory::map(mapped, libc::MAP_POPULATE, Some((fd, page_offset)))?;
        let word = |offset: u64| {
            let at = place(offset).filter(|at| at % 4 == 0 && at + 4 <= mapped)?;
            // SAFETY: the word lies inside the mapping.
            Some(unsafe { mapping.base().add(at) }.cast::<AtomicU32>())
        };
        let words = [offsets.producer, offsets.consumer, offsets.flags].map(word);
        let [Some(producer), Some(consumer), Some(flags)] = words else { return Err(invalid()) };
        if entries_at % align_of::<T>() != 0 {
            return Err(invalid());
        }
        // SAFETY: the entries lie inside the mapping, whose length follows from them.
        let entries = unsafe { mapping.base().add(entries_at) }.cast();
        let (own, seen) = (0, 0);
        Ok(Self {
            producer,
            consumer,
            flags,
            entries,
            len,
            own,
            seen,
            _mapping: mapping,
            _entries: PhantomData,
        })
    }

    /// Returns true if an entry waits to be read.
    #[inline]
    pub(super) fn has_entry(&self) -> bool {
        self.seen != self.own || self.of(self.producer).load(Ordering::Acquire) != self.own
    }

    /// Reads the next entry.
    #[inline]
    pub(super) fn read(&mut self) -> Option<T> {
        if self.seen == self.own {
            // Acquire pairs with the kernel's barrier between writing entries and their number.
            self.seen = self.of(self.producer).load(Ordering::Acquire);
        }
        let entry = self.look()?;
        self.own = self.own.wrapping_add(1);
        Some(entry)
    }

    /// Returns the next entry, as far as this process has looked, without reading it.
    #[inline]
    pub(super) fn look(&self) -> Option<T> {
        // SAFETY: invariants 1 and 3: the entry is one that the kernel has written. Entries are numbers, for
        // which all bytes are values.
        (self.seen != self.own).then(|| unsafe { self.entry(self.own).read() })
    }

    /// Gives the entries that were read back to the kernel.
    #[inline]
    pub(super) fn release(&mut self) {
        self.of(self.consumer).store(self.own, Ordering::Release);
    }

    /// Returns the number of entries that can be written.
    #[inline]
    pub(super) fn space(&self) -> u32 {
        self.len - self.unread()
    }

    /// Returns the number of entries that the kernel has read, wrapping: none beyond those written.
    #[inline]
    pub(super) fn read_by_kernel(&self) -> u32 {
        self.own.wrapping_sub(self.unread())
    }

    #[inline]
    fn unread(&self) -> u32 {
        let unread = self.own.wrapping_sub(self.of(self.consumer).load(Ordering::Acquire));
        unread.min(self.len)
    }

    /// Writes an entry, which the kernel sees when it is published. Does nothing if there is no space.
    #[inline]
    pub(super) fn write(&mut self, entry: T) {
        if self.space() > 0 {
            // SAFETY: invariants 1 and 3: the kernel has read what was there.
            unsafe { self.entry(self.own).write(entry) };
            self.own = self.own.wrapping_add(1);
        }
    }

    /// Replaces an entry that was written, and that the kernel may not be reading.
    pub(super) fn overwrite(&mut self, index: u32, entry: T) {
        // SAFETY: invariant 1. The kernel reads entries only in calls of this process, which has this value
        // to itself.
        unsafe { self.entry(index).write(entry) };
    }

    /// Shows the kernel the entries that were written.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.of(self.producer).store(self.own, Ordering::Release);
    }

    /// Returns true if the kernel looks at the ring only when it is told to.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.of(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    #[inline]
    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: invariants 1 and 2: the index is below the number of entries.
        unsafe { self.entries.add((index & (self.len - 1)) as usize) }
    }

    #[inline]
    fn of(&self, word: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: invariant 1; the mapping lives as long as this value.
        unsafe { word.as_ref() }
    }
}

/// Bytes before the entries of a ring, at most: the kernel has some cache lines there.
const MAX_OFFSET: usize = 1 << 16;
