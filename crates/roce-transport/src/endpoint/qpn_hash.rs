//! Queue pair numbers as keys.

use core::hash::Hasher;

/// Queue pair numbers are given out at random already: spreading them further would be work
/// for nothing.
#[derive(Debug, Default)]
pub(super) struct QpnHasher(u64);

impl Hasher for QpnHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        // Not used by `Qpn`; right for whatever comes.
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }
    fn write_u32(&mut self, number: u32) {
        // A table takes its place from the low bits and its tag from the high ones.
        self.0 = (self.0.rotate_left(5) ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
