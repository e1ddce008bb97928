//! The small way: whole vectors towards the middle of the line of ranks, results back outwards.
//!
//! Ranks 0 … size−1 stand in a line: the ring without its link from the last to the first. What
//! comes from the ends is combined on its way to the middle, and the result goes back the way it
//! came. With an even number of ranks two meet in the middle and both finish it. So each link
//! carries one message each way, whatever the number of ranks: 2 (size − 1) in all, the fewest
//! there can be, and size − 1 of them one behind the other.

use super::algorithm::Algorithm;
use super::{OnReceive, Plan, Receive, Send, Target};
use crate::{MemoryKind, MemorySpan, Side};

/// Where a rank stands in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// Before the middle; its way inwards is to this side.
    Outer { inwards: Side },
    /// One of the two in the middle; the other is at this side.
    MiddlePair { inwards: Side },
    /// Alone in the middle.
    Middle,
}

impl Plan {
    /// The `index`-th message that this rank sends in the small way. Alone in the middle, it answers
    /// this side `first`.
    pub(super) fn chain_send(&self, index: u64, first: Side) -> Option<Send> {
        let pieces = self.chain_pieces();
        let (turn, piece) = (index.checked_div(pieces)?, index % pieces);
        let (side, from, after) = match (self.position(), turn) {
            (Position::Middle, 0 | 1) => {
                let side = if turn == 0 { first } else { first.opposite() };
                (side, MemoryKind::Output, Some(pieces + piece))
            }
            (Position::Outer { inwards } | Position::MiddlePair { inwards }, 0) => {
                match self.has_outer(inwards) {
                    true => (inwards, MemoryKind::Scratch, Some(piece)),
                    false => (inwards, MemoryKind::Input, None),
                }
            }
            (Position::Outer { inwards } | Position::MiddlePair { inwards }, 1)
                if self.has_outer(inwards) =>
            {
                (inwards.opposite(), MemoryKind::Output, Some(pieces + piece))
            }
            _ => return None,
        };
        let lane = self.chain_lane(piece);
        let step = match side {
            Side::Next => self.geometry.rank(),
            Side::Previous => self.geometry.size() - 1 - self.geometry.rank(),
        };
        let from = self.chain_span(from, piece);
        Some(Send { index, side, step, piece, lane, from, to: Target::Slot, after })
    }

    /// The `index`-th message that this rank receives in the small way.
    pub(super) fn chain_receive(&self, index: u64) -> Option<Receive> {
        let pieces = self.chain_pieces();
        let (turn, piece) = (index.checked_div(pieces)?, index % pieces);
        let (position, into) = (self.position(), self.chain_span(MemoryKind::Output, piece));
        let (side, is_last) = match position {
            Position::Middle => {
                ([Side::Previous, Side::Next].get(turn as usize).copied()?, turn == 1)
            }
            Position::Outer { inwards } | Position::MiddlePair { inwards } => {
                let outer = u64::from(self.has_outer(inwards));
                match turn {
                    0 if outer == 1 => (inwards.opposite(), false),
                    turn if turn == outer => (inwards, true),
                    _ => return None,
                }
            }
        };
        let is_input = |inwards| !self.has_outer(inwards);
        let (own, after_sent) = match position {
            Position::Outer { inwards } | Position::MiddlePair { inwards } if is_last => {
                // In place, the input is overwritten that was sent first.
                let memory =
                    if is_input(inwards) { MemoryKind::Input } else { MemoryKind::Scratch };
                (memory, is_input(inwards).then_some((inwards, piece)))
            }
            Position::Middle if is_last => (MemoryKind::Scratch, None),
            _ => (MemoryKind::Input, None),
        };
        let is_copied = is_last && matches!(position, Position::Outer { .. });
        let then = match self.algorithm {
            Algorithm::Barrier => OnReceive::Nothing,
            _ if is_copied => OnReceive::Copy { into },
            _ => OnReceive::Reduce {
                own: self.chain_span(own, piece),
                // The operands stand in the order of the ranks.
                own_is_left: side == Side::Next,
                into: if is_last { into } else { self.chain_span(MemoryKind::Scratch, piece) },
                divide_by: self.divide_by().filter(|_| is_last),
            },
        };
        let step = match side {
            Side::Previous => self.geometry.rank() - 1,
            Side::Next => self.geometry.size() - 2 - self.geometry.rank(),
        };
        let (lane, len) = (self.chain_lane(piece), into.len);
        Some(Receive { index, side, step, piece, lane, len, to: Target::Slot, then, after_sent })
    }

    /// Whether it goes the small way.
    pub(super) const fn is_chain(&self) -> bool {
        matches!(self.algorithm, Algorithm::Small | Algorithm::Barrier)
    }

    fn position(&self) -> Position {
        let (rank, last) = (u64::from(self.geometry.rank()), u64::from(self.geometry.size()) - 1);
        let inwards = if 2 * rank < last { Side::Next } else { Side::Previous };
        match (2 * rank).abs_diff(last) {
            0 => Position::Middle,
            1 => Position::MiddlePair { inwards },
            _ => Position::Outer { inwards },
        }
    }

    /// Whether there is a rank farther from the middle.
    fn has_outer(&self, inwards: Side) -> bool {
        match inwards {
            Side::Next => self.geometry.rank() > 0,
            Side::Previous => self.geometry.rank() < self.geometry.size() - 1,
        }
    }

    fn chain_pieces(&self) -> u64 {
        // A barrier's messages are empty, and sent all the same.
        if self.algorithm == Algorithm::Barrier { 1 } else { self.pieces(self.operation.count) }
    }

    fn chain_lane(&self, piece: u64) -> u32 {
        (piece % u64::from(self.geometry.lanes())) as u32
    }

    fn chain_span(&self, memory: MemoryKind, piece: u64) -> MemorySpan {
        let first = piece * self.max_piece();
        self.span(memory, first, (self.operation.count - first).min(self.max_piece()))
    }
}
