//! Faults of completions that the consumer asks for.

use roce_transport::{AsyncEvent, Completion, Endpoint, Instant, Observer, WorkQueue};

use super::drops::Drops;
use crate::consumer::CompletionFault;

/// Raises events, and counts them.
pub(super) fn raise<O: Observer>(
    endpoint: &mut Endpoint<O>,
    drops: &mut Drops,
    now: Instant,
    events: Vec<AsyncEvent>,
) {
    for event in events {
        endpoint.raise(now, event);
        drops.count("fault_raised_events");
    }
}

/// Lets a completion meet a fault, with its queue pair.
#[cold]
pub(super) fn inject<O: Observer>(
    endpoint: &mut Endpoint<O>,
    drops: &mut Drops,
    now: Instant,
    fault: CompletionFault,
    completion: &mut Completion,
) {
    raise(endpoint, drops, now, fault.events);
    if let Some((status, counter)) = fault.status {
        completion.status = status;
        let queue = match completion.operation.is_receive() {
            true => WorkQueue::Receive,
            false => WorkQueue::Send,
        };
        endpoint.fail_qp(now, completion.qpn, queue);
        drops.count(counter);
    }
}
