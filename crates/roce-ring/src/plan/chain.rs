//! The small-message algorithm: whole vectors travel to the middle of a chain, results back.
//!
//! Ranks 0 … size−1 form a chain: the ring without its link from the last to the first. Vectors
//! are reduced on their way from both ends to the middle, and the result returns the same way.
//! With an even number of ranks the two in the middle both compute it. Each link carries one
//! message in each direction: 2 (size − 1) in all, the minimum, of which size − 1 are in sequence.

use super::algorithm::Algorithm;
use super::{OnReceive, Plan, Receive, Send, Target};
use crate::{MemoryKind, MemorySpan, Side};

/// The position of a rank in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// Outside the middle, which is towards this side.
    Outer { inwards: Side },
    /// One of two in the middle; the other is at this side.
    MiddlePair { inwards: Side },
    /// The only one in the middle.
    Middle,
}

impl Plan {
    /// Returns the `index`-th message that this rank sends. The only middle rank sends the result
    /// to side `first` first.
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

    /// Returns the `index`-th message that this rank receives.
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
                // In place, the result overwrites the input, which must be sent first.
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
                // Operands keep the order of the ranks.
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

    /// Returns true for the small-message algorithm.
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

    /// Returns true if another rank is farther from the middle on this side.
    fn has_outer(&self, inwards: Side) -> bool {
        match inwards {
            Side::Next => self.geometry.rank() > 0,
            Side::Previous => self.geometry.rank() < self.geometry.size() - 1,
        }
    }

    fn chain_pieces(&self) -> u64 {
        // A barrier sends empty messages.
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
