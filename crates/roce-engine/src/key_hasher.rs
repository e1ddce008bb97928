//! The hash of keys.

use std::hash::Hasher;

/// The identity hash: keys are random already.
#[derive(Debug, Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        // Not used for u32 keys.
        bytes.iter().for_each(|b| self.0 = self.0.rotate_left(8) ^ u64::from(*b));
    }
    #[inline]
    fn write_u32(&mut self, key: u32) {
        // hashbrown takes its control byte from the top bits, its bucket from the bottom.
        self.0 = u64::from(key) << 32 | u64::from(key);
    }
}
