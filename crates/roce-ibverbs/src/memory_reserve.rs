//! What is left when the process has no memory left.
//!
//! Rust's collections end the process where an allocation fails. A library must not: a program may
//! handle ENOMEM. Large memory, which is what runs out, is reserved fallibly where it is needed: by the
//! queues of requests and completions. There remain the many small pieces that objects and their tables
//! consist of, in the standard library and in others, too. These come from a [reserve](Reserve) once the
//! system has none. A call that creates an object asks [`check`] before: after an allocation has failed it fails
//! with ENOMEM until the system has memory again. So the reserve serves what was begun, and threads that handle
//! packets meanwhile. What these allocate is bounded by other means.

mod reserve;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::ENOMEM;

use reserve::Reserve;

/// Bytes that the system must have before objects are created again.
const PROBE: Layout = match Layout::from_size_align(512 << 10, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("a size that fits"),
};

/// The system's allocator, and behind it the reserve.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

static RESERVE: Reserve = Reserve::new();
/// An allocation of the system has failed, and no probe has succeeded since.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Returns memory of the reserve; null if there is none.
#[cold]
fn take(layout: Layout) -> *mut u8 {
    HAS_FAILED.store(true, Ordering::Relaxed);
    RESERVE.take(layout)
}

// SAFETY: memory of the system's allocator goes back there, and other memory is the reserve's, which
// `Reserve` gives to one owner at a time, aligned and as long as asked.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() { take(layout) } else { memory }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let memory = take(layout);
        if !memory.is_null() {
            // SAFETY: so many bytes are the caller's.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if let Some(piece) = NonNull::new(memory).filter(|_| RESERVE.contains(memory)) {
            // SAFETY: the caller's promise.
            return unsafe { RESERVE.give_back(piece, layout) };
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
