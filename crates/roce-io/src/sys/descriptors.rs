//! The descriptors of this process: a table that a child reads after a fork without locks or memory of the
//! heap.

use std::{
    io, mem,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    ptr,
    sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering},
};

/// A place in the table.
struct Slot {
    /// The descriptor's number and 1; 0: none, or one that was given up.
    number: AtomicI32,
    /// The place below it in the stack of free ones, as in [`FREE`].
    below: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
    is_marked: AtomicBool,
}

/// Places of the first part of the table; each further part has twice as many.
const FIRST_LEN: u32 = 64;
/// Parts of the table: more places than a process may have descriptors.
const PARTS: usize = 24;

static TABLE: [AtomicPtr<Slot>; PARTS] = [const { AtomicPtr::new(ptr::null_mut()) }; PARTS];
/// Places that were used once.
static USED: AtomicU32 = AtomicU32::new(0);
/// The top of the stack of free places: number and 1 in the lower half, a count of changes in the upper.
static FREE: AtomicU64 = AtomicU64::new(0);

/// A descriptor's entry in the table.
#[derive(Debug)]
pub(crate) struct Entry(u32);

impl Entry {
    /// Enters a descriptor.
    pub(crate) fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        mark(fd.as_raw_fd());
        let identity = Identity::of(fd.as_raw_fd(), true)?;
        let place = match pop() {
            Some(place) => place,
            None => add()?,
        };
        let entry = Self(place);
        if let Some(slot) = slot(place) {
            slot.device.store(identity.device, Ordering::Relaxed);
            slot.inode.store(identity.inode, Ordering::Relaxed);
            slot.is_marked.store(identity.is_marked, Ordering::Relaxed);
            slot.number.store(fd.as_raw_fd() + 1, Ordering::Release);
        }
        Ok(entry)
    }

    /// Returns true if the descriptor is this process's to close: it was not given up after a fork, and its
    /// number is not that of another file, because the program has closed it.
    pub(crate) fn is_open(&self) -> bool {
        slot(self.0).is_some_and(|slot| slot.holds(slot.number.load(Ordering::Relaxed)).is_some())
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(slot) = slot(self.0) {
            slot.number.store(0, Ordering::Relaxed);
            push(slot, self.0);
        }
    }
}

/// Closes all descriptors of the table, in a child of the process that has made them.
pub(super) fn give_up() {
    for slot in (0..USED.load(Ordering::Acquire)).filter_map(slot) {
        // Of several threads one closes it.
        if let Some(number) = slot.holds(slot.number.swap(0, Ordering::AcqRel)) {
            // SAFETY: the descriptor is that of an object of the parent, which finds that it has none when
            // it is dropped here. The system call, since another library's `close` may do more.
            unsafe { libc::syscall(libc::SYS_close, number) };
        }
    }
}

impl Slot {
    /// Returns the descriptor of an entered number, if there is one and the file is still the same.
    fn holds(&self, number: i32) -> Option<RawFd> {
        let number = number.checked_sub(1).filter(|it| *it >= 0)?;
        let entered = Identity {
            device: self.device.load(Ordering::Relaxed),
            inode: self.inode.load(Ordering::Relaxed),
            is_marked: self.is_marked.load(Ordering::Relaxed),
        };
        match Identity::of(number, entered.is_marked) {
            Ok(found) => found.is_that_of(&entered).then_some(number),
            // A program may have forbidden itself the calls that tell (seccomp).
            Err(error) => (error.raw_os_error() != Some(libc::EBADF)).then_some(number),
        }
    }
}

/// Returns the part of a place, its index there, and the part's length.
fn part_of(place: u32) -> (usize, usize, usize) {
    let part = (place / FIRST_LEN + 1).ilog2();
    let before = FIRST_LEN * ((1 << part) - 1);
    (part as usize, (place - before) as usize, (FIRST_LEN as usize) << part)
}

fn slot(place: u32) -> Option<&'static Slot> {
    let (part, index, _) = part_of(place);
    let first = TABLE.get(part)?.load(Ordering::Acquire);
    // SAFETY: the part has more places than the index, is never unmapped, and a slot of any bytes is valid.
    (!first.is_null()).then(|| unsafe { &*first.add(index) })
}

/// Adds a place, of which the memory is that of the kernel: a child may not wait for the heap.
fn add() -> io::Result<u32> {
    let place = USED.fetch_add(1, Ordering::AcqRel);
    let (part, _, len) = part_of(place);
    let Some(known) = TABLE.get(part) else { return Err(io::ErrorKind::OutOfMemory.into()) };
    if !known.load(Ordering::Acquire).is_null() {
        return Ok(place);
    }
    let (rights, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let bytes = len * mem::size_of::<Slot>();
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let new = mapped.cast::<Slot>();
    if known.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: another thread was faster, and none has seen this part.
        unsafe { libc::munmap(mapped, bytes) };
    }
    Ok(place)
}

fn pop() -> Option<u32> {
    let mut top = FREE.load(Ordering::Acquire);
    loop {
        let place = (top as u32).checked_sub(1)?;
        let below = slot(place)?.below.load(Ordering::Relaxed);
        let next = changed(top, below);
        match FREE.compare_exchange_weak(top, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(place),
            Err(other) => top = other,
        }
    }
}

fn push(slot: &Slot, place: u32) {
    let mut top = FREE.load(Ordering::Acquire);
    loop {
        slot.below.store(top as u32, Ordering::Relaxed);
        let next = changed(top, place + 1);
        match FREE.compare_exchange_weak(top, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(other) => top = other,
        }
    }
}

/// Returns the word of the stack with another top: the count tells it from an earlier one with that top.
fn changed(word: u64, top: u32) -> u64 {
    (word >> 32).wrapping_add(1) << 32 | u64::from(top)
}

/// Tells one open file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    /// It has the [`MARK`].
    is_marked: bool,
}

impl Identity {
    /// Returns that of an open file, without its mark unless `may_be_marked`.
    fn of(number: RawFd, may_be_marked: bool) -> io::Result<Self> {
        let status = status_of(number)?;
        // SAFETY: returns a number.
        let signal = if may_be_marked { unsafe { libc::fcntl(number, F_GETSIG) } } else { 0 };
        if signal < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { device: status.st_dev, inode: status.st_ino, is_marked: signal == MARK })
    }

    fn is_that_of(&self, entered: &Self) -> bool {
        // The kernel may refuse marks.
        (self.device, self.inode) == (entered.device, entered.inode)
            && (self.is_marked || !entered.is_marked)
    }
}

/// A signal that the kernel would send for a descriptor on which a program had asked for signals (`O_ASYNC`). Nothing
/// asks for them here, and other files have 0. Eventfds and the like have no inode of their own, and the kernel
/// gives their numbers to the next ones; a file may be opened twice.
const MARK: libc::c_int = 64;
/// Of `asm-generic/fcntl.h`.
const F_SETSIG: libc::c_int = 10;
const F_GETSIG: libc::c_int = 11;

/// Marks a file, unless that is a socket or a pipe: these have inodes of their own, and a program that has one of
/// them may ask for signals.
fn mark(number: RawFd) {
    let kind = status_of(number).map(|status| status.st_mode & libc::S_IFMT);
    if kind.is_ok_and(|kind| ![libc::S_IFSOCK, libc::S_IFIFO].contains(&kind)) {
        // SAFETY: passes numbers.
        unsafe { libc::fcntl(number, F_SETSIG, MARK) };
    }
}

fn status_of(number: RawFd) -> io::Result<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes one `stat`, which is read if the call has succeeded.
    match unsafe { libc::fstat(number, status.as_mut_ptr()) } {
        // SAFETY: as above.
        0 => Ok(unsafe { status.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs::File};

    use super::*;
    use crate::process::Own;

    #[test]
    fn every_place_is_in_one_part() {
        let places: Vec<_> = (0..100_000).map(part_of).collect();
        assert_eq!((places[0], places[63], places[64]), ((0, 0, 64), (0, 63, 64), (1, 0, 128)));
        assert!(places.iter().all(|(_, index, len)| index < len));
        assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len());
    }

    #[test]
    fn places_of_closed_descriptors_are_used_again() {
        const THREADS: u32 = 4;
        const PAIRS: u32 = 300;
        let before = USED.load(Ordering::Relaxed);
        let threads = (0..THREADS).map(|_| {
            std::thread::spawn(|| {
                let open = || Own::make(|| File::open("/dev/null")).unwrap();
                for _ in 0..PAIRS {
                    let pair = (open(), open());
                    assert!(pair.0.is_open() && pair.1.is_open());
                }
            })
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|it| it.join().unwrap());
        let used = USED.load(Ordering::Relaxed) - before;
        // Other tests use some, too.
        assert!(used < THREADS * PAIRS, "{used} places of {} descriptors", THREADS * PAIRS * 2);
    }
}
