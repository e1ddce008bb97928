//! A rank's memory.

use roce_ring::{Collective, Geometry, MemoryKind, MemorySpan, Operation, RankMemory};

/// All memory that a rank's messages and computations use.
pub(crate) struct Memory {
    /// Input and output, which overlap in place.
    buffer: Vec<u8>,
    input_at: usize,
    output_at: usize,
    output_len: usize,
    before: Vec<u8>,
    scratch: Vec<u8>,
    /// Staging memory for the previous and the next rank, by lane.
    staging: [Vec<Vec<u8>>; 2],
    geometry: Geometry,
}

/// The value of bytes that were never written.
pub(crate) const UNWRITTEN: u8 = 0xff;

impl Memory {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let staging = |bytes| vec![vec![UNWRITTEN; bytes as usize]; geometry.lanes() as usize];
        Self {
            buffer: Vec::new(),
            input_at: 0,
            output_at: 0,
            output_len: 0,
            before: Vec::new(),
            scratch: vec![UNWRITTEN; geometry.scratch_bytes() as usize],
            staging: [geometry.staging_bytes(), geometry.back_staging_bytes()].map(staging),
            geometry: *geometry,
        }
    }

    /// Allocates an operation's buffers.
    pub(crate) fn begin(
        &mut self,
        operation: &Operation,
        geometry: &Geometry,
        in_place: bool,
        input: &[u8],
    ) {
        let (input_len, output_len) = operation.buffer_bytes(geometry).unwrap();
        let (input_len, output_len) = (input_len as usize, output_len as usize);
        assert_eq!(input.len(), input_len);
        let rank = geometry.rank() as usize;
        (self.input_at, self.output_at) = match operation.collective {
            _ if !in_place => (0, input_len),
            Collective::AllGather => (rank * input_len, 0),
            Collective::ReduceScatter => (0, rank * output_len),
            _ => (0, 0),
        };
        self.output_len = output_len;
        let end = (self.input_at + input_len).max(self.output_at + output_len);
        self.buffer = vec![UNWRITTEN; end];
        self.buffer[self.input_at..][..input_len].copy_from_slice(input);
        self.before = self.buffer.clone();
        self.scratch.fill(UNWRITTEN);
    }

    /// Returns the result after checking that no other byte changed.
    pub(crate) fn finish(&self) -> &[u8] {
        let end = self.output_at + self.output_len;
        assert_eq!(self.buffer[..self.output_at], self.before[..self.output_at], "input changed");
        assert_eq!(self.buffer[end..], self.before[end..], "input changed");
        &self.buffer[self.output_at..end]
    }

    pub(crate) fn bytes(&self, span: MemorySpan) -> &[u8] {
        let (whole, at) = match span.memory {
            MemoryKind::Input => (&self.buffer, self.input_at),
            MemoryKind::Output => (&self.buffer, self.output_at),
            MemoryKind::Scratch => (&self.scratch, 0),
            MemoryKind::Slot { side, lane, index } => {
                let at = index as usize * self.geometry.slot_pitch(side) as usize;
                (&self.staging[side as usize][lane as usize], at)
            }
        };
        &whole[at + span.offset as usize..][..span.len as usize]
    }

    pub(crate) fn bytes_mut(&mut self, span: MemorySpan) -> &mut [u8] {
        let output = self.output_at..self.output_at + self.output_len;
        let (whole, at) = match span.memory {
            MemoryKind::Input => panic!("the input is not to be written"),
            MemoryKind::Output => (&mut self.buffer[output], 0),
            MemoryKind::Scratch => (&mut self.scratch[..], 0),
            MemoryKind::Slot { side, lane, index } => {
                let at = index as usize * self.geometry.slot_pitch(side) as usize;
                (&mut self.staging[side as usize][lane as usize][..], at)
            }
        };
        &mut whole[at + span.offset as usize..][..span.len as usize]
    }

    /// Returns true if two spans overlap.
    pub(crate) fn overlap(&self, a: MemorySpan, b: MemorySpan) -> bool {
        let range = |span: MemorySpan| match span.memory {
            MemoryKind::Input => (0, 0, self.input_at as u64 + span.offset),
            MemoryKind::Output => (0, 0, self.output_at as u64 + span.offset),
            MemoryKind::Scratch => (1, 0, span.offset),
            MemoryKind::Slot { side, lane, index } => {
                (2 + 2 * lane + side as u32, index, span.offset)
            }
        };
        let ((a0, a1, at_a), (b0, b1, at_b)) = (range(a), range(b));
        (a0, a1) == (b0, b1) && at_a < at_b + b.len && at_b < at_a + a.len
    }
}

impl RankMemory for Memory {
    fn read(&mut self, memory: MemoryKind, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(self.bytes(MemorySpan::new(memory, offset, into.len() as u64)));
    }

    fn write(&mut self, memory: MemoryKind, offset: u64, bytes: &[u8]) {
        self.bytes_mut(MemorySpan::new(memory, offset, bytes.len() as u64)).copy_from_slice(bytes);
    }
}
