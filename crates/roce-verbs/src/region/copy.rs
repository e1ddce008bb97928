//! Copies into and out of memory that other threads access: see the rules of the parent module.
//!
//! Long copies also prefetch the next bytes of the region: packets copy a message piece by piece, and
//! each would begin by waiting for memory. With 64 MiB in use this raises bandwidth by a sixth and
//! the speed of an allreduce by a fifth; with a region in the cache it has no measurable cost.
//!
//! On x86-64 vectors alone are no faster than the string instruction, but the processor computes the ICRC while
//! their loads are still outstanding. The rest behind them is copied in words at any alignment: payloads
//! rarely have the same alignment in a frame and in the region, and byte by byte that rest took a tenth
//! of an allreduce.

use roce_transport::{AtomicChange, MemoryFault};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use guarded_copies::{atomic, read, write};
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) use unguarded::{atomic, read, write};

/// Returns the outcome that a guarded function has returned.
pub(super) fn outcome(failed: u32) -> Result<(), MemoryFault> {
    if failed == 0 { Ok(()) } else { Err(MemoryFault::NotPresent) }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod guarded_copies {
    use super::super::guarded;
    use super::{AtomicChange, MemoryFault, outcome};

    /// Copies out of a region as a loop of relaxed atomics would: in pieces of any width, in any order.
    ///
    /// # Errors
    /// A page at `from` is not present.
    ///
    /// # Safety
    /// `len` bytes can be written at `to`, and the two ranges do not overlap. All other accesses at
    /// `from` are atomic (rule 3 of [`super::super`]), and there are none at `to`.
    pub(crate) unsafe fn read(from: *const u8, to: *mut u8, len: usize) -> Result<(), MemoryFault> {
        // SAFETY: the caller's promise. A fault ends the function.
        outcome(unsafe { guarded::read(to, from, len) })
    }

    /// Copies into a region as a loop of relaxed atomics would, all but the last word, and then the last
    /// word, or its bytes in order where it is not aligned. `len` is not 0.
    ///
    /// # Errors
    /// A page at `to` is not present.
    ///
    /// # Safety
    /// `len` bytes can be read at `from`, and the two ranges do not overlap. All other accesses at
    /// `to` are atomic (rule 3 of [`super::super`]).
    pub(crate) unsafe fn write(
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Result<(), MemoryFault> {
        // SAFETY: as in `read`.
        outcome(unsafe { guarded::write(to, from, len) })
    }

    /// Changes an aligned word in one step, and returns its value before.
    ///
    /// # Errors
    /// Its page is not present.
    ///
    /// # Safety
    /// The word is aligned, and all other accesses to it are atomic.
    pub(crate) unsafe fn atomic(word: *mut u64, change: AtomicChange) -> Result<u64, MemoryFault> {
        let mut original = 0;
        // SAFETY: the caller's promise; a fault ends the function.
        outcome(unsafe {
            match change {
                AtomicChange::Add(n) => {
                    guarded::roce_verbs_guarded_fetch_add(word, n, &raw mut original)
                }
                AtomicChange::Store(new) => {
                    guarded::roce_verbs_guarded_swap(word, new, &raw mut original)
                }
                AtomicChange::SwapIf { expected, new } => {
                    guarded::roce_verbs_guarded_compare_exchange(
                        word,
                        expected,
                        new,
                        &raw mut original,
                    )
                }
            }
        })?;
        Ok(original)
    }
}

/// Copies that a fault ends together with the process, as loops of atomics.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod unguarded {
    use core::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

    use super::{AtomicChange, MemoryFault};

    /// # Safety
    /// `len` bytes can be read at `from` and written at `to`, and the two do not overlap. All other
    /// accesses to the shared one of the two are atomic (rule 3 of [`super::super`]).
    pub(crate) unsafe fn read(from: *const u8, to: *mut u8, len: usize) -> Result<(), MemoryFault> {
        // SAFETY: the caller's promise, for parts of the range.
        unsafe {
            let done = aligned_words(from, to, len);
            bytes(from.add(done), to.add(done), len - done);
        }
        Ok(())
    }

    /// Stores the last eight bytes in order, behind all others.
    ///
    /// # Safety
    /// As for [`read`].
    pub(crate) unsafe fn write(
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Result<(), MemoryFault> {
        let body = len - len.min(8);
        // SAFETY: the caller's promise, for parts of the range; bytes are always aligned.
        unsafe {
            read(from, to, body)?;
            fence(Ordering::Release);
            for i in body..len {
                let byte = AtomicU8::from_ptr(from.add(i).cast_mut()).load(Ordering::Relaxed);
                AtomicU8::from_ptr(to.add(i)).store(byte, Ordering::Release);
            }
        }
        Ok(())
    }

    /// # Safety
    /// The word is mapped and aligned, and all other accesses to it are atomic.
    pub(crate) unsafe fn atomic(word: *mut u64, change: AtomicChange) -> Result<u64, MemoryFault> {
        // SAFETY: the caller's promise.
        let word = unsafe { AtomicU64::from_ptr(word) };
        Ok(match change {
            AtomicChange::Add(n) => word.fetch_add(n, Ordering::AcqRel),
            AtomicChange::Store(new) => word.swap(new, Ordering::AcqRel),
            AtomicChange::SwapIf { expected, new } => {
                match word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(old) | Err(old) => old,
                }
            }
        })
    }

    /// Copies words if both sides have the same alignment, and returns the number of bytes copied.
    ///
    /// # Safety
    /// As for [`read`].
    unsafe fn aligned_words(from: *const u8, to: *mut u8, len: usize) -> usize {
        if (from as usize) % 8 != (to as usize) % 8 {
            return 0;
        }
        let mut done = from.align_offset(8).min(len);
        // SAFETY: the caller's promise, for parts of the range.
        unsafe {
            bytes(from, to, done);
            while len - done >= 8 {
                let word = AtomicU64::from_ptr(from.add(done).cast_mut().cast());
                AtomicU64::from_ptr(to.add(done).cast())
                    .store(word.load(Ordering::Relaxed), Ordering::Relaxed);
                done += 8;
            }
        }
        done
    }

    /// Copies byte by byte, each a relaxed atomic.
    ///
    /// # Safety
    /// As for [`read`].
    unsafe fn bytes(from: *const u8, to: *mut u8, len: usize) {
        for i in 0..len {
            // SAFETY: the caller's promise; bytes are always aligned.
            unsafe {
                let byte = AtomicU8::from_ptr(from.add(i).cast_mut()).load(Ordering::Relaxed);
                AtomicU8::from_ptr(to.add(i)).store(byte, Ordering::Relaxed);
            }
        }
    }
}
