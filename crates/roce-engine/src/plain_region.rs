//! A region of bytes of its own.

use std::cell::RefCell;

use roce_transport::{AtomicChange, MemoryFault};

use crate::region::Region;

/// Bytes that one thread and its engines access, for simulations and tests. Its first byte counts as
/// aligned.
#[derive(Debug, Default)]
pub struct PlainRegion(RefCell<Vec<u8>>);

impl PlainRegion {
    /// Makes a region of zeros.
    pub fn new(len: usize) -> Self {
        Self(RefCell::new(vec![0; len]))
    }
}

impl Region for PlainRegion {
    fn holds(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.0.borrow().len())
    }

    fn has_word(&self, offset: usize) -> bool {
        offset.is_multiple_of(8)
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.0.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), MemoryFault> {
        into.copy_from_slice(&self.0.borrow()[offset..offset + into.len()]);
        Ok(())
    }

    fn atomic(&self, offset: usize, change: AtomicChange) -> Result<u64, MemoryFault> {
        if !self.has_word(offset) {
            return Err(MemoryFault::Misaligned);
        }
        let mut word = [0; 8];
        self.read(offset, &mut word)?;
        let before = u64::from_ne_bytes(word);
        self.write(offset, &change.apply(before).to_ne_bytes())?;
        Ok(before)
    }
}
