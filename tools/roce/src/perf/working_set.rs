//! The positions of messages: one, or a cycle through a buffer.

use roce_verbs::MemoryRegion;

use crate::error::{CliError, Result};

/// The positions that messages of one size use in turn, in each half of an end's memory.
///
/// Both ends have the same message at a position, and a different one at the others: received data
/// is distinguishable from old data and from data of another position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkingSet {
    size: usize,
    /// Bytes in front of each received message.
    header: usize,
    stride: usize,
    places: usize,
}

impl WorkingSet {
    /// Creates the positions of messages of `size` bytes, behind a header of `header` bytes where
    /// they are received, in `working_set` bytes; one without it.
    pub(crate) fn new(size: u32, header: u32, working_set: Option<u64>) -> Self {
        let (size, header) = (size as usize, header as usize);
        let stride = (header + size).max(1).next_multiple_of(CACHE_LINE);
        let room = usize::try_from(working_set.unwrap_or(0)).unwrap_or(usize::MAX);
        Self { size, header, stride, places: (room / stride).max(1) }
    }

    /// Returns the number of positions.
    pub(crate) fn places(self) -> u64 {
        self.places as u64
    }

    /// Returns the bytes from the first position to the end of the last.
    pub(crate) fn span(self) -> usize {
        (self.places - 1) * self.stride + self.header + self.size
    }

    /// Returns the position after `offset`.
    pub(crate) fn offset_after(self, offset: usize) -> usize {
        let next = offset + self.stride;
        if next < self.places * self.stride { next } else { 0 }
    }

    /// Writes the message of each position from `base` on.
    pub(crate) fn fill(self, memory: &MemoryRegion, base: usize) -> Result {
        self.chunks(self.span(), |offset, bytes| {
            bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = pattern(offset + i));
            Ok(memory.write(base + offset, bytes)?)
        })
    }

    /// Clears every position from `base` on.
    pub(crate) fn clear(self, memory: &MemoryRegion, base: usize) -> Result {
        self.chunks(self.span(), |offset, bytes| Ok(memory.write(base + offset, bytes)?))
    }

    /// Checks that the first `used` positions from `base` on hold their messages and the others are
    /// still clear.
    pub(crate) fn check(self, memory: &MemoryRegion, base: usize, used: u64) -> Result {
        let used = usize::try_from(used).unwrap_or(usize::MAX).min(self.places) * self.stride;
        self.chunks(self.span(), |offset, bytes| {
            memory.read(base + offset, bytes)?;
            let is_wrong = |(i, byte): (usize, &u8)| {
                let at = offset + i;
                let in_place = at % self.stride;
                if at < used && in_place < self.header {
                    return false;
                }
                let gap = in_place >= self.header + self.size;
                *byte != if at < used && !gap { pattern(at - self.header) } else { 0 }
            };
            match bytes.iter().enumerate().position(is_wrong) {
                None => Ok(()),
                Some(i) => Err(CliError::new(format!(
                    "byte {} of the memory for messages of {} bytes is wrong: received data differs \
                     from sent data",
                    offset + i,
                    self.size
                ))),
            }
        })
    }

    /// Runs `work` on chunks of `len` bytes with a buffer of zeros.
    fn chunks(self, len: usize, mut work: impl FnMut(usize, &mut [u8]) -> Result) -> Result {
        let mut buffer = vec![0; CHUNK.min(len)];
        (0..len).step_by(CHUNK).try_for_each(|offset| {
            let here = CHUNK.min(len - offset);
            work(offset, &mut buffer[..here])
        })
    }
}

/// Returns the byte of an offset: never 0, and without a period near packet sizes.
fn pattern(offset: usize) -> u8 {
    ((offset as u32).wrapping_mul(0x9e37_79b1) >> 24) as u8 | 1
}

/// Bytes. Messages start on cache lines of their own, as in perftest.
const CACHE_LINE: usize = 64;
/// Bytes.
const CHUNK: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_cycle_through_the_whole_working_set() {
        let cycle = WorkingSet::new(100, 0, Some(1000));
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
    fn positions_have_room_for_the_header_of_received_messages() {
        let cycle = WorkingSet::new(100, 40, Some(1000));
        assert_eq!((cycle.offset_after(0), cycle.places()), (192, 5));
        assert_eq!(cycle.span(), 4 * 192 + 140);
    }

    #[test]
    fn without_a_working_set_there_is_one_position() {
        for (size, working_set) in [(0, None), (8, None), (1 << 20, None), (1 << 20, Some(5))] {
            let cycle = WorkingSet::new(size, 0, working_set);
            assert_eq!((cycle.places(), cycle.span()), (1, size as usize));
            assert_eq!(cycle.offset_after(0), 0);
        }
    }

    #[test]
    fn the_pattern_has_no_period_of_a_packet() {
        for distance in [8, 64, 256, 1024, 4096, 4096 * 60, 1 << 20] {
            let same = (0..4096).filter(|i| pattern(*i) == pattern(i + distance)).count();
            assert!(same < 400, "{same} bytes of 4096 are the same {distance} bytes further");
        }
    }
}
