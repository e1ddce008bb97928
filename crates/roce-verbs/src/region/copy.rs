//! Copies into and out of memory that others touch meanwhile: see the rules of the module above.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// From this many bytes on vectors, or without them the string instruction, beat a loop of words.
const LONG_MOVE: usize = 256;

/// Copies as a loop of relaxed atomics would: in pieces of any width, in any order.
///
/// # Safety
/// `len` bytes can be read at `from` and written at `to`, and the two do not overlap.
/// Whoever else touches the shared one of the two does so atomically (rule 3 of [`super`]).
pub(super) unsafe fn relaxed(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= LONG_MOVE && std::arch::is_x86_feature_detected!("avx") {
        let whole = len - len % VECTORS;
        // SAFETY: AVX is there; the caller's promise, for both parts of the range.
        unsafe {
            vectors(from, to, whole);
            relaxed(from.add(whole), to.add(whole), len - whole);
        }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if len >= LONG_MOVE {
        // SAFETY: the caller's promise; the direction flag is clear on entry, as the
        // calling convention has it. See rule 3 there for why the compiler may not reason
        // about the accesses inside.
        unsafe {
            core::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rsi") from => _,
                inout("rdi") to => _,
                options(nostack, preserves_flags)
            );
        }
        return;
    }
    let mut done = 0;
    // Words where both sides are aligned alike, bytes at the edges.
    if (from as usize) % 8 == (to as usize) % 8 {
        let head = from.align_offset(8).min(len);
        // SAFETY: the caller's promise, for parts of the range.
        unsafe {
            bytes(from, to, head);
            done = head;
            while len - done >= 8 {
                let word = AtomicU64::from_ptr(from.add(done).cast_mut().cast());
                AtomicU64::from_ptr(to.add(done).cast())
                    .store(word.load(Ordering::Relaxed), Ordering::Relaxed);
                done += 8;
            }
        }
    }
    // SAFETY: the caller's promise, for what is left of the range.
    unsafe { bytes(from.add(done), to.add(done), len - done) };
}

/// Bytes that [`vectors`] moves at a time.
#[cfg(target_arch = "x86_64")]
const VECTORS: usize = 128;

/// Copies in vectors. Alone it is no faster than the string instruction; but the processor goes on
/// behind it with the ICRC while loads of the copy are still under way.
///
/// # Safety
/// The processor has AVX; `len` is a multiple of [`VECTORS`] and not 0; otherwise as for
/// [`relaxed`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn vectors(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise. See rule 3 for why the compiler may not reason about the
    // accesses inside.
    unsafe {
        core::arch::asm!(
            "2:",
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
            "jnz 2b",
            "vzeroupper",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            len = inout(reg) len => _,
            // `vzeroupper` clears the upper halves of all sixteen.
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
            out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
            out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
            out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
            options(nostack)
        );
    }
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
