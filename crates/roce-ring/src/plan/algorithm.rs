//! Which chunk moves in which step.

use super::Plan;
use crate::{Collective, Geometry, Operation};

/// The ways an operation can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// No message at all.
    Nothing,
    /// As small, with empty messages.
    Barrier,
    /// Reduce chunks around the ring, then pass the results around.
    Large,
    /// Reduce whole vectors towards the middle of a line, then pass the result back.
    Small,
    /// Reduce chunks around the ring, in passes.
    Scatter,
    /// Pass blocks around.
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

/// Elements of the vector that a step moves in a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// The first one's distance from the start of the vector.
    pub(super) first: u64,
    /// How many.
    pub(super) count: u64,
}

impl Plan {
    /// How often all steps are gone through.
    pub(super) fn passes(&self) -> u64 {
        match self.algorithm {
            Algorithm::Nothing => 0,
            Algorithm::Scatter => self.operation.count.div_ceil(self.elements_per_pass()),
            _ => 1,
        }
    }

    /// How many steps this rank sends in.
    pub(super) fn steps_sent(&self) -> u32 {
        let size = self.geometry.size();
        match self.algorithm {
            Algorithm::Broadcast { .. } | Algorithm::Reduce => {
                u32::from(self.distance_from_start() < size - 1)
            }
            _ => self.ring_steps(),
        }
    }

    /// How many steps this rank receives in.
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

    /// The rank's distance from the start of a chain.
    pub(super) fn distance_from_start(&self) -> u32 {
        let (rank, size) = (u64::from(self.geometry.rank()), u64::from(self.geometry.size()));
        let start = u64::from(self.operation.root) + u64::from(self.algorithm == Algorithm::Reduce);
        // Both terms are below 2^33.
        ((rank + 2 * size - start) % size) as u32
    }

    /// What is sent in a step.
    pub(super) fn sent(&self, pass: u64, step: u32) -> Extent {
        let ring = &self.geometry;
        let chunk = match self.algorithm {
            Algorithm::Large => {
                // The first chunk of the second round is the one that was finished last.
                ring.behind(step % ring.size())
            }
            Algorithm::Scatter => ring.behind(step + 1),
            _ => ring.behind(step),
        };
        self.extent(pass, chunk)
    }

    /// What is received in a step: what the previous rank sends in it.
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
                let size = u64::from(self.geometry.size());
                (number * (count / size) + number.min(count % size), self.chunk_len(chunk))
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

    /// Elements of a chunk of a large all-reduce.
    pub(super) fn chunk_len(&self, chunk: u32) -> u64 {
        let (count, size) = (self.operation.count, u64::from(self.geometry.size()));
        count / size + u64::from(u64::from(chunk) < count % size)
    }

    /// Pieces of the longest step of a pass; 1 where there is none.
    pub(super) fn max_pieces(&self, pass: u64) -> u64 {
        // No chunk is longer than the first.
        self.pieces(self.extent(pass, 0).count).max(1)
    }

    /// By how many waves a step is behind the one before; see [`Cursor`](super::cursor::Cursor).
    ///
    /// A large all-reduce sends on what it has just reduced, while that is still in the
    /// second-level cache: with 64 MiB and two ranks on two cores this is worth a twelfth. A step
    /// is behind by enough that all slots are in use before a message waits for another.
    pub(super) fn depth(&self) -> u64 {
        if self.algorithm != Algorithm::Large {
            return u64::MAX;
        }
        let slots = u64::from(self.geometry.lanes()) * u64::from(self.geometry.slots());
        slots.div_ceil(u64::from(self.ring_steps()))
    }

    /// Whether messages come into the output.
    pub(super) fn has_windows(&self) -> bool {
        matches!(
            self.algorithm,
            Algorithm::Large
                | Algorithm::Gather { window: true }
                | Algorithm::Broadcast { window: true }
        )
    }

    /// Pieces of a chunk that a pass moves at most: half of the scratch's rotation, so that one
    /// step's results can be sent while the next step's come in.
    pub(super) fn pieces_per_pass(&self) -> u64 {
        u64::from(self.geometry.slots() / 2).max(1)
    }

    fn elements_per_pass(&self) -> u64 {
        self.max_piece() * self.pieces_per_pass()
    }
}
