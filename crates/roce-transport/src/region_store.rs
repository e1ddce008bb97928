//! What the bytes of a region are kept in.

use alloc::vec::Vec;

use crate::{AtomicChange, MemoryFault};

/// The bytes of one region of [`Regions`](crate::Regions), which has checked keys, rights and bounds.
///
/// Offsets count from the start of the region.
pub trait RegionStore {
    /// Loads `into.len()` bytes.
    ///
    /// # Errors
    /// [`MemoryFault::NotPresent`] if one of them is not there.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MemoryFault>;

    /// Stores `bytes`.
    ///
    /// # Errors
    /// [`MemoryFault::NotPresent`] if one of them has no place.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault>;

    /// Changes a word of 8 bytes in host byte order, and returns what it was.
    ///
    /// # Errors
    /// [`MemoryFault::NotPresent`] if the word is not there.
    fn atomic(&mut self, offset: u64, change: AtomicChange) -> Result<u64, MemoryFault> {
        let mut word = [0; 8];
        self.read(offset, &mut word)?;
        let original = u64::from_ne_bytes(word);
        self.write(offset, &change.apply(original).to_ne_bytes())?;
        Ok(original)
    }
}

/// Bytes that are all there.
impl RegionStore for Vec<u8> {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.get(offset..));
        let from = from.and_then(|from| from.get(..into.len())).ok_or(MemoryFault::NotPresent)?;
        into.copy_from_slice(from);
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let into = usize::try_from(offset).ok().and_then(|offset| self.get_mut(offset..));
        let into = into.and_then(|into| into.get_mut(..bytes.len()));
        into.ok_or(MemoryFault::NotPresent)?.copy_from_slice(bytes);
        Ok(())
    }
}
