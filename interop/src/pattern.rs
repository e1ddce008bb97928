//! Bytes that both ends can make by themselves.
//!
//! Byte i of a pattern depends on its seed and on i alone. The guest's program makes the same
//! (`interop/rxe_agent`), so a whole transfer is compared by one checksum.

/// The first `len` bytes of the pattern of `seed`.
///
/// ```
/// use roce_interop::pattern;
/// assert_eq!(pattern::bytes(7, 100)[..10], pattern::bytes(7, 10));
/// assert_ne!(pattern::bytes(7, 10), pattern::bytes(8, 10));
/// ```
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).flat_map(|index| word(seed, index).to_le_bytes());
    words.take(len).collect()
}

/// The checksum by which ends compare bytes: CRC-32 as in Ethernet and zip.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// The mixing function of splitmix64, which spreads any two neighbouring inputs far apart.
fn word(seed: u64, index: u64) -> u64 {
    let z = seed.wrapping_add((index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
