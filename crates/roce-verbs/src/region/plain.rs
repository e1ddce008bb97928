//! Copies in Rust, as loops of atomics, of which a fault is the caller's: what the program's own calls read, and
//! regions on processors without guarded copies.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

#[cfg(any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
use roce_transport::AtomicChange;
use roce_transport::MemoryFault;

/// Copies out of memory that other threads access, each aligned unit of at most eight bytes by one load, in any
/// order. A page that is missing is a fault of the caller.
///
/// It is for what a program's own call reads, as inline data; regions have accesses of their own.
///
/// # Safety
/// As many bytes as `into` has can be read at `from`, and all other accesses to them meanwhile are atomic, or those
/// of other programs' code, which the compiler does not see.
pub unsafe fn load_units(from: *const u8, into: &mut [u8]) {
    // SAFETY: the caller's promise, and `into` is ours alone.
    let copied = unsafe { read(from, into.as_mut_ptr(), into.len()) };
    debug_assert!(copied.is_ok());
}

/// # Safety
/// `len` bytes can be read at `from` and written at `to`, and the two do not overlap. All other accesses at
/// `from` are atomic (rule 3 of [`super`]), and there are none at `to`.
pub(super) unsafe fn read(from: *const u8, to: *mut u8, len: usize) -> Result<(), MemoryFault> {
    const ORDER: Ordering = Ordering::Relaxed;
    let mut done = 0;
    while done < len {
        // SAFETY: the caller's promise, for aligned units of the range; the target has any alignment.
        unsafe {
            let (from, to) = (from.add(done).cast_mut(), to.add(done));
            let size = unit(from, len - done);
            match size {
                8 => {
                    let words = (len - done) / 8;
                    for i in 0..words {
                        let word = AtomicU64::from_ptr(from.cast::<u64>().add(i));
                        to.cast::<u64>().add(i).write_unaligned(word.load(ORDER));
                    }
                    done += 8 * (words - 1);
                }
                4 => to.cast::<u32>().write_unaligned(AtomicU32::from_ptr(from.cast()).load(ORDER)),
                2 => to.cast::<u16>().write_unaligned(AtomicU16::from_ptr(from.cast()).load(ORDER)),
                _ => to.write(AtomicU8::from_ptr(from).load(ORDER)),
            }
            done += size;
        }
    }
    Ok(())
}

/// Stores the last unit behind all others.
///
/// # Safety
/// As for [`read`], with the sides exchanged.
#[cfg(any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(super) unsafe fn write(from: *const u8, to: *mut u8, len: usize) -> Result<(), MemoryFault> {
    let mut done = 0;
    while done < len {
        // SAFETY: as in `read`.
        unsafe {
            let (from, to) = (from.add(done), to.add(done));
            let size = unit(to, len - done);
            let is_last = done + size == len;
            let order = if is_last { Ordering::Release } else { Ordering::Relaxed };
            match size {
                8 => {
                    AtomicU64::from_ptr(to.cast()).store(from.cast::<u64>().read_unaligned(), order)
                }
                4 => {
                    AtomicU32::from_ptr(to.cast()).store(from.cast::<u32>().read_unaligned(), order)
                }
                2 => {
                    AtomicU16::from_ptr(to.cast()).store(from.cast::<u16>().read_unaligned(), order)
                }
                _ => AtomicU8::from_ptr(to).store(from.read(), order),
            }
            done += size;
        }
    }
    Ok(())
}

/// Returns the size of the largest aligned unit that begins at `at` and is no longer than `left`, which
/// is not 0.
fn unit(at: *const u8, left: usize) -> usize {
    let alignment = 1 << at.addr().trailing_zeros().min(3);
    alignment.min(1 << left.ilog2().min(3))
}

/// # Safety
/// The word is mapped and aligned, and all other accesses to it are atomic.
#[cfg(any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(super) unsafe fn atomic(word: *mut u64, change: AtomicChange) -> Result<u64, MemoryFault> {
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
