//! Asking for memory before it is needed.

/// Tells the processor that these bytes are about to be read. A hint: nothing else happens, and
/// on processors that have no such hint nothing at all.
///
/// A frame in the receive ring was written by the sender's processor, or by the one that took the
/// interrupt. Who reads it packet by packet waits for each line anew; who asks for the next packet
/// while this one is being checked does not.
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
        // SAFETY: a prefetch reads nothing and faults never; the processor has SSE on x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, LINE);
}

/// Bytes of a cache line.
const LINE: usize = 64;
