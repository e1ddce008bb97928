//! Checks requests before they are posted.

use roce_wire::Service;

use crate::qp::context::QpContext;
use crate::qp::receive_queue::ReceiveQueue;
use crate::qp::segmentation::packets_for;
use crate::{
    MAX_MESSAGE_LEN, MAX_POSTED_LEN, PostError, QpState, RecvWr, SendOperation, SendWr, WrData,
};

/// Checks a send request. Returns its bytes and the sequence numbers that it uses.
pub(crate) fn validate_send(
    work: &SendWr,
    qp: &QpContext,
    queued: usize,
) -> Result<(u64, u32), PostError> {
    let capacities = &qp.init.cap;
    let state = qp.state;
    let takes_work =
        state.is_sending() || matches!(state, QpState::Error | QpState::SendQueueError);
    if !takes_work {
        return Err(PostError::WrongState { state });
    }
    if queued >= capacities.max_send_wr as usize {
        return Err(PostError::SendQueueFull { capacity: capacities.max_send_wr });
    }
    if qp.init.service != Service::Rc {
        validate_service(&work.operation, qp.init.service)?;
    }
    let len = work.data.len();
    match &work.data {
        WrData::Sges(list) if list.len() > capacities.max_send_sge as usize => {
            let (count, max) = (list.len(), capacities.max_send_sge);
            return Err(PostError::TooManySges { count, max });
        }
        WrData::Inline(_) if work.operation.returns_data() => return Err(PostError::InlineResult),
        WrData::Inline(_) if len > u64::from(capacities.max_inline) => {
            return Err(PostError::InlineTooLong { len, max: capacities.max_inline });
        }
        _ => {}
    }
    if len > MAX_POSTED_LEN {
        return Err(PostError::MessageTooLong { len });
    }
    let packets = packets_for(len, qp.params.mtu);
    match work.operation {
        SendOperation::Send { immediate: Some(_), invalidate: Some(_) } => {
            return Err(PostError::TwoTrailers);
        }
        operation if operation.is_local() => return Ok((len, 0)),
        operation if operation.is_atomic() && len != 8 => {
            return Err(PostError::AtomicLength { len });
        }
        operation if operation.has_empty_response() && len != 0 => {
            return Err(PostError::UnexpectedData { len });
        }
        SendOperation::Flush { len, .. } if u64::from(len) > MAX_MESSAGE_LEN => {
            return Err(PostError::MessageTooLong { len: len.into() });
        }
        _ => {}
    }
    // In ERROR it is flushed, whatever it is.
    let uses_resource = work.operation.returns_data() || work.operation.has_empty_response();
    if uses_resource && qp.params.max_rd_atomic == 0 && state.is_sending() {
        return Err(PostError::NoReadsAllowed);
    }
    Ok((len, packets))
}

/// Checks that a service other than RC has this operation.
//= rule qp-operations-of-service: InfiniBand, clause not known; rxe_opcode.c: rxe_wr_opcode_info
//# UC has SEND, WRITE and the binding of memory windows, UD has SEND; neither has READ, atomics or
//# keys to invalidate.
fn validate_service(operation: &SendOperation, service: Service) -> Result<(), PostError> {
    let is_known = matches!(
        (service, operation),
        (_, SendOperation::Send { invalidate: None, .. })
            | (Service::Uc, SendOperation::Write { .. } | SendOperation::BindWindow(_))
    );
    if is_known {
        return Ok(());
    }
    Err(PostError::NotOfService { service, operation: operation.completion_operation() })
}

/// Checks a request for the queue pair's `own` receive queue. `held` receives are taken and may be put
/// back.
pub(crate) fn validate_recv(
    work: &RecvWr,
    qp: &QpContext,
    own: &ReceiveQueue,
    held: u32,
) -> Result<(), PostError> {
    let capacities = &qp.init.cap;
    if qp.state == QpState::Reset {
        return Err(PostError::WrongState { state: qp.state });
    }
    if own.len() + held >= capacities.max_recv_wr {
        return Err(PostError::ReceiveQueueFull { capacity: capacities.max_recv_wr });
    }
    let (count, max) = (work.sg_list.len(), capacities.max_recv_sge);
    if count > max as usize {
        return Err(PostError::TooManySges { count, max });
    }
    Ok(())
}
