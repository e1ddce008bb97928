//! The algorithms, and the chunk that each moves in each step.

use std::ops::Range;

use super::Plan;
use crate::{Collective, Geometry, Operation};

/// The algorithm of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// No messages.
    Nothing,
    /// The small-message algorithm with empty messages.
    Barrier,
    /// Reduce chunks around the ring, then forward the results around it.
    Large,
    /// Reduce whole vectors towards the middle of a chain, then return the result.
    Small,
    /// Reduce chunks around the ring, in passes.
    Scatter,
    /// Forward blocks around the ring.
    Gather { window: bool },
    /// A chain from the root.
    Broadcast { window: bool },
    /// A chain to the root.
    Reduce,
}

impl Algorithm {
    pub(super) fn of(operation: &Operation, geometry: &Geometry) -> Self {
        let Operation { collective, count, data_type, .. } = *operation;
        if geometry.size() == 1 || (count == 0 && collective != Collective::Barrier) {
            return Self::Nothing;
        }
        let large = |ranks: u32| {
            count * data_type.size() as u64 * u64::from(ranks) > geometry.small_message_max()
        };
        match collective {
            Collective::AllReduce if large(1) => Self::Large,
            Collective::AllReduce => Self::Small,
            Collective::ReduceScatter => Self::Scatter,
            Collective::AllGather => Self::Gather { window: large(geometry.size()) },
            Collective::Broadcast => Self::Broadcast { window: large(1) },
            Collective::Reduce => Self::Reduce,
            Collective::Barrier => Self::Barrier,
        }
    }
}

/// Returns the elements of a chunk of a large all-reduce of `count` elements: the first ones have one
/// element more if `ranks`, which is not 0, does not divide the count.
///
/// ```
/// assert_eq!(roce_ring::chunk_of(7, 3, 0), 0..3);
/// assert_eq!(roce_ring::chunk_of(7, 3, 2), 5..7);
/// ```
pub fn chunk_of(count: u64, ranks: u32, chunk: u32) -> Range<u64> {
    let (number, size) = (u64::from(chunk), u64::from(ranks));
    let first = number * (count / size) + number.min(count % size);
    first..first + count / size + u64::from(number < count % size)
}

/// Elements of the vector that a step moves in a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// The index of the first element.
    pub(super) first: u64,
    /// The number of elements.
    pub(super) count: u64,
}

impl Plan {
    /// Returns the number of passes over all steps.
    pub(super) fn passes(&self) -> u64 {
        match self.algorithm {
            Algorithm::Nothing => 0,
            Algorithm::Scatter => self.operation.count.div_ceil(self.elements_per_pass()),
            _ => 1,
        }
    }

    /// Returns the number of steps in which this rank sends.
    pub(super) fn steps_sent(&self) -> u32 {
        let size = self.geometry.size();
        match self.algorithm {
            Algorithm::Broadcast { .. } | Algorithm::Reduce => {
                u32::from(self.distance_from_start() < size - 1)
            }
            _ => self.ring_steps(),
        }
    }

    /// Returns the number of steps in which this rank receives.
    pub(super) fn steps_received(&self) -> u32 {
        match self.algorithm {
            Algorithm::Broadcast { .. } | Algorithm::Reduce => {
                u32::from(self.distance_from_start() > 0)
            }
            _ => self.ring_steps(),
        }
    }

    fn ring_steps(&self) -> u32 {
        let once_around = self.geometry.size() - 1;
        if self.algorithm == Algorithm::Large { 2 * once_around } else { once_around }
    }

    /// Returns the rank's distance from the first rank of a chain.
    pub(super) fn distance_from_start(&self) -> u32 {
        let (rank, size) = (u64::from(self.geometry.rank()), u64::from(self.geometry.size()));
        let start = u64::from(self.operation.root) + u64::from(self.algorithm == Algorithm::Reduce);
        // Both terms are below 2^33.
        ((rank + 2 * size - start) % size) as u32
    }

    /// Returns the elements sent in a step.
    pub(super) fn sent(&self, pass: u64, step: u32) -> Extent {
        let ring = &self.geometry;
        let chunk = match self.algorithm {
            Algorithm::Large => {
                // The second round starts with the chunk that was completed last.
                ring.behind(step % ring.size())
            }
            Algorithm::Scatter => ring.behind(step + 1),
            _ => ring.behind(step),
        };
        self.extent(pass, chunk)
    }

    /// Returns the elements received in a step: those that the previous rank sends in it.
    pub(super) fn received(&self, pass: u64, step: u32) -> Extent {
        let ring = &self.geometry;
        let chunk = match self.algorithm {
            Algorithm::Large => {
                let around = ring.size() - 1;
                if step < around { ring.behind(step + 1) } else { ring.behind(step - around) }
            }
            Algorithm::Scatter => ring.behind(step + 2),
            _ => ring.behind(step + 1),
        };
        self.extent(pass, chunk)
    }

    fn extent(&self, pass: u64, chunk: u32) -> Extent {
        let count = self.operation.count;
        let number = u64::from(chunk);
        let (first, count) = match self.algorithm {
            Algorithm::Large => {
                let chunk = chunk_of(count, self.geometry.size(), chunk);
                (chunk.start, chunk.end - chunk.start)
            }
            Algorithm::Gather { .. } => (number * count, count),
            Algorithm::Scatter => {
                let done = pass * self.elements_per_pass();
                (number * count + done, (count - done).min(self.elements_per_pass()))
            }
            _ => (0, count),
        };
        Extent { first, count }
    }

    /// Returns the number of pieces of the longest step of a pass, at least 1.
    pub(super) fn max_pieces(&self, pass: u64) -> u64 {
        // No chunk is longer than the first.
        self.pieces(self.extent(pass, 0).count).max(1)
    }

    /// Returns the number of waves between consecutive steps; see
    /// [`Cursor`](super::cursor::Cursor).
    ///
    /// A large all-reduce forwards a partial result while it is still in the L2 cache: this takes a
    /// twelfth off 64 MiB with two ranks on two cores. The distance lets all slots be in use
    /// before a message waits for another.
    pub(super) fn depth(&self) -> u64 {
        if self.algorithm != Algorithm::Large {
            return u64::MAX;
        }
        let slots = u64::from(self.geometry.lanes()) * u64::from(self.geometry.slots());
        slots.div_ceil(u64::from(self.ring_steps()))
    }

    /// Returns true if messages are written directly to the output.
    pub(super) fn has_windows(&self) -> bool {
        matches!(
            self.algorithm,
            Algorithm::Large
                | Algorithm::Gather { window: true }
                | Algorithm::Broadcast { window: true }
        )
    }

    /// Returns the most pieces of a chunk per pass: half of the scratch rotation, so that one
    /// step's results are sent while the next step's arrive.
    pub(super) fn pieces_per_pass(&self) -> u64 {
        u64::from(self.geometry.slots() / 2).max(1)
    }

    fn elements_per_pass(&self) -> u64 {
        self.max_piece() * self.pieces_per_pass()
    }
}
