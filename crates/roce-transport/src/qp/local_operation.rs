//! Executes the requests of a send queue that send no packet.

use crate::{Accessor, CompletionStatus, Memory, SendOperation};

/// Executes a local operation, whose turn it is: everything before it is complete. Does nothing for other
/// operations.
///
/// # Errors
/// The operation fails with this status.
//= rule rc-local-invalidate: InfiniBand, clause not known; rxe_req.c: rxe_do_local_ops
//# A local invalidation is executed in the order of the send queue.
//= rule mw-bind-order: InfiniBand, clause not known; rxe_req.c: rxe_do_local_ops
//# A memory window is bound in the order of the send queue, and requests behind follow the binding.
pub(crate) fn execute_local(
    operation: &SendOperation,
    by: Accessor,
    memory: &mut impl Memory,
) -> Result<(), CompletionStatus> {
    match operation {
        SendOperation::LocalInvalidate { key } => {
            memory.invalidate(by, *key).map_err(|_| CompletionStatus::LocalQpOperationError)
        }
        //= rule mw-bind-failed: InfiniBand, clause not known; rxe_req.c: rxe_do_local_ops
        //# A binding that is not allowed fails with a window bind error, and the queue pair goes to
        //# ERROR; one of UC goes to SQE.
        SendOperation::BindWindow(to) => {
            memory.bind_window(by, to).map_err(|_| CompletionStatus::MemoryWindowBindError)
        }
        _ => Ok(()),
    }
}
