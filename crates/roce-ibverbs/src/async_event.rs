//! Asynchronous events.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

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
use crate::object;
use crate::queue_pair::QueuePair;
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::wait::{self, Attempt, Woken};

impl ContextInner {
    /// Takes the next event whose object exists, and counts it as delivered.
    fn take_event(&self) -> Option<ibv_async_event> {
        // From the event to the count, so that destroying the object comes before or after both.
        let objects = self.objects();
        loop {
            let event = self.device.fetch_event()?;
            let element = match event.source() {
                EventSource::Port => ibv_async_element { port_num: 1 },
                source => {
                    let Some(target) = objects.get(&source) else { continue };
                    target.acks.deliver();
                    ibv_async_element { object: ptr::with_exposed_provenance_mut(target.address) }
                }
            };
            return Some(ibv_async_event { element, event_type: type_of(event) });
        }
    }
}

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

thread_local! {
    /// The context on whose events the calling thread waits, which may be closed meanwhile. The
    /// thread may be cancelled, so that the function that waits owns nothing.
    static WAITED_ON: Cell<Option<Arc<ContextInner>>> = const { Cell::new(None) };
}

/// Tries to fetch an event.
fn fetch(context: &ContextInner, woken: Woken, event: &mut ibv_async_event) -> Attempt {
    if context.device.is_inherited() {
        return Attempt::Failed(EIO);
    }
    if woken == Woken::ByRead {
        context.device.note_event_read();
    }
    context.device.run_round();
    let mut take = || context.take_event().map(|taken| *event = taken).is_some();
    if take() {
        return Attempt::Fetched;
    }
    let attempt = wait::after_nothing(
        woken,
        (context.device.event_fd(), wait::Kind::Pipe),
        std::slice::from_ref(&context.device),
        &mut take,
    );
    if matches!(attempt, Attempt::Sleep(_)) {
        context.device.leave_to_threads();
    }
    attempt
}

/// `ibv_get_async_event`
pub(crate) extern "C-unwind" fn get(context: ContextPtr, event: &mut ibv_async_event) -> c_int {
    let inner = Arc::as_ptr(context.inner());
    // The destructors of a thread that ends may wait, too; they do not close the context meanwhile.
    let _ended = WAITED_ON.try_with(|it| it.set(Some(Arc::clone(context.inner()))));
    // SAFETY: the thread keeps it alive until the line below, or until it ends.
    let result = wait::repeat(|woken| fetch(unsafe { &*inner }, woken, event));
    let _ended = WAITED_ON.try_with(Cell::take);
    result
}

/// `ibv_ack_async_event`
pub(crate) unsafe extern "C" fn ack(event: &ibv_async_event) {
    // SAFETY: the program passes an event of `get`, and does not destroy the object before.
    unsafe {
        let named = event.element.object;
        match event.event_type {
            IBV_EVENT_CQ_ERR => {
                object::lend::<CompletionQueue>(named.cast()).acknowledge_event();
            }
            IBV_EVENT_SRQ_LIMIT_REACHED => {
                object::lend::<SharedReceiveQueue>(named.cast()).acknowledge_event();
            }
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_QP_LAST_WQE_REACHED => {
                object::lend::<QueuePair>(named.cast()).acknowledge_event();
            }
            _ => {}
        }
    }
}
