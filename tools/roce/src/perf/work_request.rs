//! The work requests of a test's messages.

use roce_verbs::{MemoryRegion, SendOperation, SendWr, Sge, WrData};

/// The work requests of one message at any offset.
#[derive(Debug)]
pub(crate) struct WorkRequest<'a> {
    memory: &'a MemoryRegion,
    /// The operation at offset 0.
    operation: SendOperation,
    /// The SGE at offset 0.
    piece: Sge,
    /// True for inline data.
    inline: bool,
}

impl<'a> WorkRequest<'a> {
    pub(crate) fn new(
        memory: &'a MemoryRegion,
        operation: SendOperation,
        piece: Sge,
        inline: bool,
    ) -> Self {
        Self { memory, operation, piece, inline }
    }

    /// Returns the request of the message at an offset of both ends' memory.
    pub(crate) fn at(&self, offset: usize, wr_id: u64, signaled: bool) -> SendWr {
        let mut operation = self.operation;
        if let SendOperation::Write { remote, .. }
        | SendOperation::Read { remote }
        | SendOperation::CompareSwap { remote, .. }
        | SendOperation::FetchAdd { remote, .. } = &mut operation
        {
            remote.addr += offset as u64;
        }
        let data = if self.inline {
            self.bytes(offset)
        } else {
            let address = self.piece.addr + offset as u64;
            WrData::Sges([Sge { addr: address, ..self.piece }].into())
        };
        let (solicited, fence, defer_ack) = (false, false, false);
        SendWr { wr_id, operation, data, signaled, solicited, fence, defer_ack }
    }

    fn bytes(&self, offset: usize) -> WrData {
        let (mut few, mut many);
        let len = self.piece.len as usize;
        let bytes = if len <= INLINE_CAPACITY {
            few = [0; INLINE_CAPACITY];
            &mut few[..len]
        } else {
            many = vec![0; len];
            &mut many[..]
        };
        // The memory holds all positions.
        let read = self.memory.read(offset, bytes);
        debug_assert!(read.is_ok(), "{read:?}");
        WrData::Inline((&*bytes).into())
    }
}

/// Inline bytes of a request without an allocation.
const INLINE_CAPACITY: usize = 64;
