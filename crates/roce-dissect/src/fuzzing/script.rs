//! Decisions from the bytes of a fuzzer.

use arbitrary::{Arbitrary, Unstructured};

/// Decisions read from the front; after the end all are zero.
pub(super) struct Script<'a>(Unstructured<'a>);

impl<'a> Script<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a number, least significant byte first.
    pub(super) fn number<T: Arbitrary<'a> + Default>(&mut self) -> T {
        self.0.arbitrary().unwrap_or_default()
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.number()
    }

    /// Returns one of at most 256 `choices`.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// Returns up to `max` next bytes.
    pub(super) fn bytes(&mut self, max: usize) -> &'a [u8] {
        self.0.bytes(max.min(self.0.len())).unwrap_or_default()
    }
}
