//! Frames that were read together, for those who look at several at a time.

use super::{Event, Found};

/// What [`Capture::next_batch`](crate::Capture::next_batch) found: frames, with the memory that
/// they stand in. It can be handed to another thread while the capture is read on, and is filled
/// again without a new allocation.
///
/// Memory: 640 KiB, and 56 bytes for each frame.
#[derive(Debug, Default)]
pub struct Batch {
    pub(super) memory: Vec<u8>,
    pub(super) found: Vec<Found>,
    pub(super) offset: u64,
}

impl Batch {
    /// An empty one, to be filled.
    pub fn new() -> Self {
        Self::default()
    }

    /// What was found, in the order of the file.
    pub fn events(&self) -> impl ExactSizeIterator<Item = Event<'_>> {
        self.found.iter().map(|found| found.event(&self.memory))
    }

    /// Bytes of the file up to the end of this batch.
    pub const fn offset(&self) -> u64 {
        self.offset
    }
}
