//! Copies into and out of memory that other threads access: see the rules of the parent module.

use core::sync::atomic::{AtomicU8, Ordering};

/// Bytes from which vectors, or without them the string instruction, are faster than words.
const LONG_MOVE: usize = 256;

/// The end of a copy that is the region, whose next bytes are likely to be needed soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// It is copied from.
    Source,
    /// It is copied to.
    Target,
}

/// Copies as a loop of relaxed atomics would: in pieces of any width, in any order.
///
/// Long copies also prefetch the next bytes of the region: packets copy a message piece by piece, and
/// each would begin by waiting for memory. With 64 MiB in use this raises bandwidth by a sixth and
/// the speed of an allreduce by a fifth; with a region in the cache it has no measurable cost.
///
/// # Safety
/// `len` bytes can be read at `from` and written at `to`, and the two do not overlap.
/// All other accesses to the shared one of the two are atomic (rule 3 of [`super`]).
pub(super) unsafe fn relaxed(from: *const u8, to: *mut u8, len: usize, region: Region) {
    let mut done = 0;
    // SAFETY: the caller's promise, for parts of the range that follow each other.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        {
            if len >= LONG_MOVE {
                if std::arch::is_x86_feature_detected!("avx") {
                    done = len - len % VECTOR;
                    match region {
                        Region::Source => vectors_from_region(from, to, done),
                        Region::Target => vectors_to_region(from, to, done),
                    }
                } else {
                    string(from, to, len);
                    return;
                }
            }
            let words = (len - done) / 8;
            unaligned_words(from.add(done), to.add(done), words);
            done += 8 * words;
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = region;
            done = aligned_words(from, to, len);
        }
        bytes(from.add(done), to.add(done), len - done);
    }
}

/// Bytes of a vector.
#[cfg(target_arch = "x86_64")]
const VECTOR: usize = 32;

/// Defines a function that copies in vectors, with a prefetch of each cache line of the region
/// [`AHEAD`] bytes later. A prefetch never faults, at any address.
///
/// Vectors alone are no faster than the string instruction, but the processor computes the ICRC while
/// their loads are still outstanding.
#[cfg(target_arch = "x86_64")]
macro_rules! vectors {
    ($name:ident, $hint:literal, $next_hint:literal) => {
        /// # Safety
        /// The processor has AVX; `len` is a multiple of [`VECTOR`], and at least 128; otherwise
        /// as for [`relaxed`].
        #[target_feature(enable = "avx")]
        unsafe fn $name(from: *const u8, to: *mut u8, len: usize) {
            // SAFETY: the caller's promise. See rule 3 for why the compiler may not reason about
            // the accesses inside.
            unsafe {
                core::arch::asm!(
                    "2:",
                    $hint,
                    $next_hint,
                    "vmovdqu ymm0, [{from}]",
                    "vmovdqu ymm1, [{from} + 32]",
                    "vmovdqu ymm2, [{from} + 64]",
                    "vmovdqu ymm3, [{from} + 96]",
                    "vmovdqu [{to}], ymm0",
                    "vmovdqu [{to} + 32], ymm1",
                    "vmovdqu [{to} + 64], ymm2",
                    "vmovdqu [{to} + 96], ymm3",
                    "sub {from}, -128",
                    "sub {to}, -128",
                    "sub {len}, 128",
                    "cmp {len}, 128",
                    "jae 2b",
                    "test {len}, {len}",
                    "jz 4f",
                    "3:",
                    "vmovdqu ymm0, [{from}]",
                    "vmovdqu [{to}], ymm0",
                    "add {from}, 32",
                    "add {to}, 32",
                    "sub {len}, 32",
                    "jnz 3b",
                    "4:",
                    "vzeroupper",
                    from = inout(reg) from => _,
                    to = inout(reg) to => _,
                    len = inout(reg) len => _,
                    ahead = const AHEAD,
                    // `vzeroupper` clears the upper halves of all sixteen.
                    out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
                    out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
                    out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
                    out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
                    options(nostack)
                );
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
vectors!(
    vectors_from_region,
    "prefetcht0 [{from} + {ahead}]",
    "prefetcht0 [{from} + {ahead} + 64]"
);
#[cfg(target_arch = "x86_64")]
vectors!(vectors_to_region, "prefetchw [{to} + {ahead}]", "prefetchw [{to} + {ahead} + 64]");

/// Distance of prefetches in bytes. With payloads of 4096 bytes 1024 and 2048 are equal and 4096 is a
/// tenth slower, with payloads of 1024 bytes 2048 to 8192 are equal and 1024 is a tenth slower.
#[cfg(target_arch = "x86_64")]
pub(super) const AHEAD: usize = 2048;

/// Copies with the string instruction.
///
/// # Safety
/// As for [`relaxed`].
#[cfg(target_arch = "x86_64")]
unsafe fn string(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise; the direction flag is clear on entry, as the calling
    // convention has it. See rule 3 for why the compiler may not reason about the accesses
    // inside.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies words of eight bytes at any alignment.
///
/// Payloads rarely have the same alignment in a frame and in the region: copied byte by byte, the
/// rest of a packet behind the vectors took a tenth of an allreduce.
///
/// # Safety
/// As for [`relaxed`], with eight bytes for each of `count`.
#[cfg(target_arch = "x86_64")]
unsafe fn unaligned_words(from: *const u8, to: *mut u8, count: usize) {
    for i in 0..count {
        // SAFETY: the caller's promise. See rule 3 for why the compiler may not reason about the
        // accesses inside.
        unsafe {
            core::arch::asm!(
                "mov {word}, [{from}]",
                "mov [{to}], {word}",
                from = in(reg) from.add(8 * i),
                to = in(reg) to.add(8 * i),
                word = out(reg) _,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Copies words if both sides have the same alignment, and returns the number of bytes copied.
///
/// # Safety
/// As for [`relaxed`].
#[cfg(not(target_arch = "x86_64"))]
unsafe fn aligned_words(from: *const u8, to: *mut u8, len: usize) -> usize {
    use core::sync::atomic::AtomicU64;
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
/// As for [`relaxed`].
unsafe fn bytes(from: *const u8, to: *mut u8, len: usize) {
    for i in 0..len {
        // SAFETY: the caller's promise; bytes are always aligned.
        unsafe {
            let byte = AtomicU8::from_ptr(from.add(i).cast_mut()).load(Ordering::Relaxed);
            AtomicU8::from_ptr(to.add(i)).store(byte, Ordering::Relaxed);
        }
    }
}
