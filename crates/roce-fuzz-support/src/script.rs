//! Reads a fuzzer's bytes as decisions.

use arbitrary::{Arbitrary, Unstructured};

/// Decisions read one after another from the front of a fuzzer's bytes; zeros at the end.
#[derive(Debug)]
pub struct Script<'a>(Unstructured<'a>);

impl<'a> Script<'a> {
    /// Creates a script of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    /// Returns true if no bytes are left.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads a number, least significant byte first.
    pub fn number<T: Arbitrary<'a> + Default>(&mut self) -> T {
        self.0.arbitrary().unwrap_or_default()
    }

    /// Reads a byte.
    pub fn byte(&mut self) -> u8 {
        self.number()
    }

    /// Picks one of at most 256 `choices` by the next byte.
    ///
    /// # Panics
    /// If there are no choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// Reads up to `max` bytes.
    pub fn bytes(&mut self, max: usize) -> &'a [u8] {
        self.0.bytes(max.min(self.0.len())).unwrap_or_default()
    }
}
