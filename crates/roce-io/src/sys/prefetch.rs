//! Prefetching.

/// Prefetches `bytes` into the cache; does nothing where the processor has no such hint.
///
/// Another processor wrote the frames of the receive ring. Prefetching the next packet while one is
/// checked avoids a wait for each cache line.
///
/// ```
/// let frame = [0u8; 4096];
/// roce_io::prefetch(&frame[1024..2048]);
/// ```
#[inline(always)]
pub fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch never faults; every x86-64 processor has SSE.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    for line in bytes.chunks(LINE) {
        // SAFETY: a prefetch never faults, and changes nothing that the program could see.
        unsafe {
            core::arch::asm!(
                "prfm pldl1keep, [{line}]",
                line = in(reg) line.as_ptr(),
                options(nostack, preserves_flags, readonly)
            );
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = (bytes, LINE);
}

/// Bytes of a cache line.
const LINE: usize = 64;
