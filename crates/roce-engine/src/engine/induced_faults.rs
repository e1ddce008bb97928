//! Faults of completions that the consumer asks for.

use std::collections::BTreeMap;

use roce_transport::{Completion, Endpoint, Instant, Observer, WorkQueue};

use crate::consumer::CompletionFault;

/// Name of the counter of events that were raised.
pub(super) const RAISED_EVENTS: &str = "fault_raised_events";

/// Lets a completion meet a fault, with its queue pair.
#[cold]
pub(super) fn inject<O: Observer>(
    endpoint: &mut Endpoint<O>,
    counters: &mut BTreeMap<&'static str, u64>,
    now: Instant,
    fault: CompletionFault,
    completion: &mut Completion,
) {
    for event in fault.events {
        endpoint.raise(now, event);
        *counters.entry(RAISED_EVENTS).or_default() += 1;
    }
    if let Some((status, counter)) = fault.status {
        completion.status = status;
        let queue = match completion.operation.is_receive() {
            true => WorkQueue::Receive,
            false => WorkQueue::Send,
        };
        endpoint.fail_qp(now, completion.qpn, queue);
        *counters.entry(counter).or_default() += 1;
    }
}
