//! One direction of the wire: frames in slots that are used again and again.

/// Frames on their way from one side to the other, at most [`SLOTS`](Self::SLOTS) at a time.
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
    /// Length of each frame that is on its way, and of the segments of a train.
    frames: Vec<(usize, Option<usize>)>,
}

impl Wire {
    /// Frames that are on their way at most: what a driver takes or sends in one round.
    pub const SLOTS: usize = 32;
    /// Bytes: Ethernet in front of the longest IP packet.
    const SLOT_LEN: usize = 14 + 65_535;

    /// An empty one.
    pub fn new() -> Self {
        let slots = vec![vec![0; Self::SLOT_LEN]; Self::SLOTS];
        Self { slots, frames: Vec::with_capacity(Self::SLOTS) }
    }

    /// Room for the next frame, if there is any.
    pub fn slot(&mut self) -> Option<&mut [u8]> {
        self.slots.get_mut(self.frames.len()).map(Vec::as_mut_slice)
    }

    /// What was written into [`slot`](Self::slot) is a frame of `len` bytes.
    pub fn send(&mut self, len: usize, segment_len: Option<usize>) {
        self.frames.push((len, segment_len));
    }

    /// The frames on their way.
    pub fn frames(&self) -> impl Iterator<Item = (&[u8], Option<usize>)> {
        let slots = self.slots.iter().zip(&self.frames);
        slots.map(|(slot, (len, segment_len))| (&slot[..*len], *segment_len))
    }

    /// They have arrived.
    pub fn clear(&mut self) {
        self.frames.clear();
    }
}

impl Default for Wire {
    fn default() -> Self {
        Self::new()
    }
}
