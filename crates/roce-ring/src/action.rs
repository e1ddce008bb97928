//! Actions that a machine asks its driver to perform.

use crate::{Compute, MemorySpan, Side};

/// The next thing to do. Drivers perform actions in the order in which they get them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Post an RDMA WRITE with immediate on the queue pair to a neighbour.
    ///
    /// `from` must not change until the completion was passed to
    /// [`handle_sent`](crate::Machine::handle_sent).
    Write {
        /// The neighbour.
        side: Side,
        /// The lane.
        lane: u32,
        /// The id to pass to `handle_sent`.
        id: u64,
        /// The step of the operation.
        step: u32,
        /// The piece of the step's chunk.
        piece: u64,
        /// The bytes to send; may be empty.
        from: MemorySpan,
        /// The destination.
        to: Remote,
        /// The immediate.
        immediate: u32,
    },
    /// Post a zero-length RDMA WRITE with immediate on the queue pair to a neighbour.
    Credit {
        /// The neighbour.
        side: Side,
        /// The lane.
        lane: u32,
        /// The id to pass to `handle_sent`.
        id: u64,
        /// The immediate.
        immediate: u32,
    },
    /// Post an RDMA WRITE with immediate on the queue pair to the previous rank. It writes the
    /// [`WindowRecord`](crate::WindowRecord) of this rank's output into that rank's record.
    Announce {
        /// The lane.
        lane: u32,
        /// The id to pass to `handle_sent`.
        id: u64,
        /// The immediate.
        immediate: u32,
        /// The length to announce: bytes of the operation's output.
        length: u64,
    },
    /// Post a receive on the queue pair at that side: the message carried no data.
    Rearm {
        /// The neighbour at the queue pair's other end.
        side: Side,
        /// The lane.
        lane: u32,
    },
    /// Compute before performing any other action:
    /// [`Workspace::execute`](crate::Workspace::execute).
    Compute(Compute),
    /// Post a receive on the queue pair at that side: the step's message was consumed. The other
    /// fields are for records.
    Received {
        /// The neighbour that sent it.
        side: Side,
        /// The lane.
        lane: u32,
        /// The step of the operation.
        step: u32,
        /// The piece of the step's chunk.
        piece: u64,
        /// The length of the message in bytes.
        bytes: u64,
    },
}

/// The destination of a write at the neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// A slot of the lane's staging memory.
    Slot {
        /// The index of the slot.
        index: u32,
        /// The slot's offset in bytes from the start of the lane's staging memory.
        offset: u64,
    },
    /// The output buffer that the rank announced.
    Window {
        /// The remote address of the first byte.
        address: u64,
        /// The remote key.
        key: u32,
        /// The offset of the first byte from the start of the output.
        offset: u64,
    },
}
