//! The memory of a rank, exactly as large as an operation requires.

use crate::{Geometry, MemoryKind, MemorySpan, Operation, RankBuffers, Side};

/// The buffers of one operation.
pub(super) struct Buffers {
    /// Bytes of input, output, scratch, and each slot of the previous and the next rank.
    lens: [u64; 5],
    slots: u32,
    lanes: u32,
    /// `None` if they are too large to allocate.
    pub(super) kept: Option<RankBuffers>,
}

/// Larger buffers are not allocated; spans are checked without them.
const MOST: u64 = 64 << 10;

impl Buffers {
    pub(super) fn new(geometry: &Geometry, operation: &Operation, in_place: bool) -> Self {
        let (input, output) = operation.buffer_bytes(geometry).expect("it was started");
        let (lanes, slots) = (geometry.lanes(), geometry.slots());
        let sides = [Side::Previous, Side::Next];
        let [previous, next] = sides.map(|side| geometry.slot_pitch(side));
        let lens = [input, output, geometry.scratch_bytes(), previous, next];
        let staging = (previous + next) * u64::from(slots) * u64::from(lanes);
        let whole = [input, output, lens[2], staging]
            .iter()
            .try_fold(0, |sum: u64, len| sum.checked_add(*len).filter(|sum| *sum <= MOST));
        let kept = whole.map(|_| {
            // Not zeros: the bytes include NaNs and infinities.
            let mut at = 0_u64;
            let mut next = || {
                at += 1;
                (at * at + at / 3) as u8
            };
            let mut kept = RankBuffers::new(*geometry, 0xff);
            let bytes: Vec<_> = (0..input).map(|_| next()).collect();
            kept.begin(operation, in_place, &bytes);
            for number in 0..2 * lanes * slots {
                let side = sides[(number % 2) as usize];
                let (lane, index) = (number / 2 / slots, number / 2 % slots);
                let slot = MemoryKind::Slot { side, lane, index };
                let whole = MemorySpan::new(slot, 0, geometry.slot_pitch(side));
                kept.bytes_mut(whole).fill_with(&mut next);
            }
            kept
        });
        Self { lens, slots, lanes, kept }
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
}
