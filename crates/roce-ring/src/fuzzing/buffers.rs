//! The memory of a rank, exactly as large as an operation requires.

use crate::{Collective, Geometry, MemoryKind, MemorySpan, Operation, RankMemory, Side};

/// The buffers of one operation.
pub(super) struct Buffers {
    /// Bytes of input, output, scratch, and each slot of the previous and the next rank.
    lens: [u64; 5],
    slots: u32,
    lanes: u32,
    /// All buffers, concatenated; empty if they are too large to allocate.
    bytes: Vec<u8>,
    /// Offsets in `bytes` of input, output, scratch, and the slots of each neighbour.
    starts: [usize; 5],
}

/// Larger buffers are not allocated; spans are checked without them.
const MOST: u64 = 64 << 10;

impl Buffers {
    pub(super) fn new(geometry: &Geometry, operation: &Operation, in_place: bool) -> Self {
        let (input, output) = operation.buffer_bytes(geometry).expect("it was started");
        let config = geometry.config();
        let [previous, next] = [Side::Previous, Side::Next].map(|side| geometry.slot_pitch(side));
        let lens = [input, output, geometry.scratch_bytes(), previous, next];
        let mut buffers =
            Self { lens, slots: config.slots, lanes: config.lanes, bytes: vec![], starts: [0; 5] };
        let lanes = u64::from(config.lanes);
        let staging = geometry.staging_bytes() * lanes;
        let whole = [input, output, lens[2], staging, geometry.back_staging_bytes() * lanes]
            .iter()
            .try_fold(0, |sum: u64, len| sum.checked_add(*len).filter(|sum| *sum <= MOST));
        let Some(whole) = whole else { return buffers };
        let [input, output, scratch] = [input, output, lens[2]].map(|len| len as usize);
        let rank = geometry.rank() as usize;
        let size = geometry.size() as usize;
        let (input_at, output_at) = match operation.collective {
            _ if !in_place => (0, input),
            Collective::AllGather => (rank * (output / size), 0),
            Collective::ReduceScatter => (0, rank * (input / size)),
            _ => (0, 0),
        };
        let scratch_at = input + output;
        let slots_at = scratch_at + scratch;
        let back_at = slots_at + staging as usize;
        buffers.starts = [input_at, output_at, scratch_at, slots_at, back_at];
        // Not zeros: the bytes include NaNs and infinities.
        buffers.bytes = (0..whole as usize).map(|at| (at * at + at / 3) as u8).collect();
        buffers
    }

    pub(super) fn are_kept(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Panics unless the span lies inside its memory.
    pub(super) fn assert_inside(&self, span: MemorySpan) {
        let len = match span.memory {
            MemoryKind::Input => self.lens[0],
            MemoryKind::Output => self.lens[1],
            MemoryKind::Scratch => self.lens[2],
            MemoryKind::Slot { side, lane, index } => {
                assert!(lane < self.lanes && index < self.slots, "{span:?}");
                self.lens[3 + side as usize]
            }
        };
        let end = span.offset.checked_add(span.len).expect("an end");
        assert!(end <= len, "{span:?} leaves its {len} bytes");
    }

    fn at(&self, memory: MemoryKind, offset: u64, len: usize) -> core::ops::Range<usize> {
        self.assert_inside(MemorySpan::new(memory, offset, len as u64));
        let start = match memory {
            MemoryKind::Input => self.starts[0],
            MemoryKind::Output => self.starts[1],
            MemoryKind::Scratch => self.starts[2],
            MemoryKind::Slot { side, lane, index } => {
                let slots = 3 + side as usize;
                let number = (lane * self.slots + index) as usize;
                self.starts[slots] + number * self.lens[slots] as usize
            }
        };
        let start = start + offset as usize;
        start..start + len
    }
}

impl RankMemory for Buffers {
    fn read(&mut self, memory: MemoryKind, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes[self.at(memory, offset, into.len())]);
    }

    fn write(&mut self, memory: MemoryKind, offset: u64, bytes: &[u8]) {
        let at = self.at(memory, offset, bytes.len());
        self.bytes[at].copy_from_slice(bytes);
    }
}
