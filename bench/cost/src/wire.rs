//! One direction of the wire: frames in reused slots.

/// Frames in flight from one side to the other, at most [`SLOTS`](Self::SLOTS) at a time.
///
/// ```
/// use roce_cost::Wire;
///
/// let mut wire = Wire::new();
/// wire.slot().unwrap()[..5].copy_from_slice(b"hello");
/// wire.send(5, None);
/// assert_eq!(wire.frames().collect::<Vec<_>>(), [(&b"hello"[..], None)]);
/// wire.clear();
/// assert_eq!(wire.frames().count(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Wire {
    slots: Vec<Vec<u8>>,
    /// Lengths of each frame in flight, and of the segments of a train.
    frames: Vec<(usize, Option<usize>)>,
}

impl Wire {
    /// Maximum number of frames in flight: those of one round of a driver.
    pub const SLOTS: usize = 32;
    /// Length of a slot in bytes: an Ethernet header and the longest IP packet.
    pub const SLOT_LEN: usize = 14 + 65_535;

    /// Creates a wire without frames.
    pub fn new() -> Self {
        let slots = vec![vec![0; Self::SLOT_LEN]; Self::SLOTS];
        Self { slots, frames: Vec::with_capacity(Self::SLOTS) }
    }

    /// Returns a free slot for the next frame, if any.
    pub fn slot(&mut self) -> Option<&mut [u8]> {
        self.slots.get_mut(self.frames.len()).map(Vec::as_mut_slice)
    }

    /// Sends the first `len` bytes of the [`slot`](Self::slot) as a frame.
    pub fn send(&mut self, len: usize, segment_len: Option<usize>) {
        self.frames.push((len, segment_len));
    }

    /// Returns the frames in flight.
    pub fn frames(&self) -> impl Iterator<Item = (&[u8], Option<usize>)> {
        let slots = self.slots.iter().zip(&self.frames);
        slots.map(|(slot, (len, segment_len))| (&slot[..*len], *segment_len))
    }

    /// Removes all frames.
    pub fn clear(&mut self) {
        self.frames.clear();
    }
}

impl Default for Wire {
    fn default() -> Self {
        Self::new()
    }
}
