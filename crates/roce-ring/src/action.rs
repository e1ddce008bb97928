//! What a machine asks its driver to do.

use crate::{Compute, MemorySpan, Side};

/// What to do next. Drivers do it in the order in which it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Post an RDMA WRITE with immediate on the queue pair to a neighbour.
    ///
    /// `from` stays untouched until its completion was handed to
    /// [`handle_sent`](crate::Machine::handle_sent).
    Write {
        /// Which neighbour.
        side: Side,
        /// The lane.
        lane: u32,
        /// For `handle_sent`.
        id: u64,
        /// The step of the operation.
        step: u32,
        /// The piece of the step's chunk.
        piece: u64,
        /// Which bytes; may be none.
        from: MemorySpan,
        /// Where to.
        to: Remote,
        /// The immediate.
        immediate: u32,
    },
    /// Post a zero-length RDMA WRITE with immediate on the queue pair to a neighbour.
    Credit {
        /// Which neighbour.
        side: Side,
        /// The lane.
        lane: u32,
        /// For `handle_sent`.
        id: u64,
        /// The immediate.
        immediate: u32,
    },
    /// Post an RDMA WRITE with immediate on the queue pair to the previous rank: the
    /// [`WindowRecord`](crate::WindowRecord) of our output, into that rank's record.
    Announce {
        /// The lane.
        lane: u32,
        /// For `handle_sent`.
        id: u64,
        /// The immediate.
        immediate: u32,
        /// Bytes of the operation's output: the length to announce.
        length: u64,
    },
    /// Post a receive on the queue pair at that side: what came was no data.
    Rearm {
        /// Which neighbour's queue pair.
        side: Side,
        /// The lane.
        lane: u32,
    },
    /// Compute, before anything else is done: [`Workspace::execute`](crate::Workspace::execute).
    Compute(Compute),
    /// The message of this step was taken in, and computed with: post a receive on the queue pair
    /// at that side. The rest is for records.
    Received {
        /// Which neighbour it came from.
        side: Side,
        /// The lane.
        lane: u32,
        /// The step of the operation.
        step: u32,
        /// The piece of the step's chunk.
        piece: u64,
        /// Its length.
        bytes: u64,
    },
}

/// Where a write goes at the neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// Into the lane's staging.
    Slot {
        /// Which slot.
        index: u32,
        /// The slot's distance in bytes from the start of the lane's staging.
        offset: u64,
    },
    /// Into the output that the rank announced.
    Window {
        /// The remote address of the first byte.
        address: u64,
        /// The remote key.
        key: u32,
        /// The first byte's distance from the start of the output.
        offset: u64,
    },
}
