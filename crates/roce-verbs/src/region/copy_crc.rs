//! Copies a payload out of a region and computes its CRC in one pass: see the rules of the parent
//! module.
//!
//! A sender that copies first and sums afterwards loads every byte twice, and the ICRC waits for
//! stores of the copy: together 42 µs a MiB, of which the copy alone is 33. In one pass it is 35;
//! through 64 MiB 53 instead of 66. In both cases the CRC is that of the bytes that are sent, even if
//! the application stores others meanwhile.

#[cfg(target_arch = "x86_64")]
pub(super) use avx512::{is_supported, relaxed};
#[cfg(not(target_arch = "x86_64"))]
pub(super) use fallback::{is_supported, relaxed};

/// For processors with carry-less multiplication in vectors of 64 bytes.
///
/// Sixteen runs of 16 bytes each are folded side by side. A register of 128 bits stands for a
/// polynomial, its first bit for the highest power; to fold it over n bits is to multiply it by
/// x^n modulo the CRC's polynomial, half by half, which leaves 128 bits again. So a block of 256
/// bytes is folded over the next one until one is left, and its parts over each other.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::super::copy::outcome;
    use super::super::guarded;
    use core::arch::x86_64::{
        __m128i, __m512i, _mm_and_si128, _mm_clmulepi64_si128, _mm_extract_epi32, _mm_set_epi64x,
        _mm_srli_si128, _mm_xor_si128, _mm512_castsi512_si128, _mm512_clmulepi64_epi128,
        _mm512_extracti32x4_epi32, _mm512_load_si512, _mm512_xor_si512,
    };

    use roce_transport::MemoryFault;

    /// Returns true if this processor can run [`relaxed`].
    pub(crate) fn is_supported() -> bool {
        std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("vpclmulqdq")
            && std::arch::is_x86_feature_detected!("pclmulqdq")
            && std::arch::is_x86_feature_detected!("sse4.1")
    }

    /// Copies out of a region as a loop of relaxed atomics would, in any order, and returns the register of
    /// a CRC-32 that held zero before the first byte. No aligned unit of at most eight bytes is torn.
    ///
    /// The next bytes of the region are prefetched as in [`read`](super::super::copy::read).
    ///
    /// # Errors
    /// A page at `from` is not present.
    ///
    /// # Safety
    /// [`is_supported`] returned true, `from` is aligned to 8, and `len` is a multiple of 256 and not 0.
    /// `len` bytes can be written at `to`, and the two ranges do not overlap. All other accesses at `from` are atomic
    /// (rule 3 of the parent module), and there are none at `to`.
    #[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.1")]
    pub(crate) unsafe fn relaxed(
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Result<u32, MemoryFault> {
        let (v0, v1, v2, v3): (__m512i, __m512i, __m512i, __m512i);
        let failed: u32;
        // SAFETY: the caller's promise is what the function asks for, and a fault ends it. It has no
        // Rust signature, since no type of Rust is returned in four vectors.
        unsafe {
            core::arch::asm!(
                "call {copy}",
                copy = sym guarded::roce_verbs_guarded_read_folded,
                in("rdi") to,
                in("rsi") from,
                in("rdx") len,
                out("eax") failed,
                out("zmm0") v0,
                out("zmm1") v1,
                out("zmm2") v2,
                out("zmm3") v3,
                inout("zmm6") OVER_A_BLOCK.load() => _,
                clobber_abi("sysv64"),
            );
        }
        outcome(failed)?;
        // The four vectors over the last of them, then its four parts over the last of those: side
        // by side, since one after the other takes as long as a packet of 1 KiB.
        let early = _mm512_xor_si512(folded(v0, &OVER_THREE), folded(v1, &OVER_TWO));
        let late = _mm512_xor_si512(folded(v2, &OVER_ONE), v3);
        let all = _mm512_xor_si512(early, late);
        let parts = folded(all, &PARTS);
        let front =
            _mm_xor_si128(_mm512_castsi512_si128(parts), _mm512_extracti32x4_epi32::<1>(parts));
        let back = _mm_xor_si128(
            _mm512_extracti32x4_epi32::<2>(parts),
            _mm512_extracti32x4_epi32::<3>(all),
        );
        Ok(register(_mm_xor_si128(front, back)))
    }

    /// Each 128 bits multiplied by the powers that stand in their place.
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn folded(bits: __m512i, powers: &Powers) -> __m512i {
        let powers = powers.load();
        _mm512_xor_si512(
            _mm512_clmulepi64_epi128::<0x00>(bits, powers),
            _mm512_clmulepi64_epi128::<0x11>(bits, powers),
        )
    }

    /// 128 bits of text, and what a register of 32 bits holds behind them: 128 to 96 bits, to 64,
    /// and the remainder of these by Barrett's way.
    #[target_feature(enable = "pclmulqdq,sse4.1")]
    fn register(text: __m128i) -> u32 {
        let [far, near] = over(128);
        let low = _mm_set_epi64x(0, 0xffff_ffff);
        let it = _mm_clmulepi64_si128::<0x10>(text, _mm_set_epi64x(near, far));
        let it = _mm_xor_si128(it, _mm_srli_si128::<8>(text));
        let rest = _mm_srli_si128::<4>(it);
        let it = _mm_clmulepi64_si128::<0x00>(
            _mm_and_si128(it, low),
            _mm_set_epi64x(0, const { power(64) }),
        );
        let it = _mm_xor_si128(it, rest);
        let division = _mm_set_epi64x(QUOTIENT, POLYNOMIAL);
        let times = _mm_clmulepi64_si128::<0x10>(_mm_and_si128(it, low), division);
        let taken = _mm_clmulepi64_si128::<0x00>(_mm_and_si128(times, low), division);
        _mm_extract_epi32::<1>(_mm_xor_si128(it, taken)) as u32
    }

    /// For each 128 bits of a vector, the powers by which their halves are multiplied.
    #[repr(align(64))]
    struct Powers([[i64; 2]; 4]);

    impl Powers {
        #[target_feature(enable = "avx512f")]
        fn load(&self) -> __m512i {
            // SAFETY: 64 bytes, aligned as it says above.
            unsafe { _mm512_load_si512(self.0.as_ptr().cast()) }
        }
    }

    static OVER_A_BLOCK: Powers = Powers([over(2048); 4]);
    static OVER_THREE: Powers = Powers([over(3 * 512); 4]);
    static OVER_TWO: Powers = Powers([over(2 * 512); 4]);
    static OVER_ONE: Powers = Powers([over(512); 4]);
    static PARTS: Powers = Powers([over(3 * 128), over(2 * 128), over(128), [0; 2]]);

    /// What folds 128 bits over that many: their first half has 32 bits more to go, since what is
    /// multiplied by stands in 33 bits at the end of 64, and their second half 32 less.
    const fn over(bits: u32) -> [i64; 2] {
        [power(bits + 32), power(bits - 32)]
    }

    /// x^n modulo the polynomial, its highest power last, with a zero before it.
    const fn power(n: u32) -> i64 {
        let (mut bits, mut done) = (1_u32 << 31, 0);
        while done < n {
            bits = if bits & 1 == 1 { bits >> 1 ^ 0xedb8_8320 } else { bits >> 1 };
            done += 1;
        }
        (bits as i64) << 1
    }

    /// The polynomial with all its 33 bits, the highest power last.
    const POLYNOMIAL: i64 = 0x1_db71_0641;
    /// x^64 divided by the polynomial, in the same order.
    const QUOTIENT: i64 = 0x1_f701_1641;
}

/// Other processors only copy; the packet sealer computes the CRC.
#[cfg(not(target_arch = "x86_64"))]
mod fallback {
    pub(crate) fn is_supported() -> bool {
        false
    }

    /// # Safety
    /// Never called, as [`is_supported`] says.
    pub(crate) unsafe fn relaxed(
        _: *const u8,
        _: *mut u8,
        _: usize,
    ) -> Result<u32, roce_transport::MemoryFault> {
        unreachable!("`is_supported` says no")
    }
}
