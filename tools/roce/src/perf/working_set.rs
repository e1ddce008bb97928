//! Where messages lie: in one place, over and over, or one behind the other through a buffer.

use roce_verbs::MemoryRegion;

use crate::error::{CliError, Result};

/// The places that messages of one size take in turn, in each half of an end's memory.
///
/// The message at each place is the same at both ends, and different from its neighbours: what
/// arrives can be told from what was there, and from what belongs elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkingSet {
    size: usize,
    stride: usize,
    places: usize,
}

impl WorkingSet {
    /// For messages of `size` bytes that go through `working_set` bytes; without one there is
    /// one place.
    pub(crate) fn new(size: u32, working_set: Option<u64>) -> Self {
        let size = size as usize;
        let stride = size.max(1).next_multiple_of(CACHE_LINE);
        let room = usize::try_from(working_set.unwrap_or(0)).unwrap_or(usize::MAX);
        Self { size, stride, places: (room / stride).max(1) }
    }

    /// How many places there are.
    pub(crate) fn places(self) -> u64 {
        self.places as u64
    }

    /// Bytes from the first byte of the first place to the last of the last.
    pub(crate) fn span(self) -> usize {
        (self.places - 1) * self.stride + self.size
    }

    /// The offset of the place behind the one at `offset`.
    pub(crate) fn offset_after(self, offset: usize) -> usize {
        let next = offset + self.stride;
        if next < self.places * self.stride { next } else { 0 }
    }

    /// Puts into every place from `base` on what belongs there.
    pub(crate) fn fill(self, memory: &MemoryRegion, base: usize) -> Result {
        self.chunks(self.span(), |offset, bytes| {
            bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = pattern(offset + i));
            Ok(memory.write(base + offset, bytes)?)
        })
    }

    /// Wipes every place from `base` on.
    pub(crate) fn clear(self, memory: &MemoryRegion, base: usize) -> Result {
        self.chunks(self.span(), |offset, bytes| Ok(memory.write(base + offset, bytes)?))
    }

    /// Looks whether the first `used` places from `base` on hold what belongs there, and the
    /// others still nothing.
    pub(crate) fn check(self, memory: &MemoryRegion, base: usize, used: u64) -> Result {
        let used = usize::try_from(used).unwrap_or(usize::MAX).min(self.places) * self.stride;
        self.chunks(self.span(), |offset, bytes| {
            memory.read(base + offset, bytes)?;
            let is_wrong = |(i, byte): (usize, &u8)| {
                let at = offset + i;
                let gap = at % self.stride >= self.size;
                *byte != if at < used && !gap { pattern(at) } else { 0 }
            };
            match bytes.iter().enumerate().position(is_wrong) {
                None => Ok(()),
                Some(i) => Err(CliError::new(format!(
                    "byte {} of the memory that messages of {} bytes were to fill is wrong: \
                     what arrived is not what was sent",
                    offset + i,
                    self.size
                ))),
            }
        })
    }

    /// Goes through `len` bytes with a buffer of zeros that is not too large.
    fn chunks(self, len: usize, mut work: impl FnMut(usize, &mut [u8]) -> Result) -> Result {
        let mut buffer = vec![0; CHUNK.min(len)];
        (0..len).step_by(CHUNK).try_for_each(|offset| {
            let here = CHUNK.min(len - offset);
            work(offset, &mut buffer[..here])
        })
    }
}

/// The byte that belongs at an offset: never 0, and without a period that a packet could have.
fn pattern(offset: usize) -> u8 {
    ((offset as u32).wrapping_mul(0x9e37_79b1) >> 24) as u8 | 1
}

/// Bytes. Messages start on lines of their own, as perftest lays them out.
const CACHE_LINE: usize = 64;
/// Bytes.
const CHUNK: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_through_the_whole_working_set_and_begin_again() {
        let cycle = WorkingSet::new(100, Some(1000));
        let mut offset = 0;
        let mut seen = vec![];
        for _ in 0..8 {
            seen.push(offset);
            offset = cycle.offset_after(offset);
        }
        assert_eq!(seen, [0, 128, 256, 384, 512, 640, 768, 0]);
        assert!(cycle.span() <= 1000);
    }

    #[test]
    fn without_a_working_set_there_is_one_place_however_long_the_message() {
        for (size, working_set) in [(0, None), (8, None), (1 << 20, None), (1 << 20, Some(5))] {
            let cycle = WorkingSet::new(size, working_set);
            assert_eq!((cycle.places(), cycle.span()), (1, size as usize));
            assert_eq!(cycle.offset_after(0), 0);
        }
    }

    #[test]
    fn what_belongs_at_a_place_belongs_at_no_place_a_packet_away() {
        for distance in [8, 64, 256, 1024, 4096, 4096 * 60, 1 << 20] {
            let same = (0..4096).filter(|i| pattern(*i) == pattern(i + distance)).count();
            assert!(same < 400, "{same} bytes of 4096 are the same {distance} bytes further");
        }
    }
}
