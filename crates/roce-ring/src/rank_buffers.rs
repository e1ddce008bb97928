//! The memory of a rank as bytes of this process.

use std::ops::Range;

use crate::{Collective, Geometry, MemoryKind, MemorySpan, Operation, RankMemory};

/// The memory of a rank in buffers of its own, for programs that carry messages as copies: tests, simulators,
/// examples. A driver with memory of its callers is a [`RankMemory`] itself.
///
/// Each kind of memory is as long as the operation and the [`Geometry`] say, and holds one value until it is
/// written.
///
/// ```
/// use roce_ring::*;
///
/// let geometry = Geometry::new(0, 2, RingConfig::default()).unwrap();
/// let mut buffers = RankBuffers::new(geometry, 0xff);
/// let sum = Operation::all_reduce(DataType::U8, ReduceOp::Sum, 4);
/// buffers.begin(&sum, false, &[1, 2, 3, 4]);
/// assert_eq!(buffers.bytes(MemorySpan::new(MemoryKind::Input, 1, 2)), [2, 3]);
/// assert_eq!(buffers.output(), [0xff; 4]);
/// ```
#[derive(Clone, Debug)]
pub struct RankBuffers {
    geometry: Geometry,
    unwritten: u8,
    /// Input and output, scratch, and the slots of the previous and the next rank, lane by lane.
    parts: [Vec<u8>; 4],
    /// Offsets of input and output in their part; in place they overlap.
    input: Range<usize>,
    output: Range<usize>,
}

const VECTOR: usize = 0;
const SCRATCH: usize = 1;
const SLOTS: usize = 2;

impl RankBuffers {
    /// Allocates scratch memory and slots, and no input and output yet. All bytes are `unwritten` at first.
    pub fn new(geometry: Geometry, unwritten: u8) -> Self {
        let lanes = u64::from(geometry.lanes());
        let [staging, back] = [geometry.staging_bytes(), geometry.back_staging_bytes()];
        let lens = [0, geometry.scratch_bytes(), staging * lanes, back * lanes];
        let parts = lens.map(|len| vec![unwritten; len as usize]);
        Self { geometry, unwritten, parts, input: 0..0, output: 0..0 }
    }

    /// Allocates the input and the output of an operation, in one place if it is `in_place`. Slots keep what has
    /// arrived.
    ///
    /// # Panics
    /// If the ring has no such operation, or its input is of another length.
    pub fn begin(&mut self, operation: &Operation, in_place: bool, input: &[u8]) {
        let lens = operation.buffer_bytes(&self.geometry).expect("an operation of this ring");
        let (input_len, output_len) = (lens.0 as usize, lens.1 as usize);
        let rank = self.geometry.rank() as usize;
        let (input_at, output_at) = match operation.collective {
            _ if !in_place => (0, input_len),
            Collective::AllGather => (rank * input_len, 0),
            Collective::ReduceScatter => (0, rank * output_len),
            _ => (0, 0),
        };
        self.input = input_at..input_at + input_len;
        self.output = output_at..output_at + output_len;
        let len = self.input.end.max(self.output.end);
        self.parts[VECTOR] = vec![self.unwritten; len];
        self.parts[VECTOR][self.input.clone()].copy_from_slice(input);
        self.parts[SCRATCH].fill(self.unwritten);
    }

    /// Returns the output of the operation.
    pub fn output(&self) -> &[u8] {
        &self.parts[VECTOR][self.output.clone()]
    }

    /// Returns the bytes of a span.
    ///
    /// # Panics
    /// If it leaves its memory.
    pub fn bytes(&self, span: MemorySpan) -> &[u8] {
        let (part, range) = self.place(span);
        &self.parts[part][range]
    }

    /// Returns the bytes of a span for a message or a computation to change.
    ///
    /// # Panics
    /// If it leaves its memory, or is of the input, which no operation writes.
    pub fn bytes_mut(&mut self, span: MemorySpan) -> &mut [u8] {
        assert_ne!(span.memory, MemoryKind::Input, "the input is not to be written");
        let (part, range) = self.place(span);
        &mut self.parts[part][range]
    }

    /// Returns true if two spans have a byte in common.
    ///
    /// # Panics
    /// If one of them leaves its memory.
    pub fn overlap(&self, a: MemorySpan, b: MemorySpan) -> bool {
        let ((a_part, a), (b_part, b)) = (self.place(a), self.place(b));
        a_part == b_part && a.start < b.end && b.start < a.end
    }

    /// Returns the part of a span, and the offsets in it.
    fn place(&self, span: MemorySpan) -> (usize, Range<usize>) {
        let (part, memory) = match span.memory {
            MemoryKind::Input => (VECTOR, self.input.clone()),
            MemoryKind::Output => (VECTOR, self.output.clone()),
            MemoryKind::Scratch => (SCRATCH, 0..self.parts[SCRATCH].len()),
            MemoryKind::Slot { side, lane, index } => {
                let pitch = self.geometry.slot_pitch(side) as usize;
                assert!(index < self.geometry.slots(), "{span:?}");
                let at = (lane * self.geometry.slots() + index) as usize * pitch;
                (SLOTS + side as usize, at..at + pitch)
            }
        };
        let end = span.offset.checked_add(span.len).filter(|end| *end <= memory.len() as u64);
        let end = end.unwrap_or_else(|| panic!("{span:?} leaves its {} bytes", memory.len()));
        (part, memory.start + span.offset as usize..memory.start + end as usize)
    }
}

impl RankMemory for RankBuffers {
    fn read(&mut self, memory: MemoryKind, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(self.bytes(MemorySpan::new(memory, offset, into.len() as u64)));
    }

    fn write(&mut self, memory: MemoryKind, offset: u64, bytes: &[u8]) {
        self.bytes_mut(MemorySpan::new(memory, offset, bytes.len() as u64)).copy_from_slice(bytes);
    }
}
