//! The port to registered memory.

use roce_transport::{AtomicChange, MemoryFault};
use roce_wire::PayloadCrc;

/// Memory that is registered.
///
/// Offsets lie within what [`holds`](Self::holds) has returned true for; other ones may panic. Where a
/// method fails with [`MemoryFault::NotPresent`], a part of the access may have happened.
pub trait Region {
    /// Returns true if `len` bytes from `offset` lie inside.
    fn holds(&self, offset: usize, len: usize) -> bool;

    /// Returns true if the word at `offset` is aligned.
    fn has_word(&self, offset: usize) -> bool;

    /// Stores `bytes` from `offset` on, the last word last.
    ///
    /// # Errors
    /// [`MemoryFault::NotPresent`].
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), MemoryFault>;

    /// Loads bytes from `offset` on.
    ///
    /// # Errors
    /// [`MemoryFault::NotPresent`].
    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), MemoryFault>;

    /// As [`read`](Self::read), and returns the CRC of the bytes if one pass can compute both.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_summed(
        &self,
        offset: usize,
        into: &mut [u8],
    ) -> Result<Option<PayloadCrc>, MemoryFault> {
        self.read(offset, into).map(|()| None)
    }

    /// Changes the aligned word at `offset` in one step and returns its value before.
    ///
    /// # Errors
    /// [`MemoryFault::Misaligned`] and [`MemoryFault::NotPresent`]; nothing is changed then.
    fn atomic(&self, offset: usize, change: AtomicChange) -> Result<u64, MemoryFault>;
}
