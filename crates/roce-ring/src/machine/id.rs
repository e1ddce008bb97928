//! The ids of sends.

use crate::Side;

/// An id holds the number of the send in bits 0 to 47, the lane in 48 to 62, the side in 63.
const LANE_SHIFT: u32 = 48;
const SIDE_SHIFT: u32 = 63;
const NUMBER_MASK: u64 = (1 << LANE_SHIFT) - 1;

/// Returns the id of a queue pair's `number`-th send.
pub(super) fn join(side: Side, lane: u32, number: u64) -> u64 {
    u64::from(side == Side::Previous) << SIDE_SHIFT
        | u64::from(lane) << LANE_SHIFT
        | number & NUMBER_MASK
}

/// Returns side, lane and number (mod 2^48) of an id.
pub(super) fn split(id: u64) -> (Side, u32, u64) {
    let side = if id >> SIDE_SHIFT == 1 { Side::Previous } else { Side::Next };
    (side, (id >> LANE_SHIFT) as u32 & 0x7fff, id & NUMBER_MASK)
}

/// The numbers of posted and of completed sends of one queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    pub(super) posted: u64,
    pub(super) completed: u64,
}

impl Queue {
    /// Counts one posted send and returns its number.
    pub(super) fn post(&mut self) -> u64 {
        self.posted += 1;
        self.posted - 1
    }

    /// Counts the sends up to `number` (mod 2^48) as completed; false if it is not outstanding.
    pub(super) fn complete(&mut self, number: u64) -> bool {
        let newly = (number + 1).wrapping_sub(self.completed) & NUMBER_MASK;
        let good = (1..=self.in_flight()).contains(&newly);
        self.completed += if good { newly } else { 0 };
        good
    }

    /// Returns true if `number` (mod 2^48) is the send posted last.
    pub(super) fn is_last(&self, number: u64) -> bool {
        self.posted > 0 && (self.posted - 1) & NUMBER_MASK == number
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.posted - self.completed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_split_as_it_was_joined() {
        for side in [Side::Previous, Side::Next] {
            for lane in [0, 63] {
                for number in [0, NUMBER_MASK] {
                    assert_eq!(split(join(side, lane, number)), (side, lane, number));
                }
            }
        }
    }

    #[test]
    fn only_outstanding_sends_complete_and_only_once() {
        let mut queue = Queue { posted: NUMBER_MASK + 3, completed: NUMBER_MASK };
        assert!(!queue.complete(NUMBER_MASK - 1)); // completed before
        assert!(!queue.complete(2)); // not posted yet
        assert!(queue.complete(0)); // the number after the wrap, and the one before it
        assert_eq!(queue.in_flight(), 1);
        assert!(!queue.complete(0));
        assert!(queue.complete(1));
        assert_eq!(queue.in_flight(), 0);
    }
}
