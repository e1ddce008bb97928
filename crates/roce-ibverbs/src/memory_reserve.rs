//! What is left when the process has no memory left.
//!
//! Rust's collections end the process where an allocation fails. A library must not: a program may
//! handle ENOMEM. Large memory, which is what runs out, is reserved fallibly where it is needed: by the
//! queues of requests and completions. There remain the many small pieces that objects and their tables
//! consist of, in the standard library and in others, too. These come from a reserve once the system has none:
//! zeros of the library's data that take no memory before they are used. A call that creates an object asks
//! [`check`] before: after an allocation has failed it fails with ENOMEM until the system has memory
//! again. So the reserve serves what was begun, and threads that handle packets meanwhile. What these allocate
//! is bounded by other means.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::ENOMEM;

/// Bytes of the reserve.
const LEN: usize = 16 << 20;
/// Of these only small pieces may have the last quarter.
const FOR_SMALL: usize = LEN / 4;
const MAX_SMALL: usize = 16 << 10;
/// The largest piece. A fallible allocation of more is better refused.
const MAX_PIECE: usize = 1 << 20;
/// Bytes that the system must have before objects are created again.
const PROBE: Layout = match Layout::from_size_align(512 << 10, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("a size that fits"),
};

/// The system's allocator, and behind it the reserve.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

static RESERVE: Reserve =
    Reserve { bytes: UnsafeCell::new(Bytes([0; LEN])), state: AtomicU64::new(0) };
/// An allocation of the system has failed, and no probe has succeeded since.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Memory that is given out from its begin to its end, and from the begin again once all is given back.
struct Reserve {
    bytes: UnsafeCell<Bytes>,
    /// Bytes given out, and in the upper half the number of pieces that were not given back.
    state: AtomicU64,
}

#[repr(align(4096))]
struct Bytes(#[expect(dead_code, reason = "reached by its address alone")] [u8; LEN]);

// SAFETY: `take` gives each byte to one caller at a time.
unsafe impl Sync for Reserve {}

impl Reserve {
    /// Returns memory of this layout; null if there is none. It may hold what an earlier piece held.
    fn take(&self, layout: Layout) -> *mut u8 {
        HAS_FAILED.store(true, Ordering::Relaxed);
        let (size, align) = (layout.size(), layout.align());
        if size > MAX_PIECE || align > 4096 {
            return ptr::null_mut();
        }
        let limit = if size <= MAX_SMALL { LEN } else { LEN - FOR_SMALL };
        let mut first = 0;
        let taken = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            let (used, pieces) = parts(state);
            first = used.next_multiple_of(align);
            let end = first + size;
            (end <= limit).then(|| packed(end, pieces + 1))
        });
        match taken {
            // SAFETY: within the reserve, as checked.
            Ok(_) => unsafe { self.bytes.get().cast::<u8>().add(first) },
            Err(_) => ptr::null_mut(),
        }
    }

    /// Takes a piece back.
    fn give_back(&self) {
        let less = |state| {
            let (used, pieces) = parts(state);
            Some(packed(if pieces == 1 { 0 } else { used }, pieces - 1))
        };
        let _always = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    fn contains(&self, piece: *mut u8) -> bool {
        piece.addr().wrapping_sub(self.bytes.get().addr()) < LEN
    }
}

/// Returns the bytes given out and the number of pieces.
fn parts(state: u64) -> (usize, u64) {
    ((state & u64::from(u32::MAX)) as usize, state >> 32)
}

fn packed(used: usize, pieces: u64) -> u64 {
    used as u64 | pieces << 32
}

// SAFETY: memory of the system's allocator goes back there, and other memory is the reserve's, which
// `Reserve` gives to one owner at a time, aligned and as long as asked.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() { RESERVE.take(layout) } else { memory }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let memory = RESERVE.take(layout);
        if !memory.is_null() {
            // SAFETY: so many bytes are the caller's.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if RESERVE.contains(memory) {
            return RESERVE.give_back();
        }
        // SAFETY: it is the system's; the rest is the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !RESERVE.contains(memory) {
            // SAFETY: it is the system's; the rest is the caller's promise.
            let moved = unsafe { System.realloc(memory, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller's promise.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: `size` is not 0, by the caller's promise.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: two pieces of memory of at least so many bytes each, of which the old one is the
            // caller's until now.
            unsafe {
                ptr::copy_nonoverlapping(memory, moved, layout.size().min(size));
                self.dealloc(memory, layout);
            }
        }
        moved
    }
}

/// Fails if no memory is left for a new object.
///
/// # Errors
/// `ENOMEM`.
#[inline]
pub(crate) fn check() -> Result<(), c_int> {
    if HAS_FAILED.load(Ordering::Relaxed) { probe() } else { Ok(()) }
}

#[cold]
fn probe() -> Result<(), c_int> {
    // SAFETY: the size is not 0, and the memory goes back as it came.
    unsafe {
        // Without the hint the compiler leaves out an allocation that is only freed again.
        let memory = std::hint::black_box(System.alloc(PROBE));
        if memory.is_null() {
            return Err(ENOMEM);
        }
        System.dealloc(memory, PROBE);
    }
    HAS_FAILED.store(false, Ordering::Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_gives_each_byte_once_and_begins_anew_when_all_is_given_back() {
        let reserve = Box::leak(Box::new(Reserve {
            bytes: UnsafeCell::new(Bytes([0; LEN])),
            state: AtomicU64::new(0),
        }));
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        let each = [
            (layout(100, 8), 1000),
            (layout(MAX_PIECE, 64), usize::MAX),
            (layout(MAX_SMALL, 16), usize::MAX),
        ];
        for _ in 0..3 {
            let mut pieces = Vec::new();
            let counts = each.map(|(layout, limit)| {
                let before = pieces.len();
                let taken = std::iter::repeat_with(|| reserve.take(layout));
                for piece in taken.take(limit).take_while(|piece| !piece.is_null()) {
                    assert!(reserve.contains(piece));
                    assert!(piece.addr().is_multiple_of(layout.align()));
                    pieces.push((piece.addr(), layout.size()));
                }
                pieces.len() - before
            });
            assert!(pieces.is_sorted_by(|a, b| a.0 + a.1 <= b.0), "pieces overlap");
            assert_eq!(counts[0], 1000);
            assert!(counts[1] > 8, "{} large ones", counts[1]);
            assert!(counts[2] >= FOR_SMALL / MAX_SMALL, "large ones leave a quarter");
            pieces.iter().for_each(|_| reserve.give_back());
            assert_eq!(reserve.state.load(Ordering::Relaxed), 0);
        }
        HAS_FAILED.store(false, Ordering::Relaxed);
    }
}
