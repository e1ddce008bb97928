//! The small way: whole vectors towards the middle of the line of ranks, results back outwards.
//!
//! Ranks 0 … size−1 stand in a line: the ring without its link from the last to the first. What
//! comes from the ends is combined on its way to the middle, and the result goes back the way it
//! came. With an even number of ranks two meet in the middle and both finish it. So each link
//! carries one message each way, whatever the number of ranks: 2 (size − 1) in all, the fewest
//! there can be, and size − 1 of them one behind the other.

use super::shape::Shape;
use super::{OnReceive, Plan, Receive, Send, Target};
use crate::{MemoryKind, MemorySpan, Side};

/// Where a rank stands in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// Before the middle; its way inwards is to this side.
    Aside { inwards: Side },
    /// One of the two in the middle; the other is at this side.
    Meeting { inwards: Side },
    /// Alone in the middle.
    Middle,
}

impl Plan {
    /// The `index`-th message that this rank sends in the small way. Alone in the middle, it answers
    /// this side `first`.
    pub(super) fn line_send(&self, index: u64, first: Side) -> Option<Send> {
        let pieces = self.line_pieces();
        let (turn, piece) = (index.checked_div(pieces)?, index % pieces);
        let (side, from, after) = match (self.stand(), turn) {
            (Stand::Middle, 0 | 1) => {
                let side = if turn == 0 { first } else { first.opposite() };
                (side, MemoryKind::Output, Some(pieces + piece))
            }
            (Stand::Aside { inwards } | Stand::Meeting { inwards }, 0) => {
                match self.has_outer(inwards) {
                    true => (inwards, MemoryKind::Scratch, Some(piece)),
                    false => (inwards, MemoryKind::Input, None),
                }
            }
            (Stand::Aside { inwards } | Stand::Meeting { inwards }, 1)
                if self.has_outer(inwards) =>
            {
                (inwards.opposite(), MemoryKind::Output, Some(pieces + piece))
            }
            _ => return None,
        };
        let lane = self.line_lane(piece);
        let step = match side {
            Side::Next => self.geometry.rank(),
            Side::Previous => self.geometry.size() - 1 - self.geometry.rank(),
        };
        let from = self.line_span(from, piece);
        Some(Send { index, side, step, piece, lane, from, to: Target::Slot, after })
    }

    /// The `index`-th message that this rank receives in the small way.
    pub(super) fn line_receive(&self, index: u64) -> Option<Receive> {
        let pieces = self.line_pieces();
        let (turn, piece) = (index.checked_div(pieces)?, index % pieces);
        let (stand, into) = (self.stand(), self.line_span(MemoryKind::Output, piece));
        let (side, is_last) = match stand {
            Stand::Middle => ([Side::Previous, Side::Next].get(turn as usize).copied()?, turn == 1),
            Stand::Aside { inwards } | Stand::Meeting { inwards } => {
                let outer = u64::from(self.has_outer(inwards));
                match turn {
                    0 if outer == 1 => (inwards.opposite(), false),
                    turn if turn == outer => (inwards, true),
                    _ => return None,
                }
            }
        };
        let is_input = |inwards| !self.has_outer(inwards);
        let (own, after_sent) = match stand {
            Stand::Aside { inwards } | Stand::Meeting { inwards } if is_last => {
                // In place, the input is overwritten that was sent first.
                let memory =
                    if is_input(inwards) { MemoryKind::Input } else { MemoryKind::Scratch };
                (memory, is_input(inwards).then_some((inwards, piece)))
            }
            Stand::Middle if is_last => (MemoryKind::Scratch, None),
            _ => (MemoryKind::Input, None),
        };
        let is_copied = is_last && matches!(stand, Stand::Aside { .. });
        let then = match self.shape {
            Shape::Barrier => OnReceive::Nothing,
            _ if is_copied => OnReceive::Copy { into },
            _ => OnReceive::Reduce {
                own: self.line_span(own, piece),
                // The operands stand in the order of the ranks.
                own_is_left: side == Side::Next,
                into: if is_last { into } else { self.line_span(MemoryKind::Scratch, piece) },
                divide_by: self.divide_by().filter(|_| is_last),
            },
        };
        let step = match side {
            Side::Previous => self.geometry.rank() - 1,
            Side::Next => self.geometry.size() - 2 - self.geometry.rank(),
        };
        let (lane, len) = (self.line_lane(piece), into.len);
        Some(Receive { index, side, step, piece, lane, len, to: Target::Slot, then, after_sent })
    }

    /// Whether it goes the small way.
    pub(super) const fn is_line(&self) -> bool {
        matches!(self.shape, Shape::Small | Shape::Barrier)
    }

    fn stand(&self) -> Stand {
        let (rank, last) = (u64::from(self.geometry.rank()), u64::from(self.geometry.size()) - 1);
        let inwards = if 2 * rank < last { Side::Next } else { Side::Previous };
        match (2 * rank).abs_diff(last) {
            0 => Stand::Middle,
            1 => Stand::Meeting { inwards },
            _ => Stand::Aside { inwards },
        }
    }

    /// Whether there is a rank farther from the middle.
    fn has_outer(&self, inwards: Side) -> bool {
        match inwards {
            Side::Next => self.geometry.rank() > 0,
            Side::Previous => self.geometry.rank() < self.geometry.size() - 1,
        }
    }

    fn line_pieces(&self) -> u64 {
        // A barrier's messages are empty, and sent all the same.
        if self.shape == Shape::Barrier { 1 } else { self.pieces(self.operation.count) }
    }

    fn line_lane(&self, piece: u64) -> u32 {
        (piece % u64::from(self.geometry.lanes())) as u32
    }

    fn line_span(&self, memory: MemoryKind, piece: u64) -> MemorySpan {
        let first = piece * self.max_piece();
        self.span(memory, first, (self.operation.count - first).min(self.max_piece()))
    }
}
