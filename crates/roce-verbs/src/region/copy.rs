//! Copies into and out of memory that other threads access: see the rules of the parent module.
//!
//! Long copies also prefetch the next bytes of the region: packets copy a message piece by piece, and
//! each would begin by waiting for memory. With 64 MiB in use this raises bandwidth by a sixth and
//! the speed of an allreduce by a fifth; with a region in the cache it has no measurable cost.
//!
//! The side of the region is accessed in aligned units, that of the frame at any alignment: payloads rarely have
//! the same one. Vectors on x86-64 let the processor compute the ICRC while their loads are still outstanding; the
//! string instruction promises nothing about what it tears.

use roce_transport::{AtomicChange, MemoryFault};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) use super::plain::{atomic, read, write};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use guarded_copies::{atomic, read, write};

/// Returns the outcome that a guarded function has returned.
pub(super) fn outcome(failed: u32) -> Result<(), MemoryFault> {
    if failed == 0 { Ok(()) } else { Err(MemoryFault::NotPresent) }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod guarded_copies {
    use super::super::guarded;
    use super::{AtomicChange, MemoryFault, outcome};

    /// Copies out of a region as a loop of relaxed atomics would, in any order; see the parent module for
    /// what is not torn.
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

    /// Copies into a region as a loop of relaxed atomics would, its last unit last; see the parent module.
    /// `len` is not 0.
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
