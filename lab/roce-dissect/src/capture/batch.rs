//! Frames of one read, for analysis in several threads.

use super::event::{Event, Found};

/// Frames from [`Capture::next_batch`](crate::Capture::next_batch) with their memory. Another
/// thread may process a batch while the capture is read. A batch is refilled without a new
/// allocation.
///
/// Memory: 640 KiB, and 56 bytes for each frame.
#[derive(Debug, Default)]
pub struct Batch {
    pub(super) memory: Vec<u8>,
    pub(super) found: Vec<Found>,
    pub(super) offset: u64,
}

impl Batch {
    /// Returns an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the items in file order.
    pub fn events(&self) -> impl ExactSizeIterator<Item = Event<'_>> {
        self.found.iter().map(|found| found.event(&self.memory))
    }

    /// Returns the file offset at the end of this batch.
    pub const fn offset(&self) -> u64 {
        self.offset
    }
}
