//! Asynchronous events.

use std::ffi::c_int;
use std::ptr;

use libc::EIO;
use roce_abi::{
    IBV_EVENT_COMM_EST, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_GID_CHANGE,
    IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL,
    IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SQ_DRAINED,
    IBV_EVENT_SRQ_LIMIT_REACHED, ibv_async_element, ibv_async_event,
};
use roce_verbs::{AsyncEvent, EventSource};

use crate::completion_queue::CompletionQueue;
use crate::context::{ContextInner, ContextPtr};
use crate::queue_pair::QueuePair;
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::{errno, object, wait};

/// Returns the number of an event.
fn type_of(event: AsyncEvent) -> c_int {
    match event {
        AsyncEvent::QpRequestError { .. } => IBV_EVENT_QP_REQ_ERR,
        AsyncEvent::QpAccessError { .. } => IBV_EVENT_QP_ACCESS_ERR,
        AsyncEvent::CommunicationEstablished { .. } => IBV_EVENT_COMM_EST,
        AsyncEvent::SendQueueDrained { .. } => IBV_EVENT_SQ_DRAINED,
        AsyncEvent::SrqLimitReached { .. } => IBV_EVENT_SRQ_LIMIT_REACHED,
        AsyncEvent::LastWqeReached { .. } => IBV_EVENT_QP_LAST_WQE_REACHED,
        AsyncEvent::CqError { .. } => IBV_EVENT_CQ_ERR,
        AsyncEvent::PortActive => IBV_EVENT_PORT_ACTIVE,
        AsyncEvent::PortError => IBV_EVENT_PORT_ERR,
        AsyncEvent::GidChange => IBV_EVENT_GID_CHANGE,
        AsyncEvent::DeviceFatal => IBV_EVENT_DEVICE_FATAL,
        _ => IBV_EVENT_QP_FATAL,
    }
}

/// Takes the next event whose object exists.
fn take(context: &ContextInner) -> Option<ibv_async_event> {
    loop {
        let event = context.device.poll_event()?;
        let element = match event.source() {
            EventSource::Port => ibv_async_element { port_num: 1 },
            source => match context.object(source) {
                Some(target) => {
                    target.acks.deliver();
                    ibv_async_element { object: ptr::with_exposed_provenance_mut(target.address) }
                }
                None => continue,
            },
        };
        return Some(ibv_async_event { element, event_type: type_of(event) });
    }
}

/// `ibv_get_async_event`
pub(crate) extern "C" fn get(context: ContextPtr, event: &mut ibv_async_event) -> c_int {
    // Not the context itself, which may be closed while a thread waits.
    let inner = std::sync::Arc::clone(context.inner());
    if inner.device.is_inherited() {
        errno::set(EIO);
        return -1;
    }
    loop {
        if let Some(next) = take(&inner) {
            *event = next;
            return 0;
        }
        if let Err(errno) = wait::until_readable(inner.device.event_fd()) {
            errno::set(errno);
            return -1;
        }
    }
}

/// `ibv_ack_async_event`
pub(crate) extern "C" fn ack(event: &ibv_async_event) {
    // SAFETY: the program passes an event of `get`, and does not destroy the object before.
    unsafe {
        let named = event.element.object;
        match event.event_type {
            IBV_EVENT_CQ_ERR => {
                object::lend::<CompletionQueue>(named.cast()).async_acks().acknowledge(1);
            }
            IBV_EVENT_SRQ_LIMIT_REACHED => {
                object::lend::<SharedReceiveQueue>(named.cast()).acks().acknowledge(1);
            }
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_QP_LAST_WQE_REACHED => {
                object::lend::<QueuePair>(named.cast()).acks().acknowledge(1);
            }
            _ => {}
        }
    }
}
