//! A fuzzer's bytes, read as decisions.

use arbitrary::{Arbitrary, Unstructured};

/// Decisions, taken one after the other from the front; when the bytes are used up, all are
/// zero.
pub(super) struct Script<'a>(Unstructured<'a>);

impl<'a> Script<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Any number of its type, least significant byte first.
    pub(super) fn number<T: Arbitrary<'a> + Default>(&mut self) -> T {
        self.0.arbitrary().unwrap_or_default()
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.number()
    }

    /// One of `choices`, of which there are 256 at most.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// The next bytes, `most` of them at most.
    pub(super) fn bytes(&mut self, most: usize) -> &'a [u8] {
        self.0.bytes(most.min(self.0.len())).unwrap_or_default()
    }
}
