//! Traces: bounded queues of time-stamped events of devices.

mod event;
mod observer;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use roce_wire::Qpn;

pub use event::{TraceEvent, TraceKind, TraceValue};
pub(crate) use observer::TraceObserver;

/// Collects events of devices, with time stamps, until the program drains it.
///
/// Passed to [`Device::open`](crate::Device::open) in
/// [`DeviceConfig::trace`](crate::DeviceConfig::trace); several devices may share one.
/// Clones are the same trace.
///
/// It holds at most `capacity` events. When it is full, further events are dropped and counted:
/// those that [`lost`](Self::lost) counts came after all that it holds. An event
/// costs the reading of a clock and a short lock, 100 to 200 ns; without a trace it costs
/// one branch that is never taken.
///
/// ```
/// use roce_verbs::Trace;
/// let trace = Trace::new(1 << 16);
/// // let device = Device::open("eth0", DeviceConfig { trace: Some(trace.clone()), .. })?;
/// for event in trace.drain() {
///     println!("{event}");
/// }
/// assert_eq!(trace.lost(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Trace {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    capacity: usize,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<TraceEvent>,
    lost: u64,
}

impl Trace {
    /// Makes an empty trace for `capacity` events of 40 bytes; memory is allocated as it fills.
    pub fn new(capacity: usize) -> Self {
        let shared = Shared { clock: Clock::new(), capacity, queue: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Removes and returns all events, oldest first.
    pub fn drain(&self) -> Vec<TraceEvent> {
        let taken = std::mem::take(&mut self.queue().events);
        taken.into()
    }

    /// Returns the number of events that were dropped so far because the trace was full.
    pub fn lost(&self) -> u64 {
        self.queue().lost
    }

    /// Returns the present time on the clock of the stamps: nanoseconds since the Unix epoch. It never
    /// goes backwards. Programs use it to place events of their own between those of the trace.
    pub fn now(&self) -> u64 {
        self.shared.clock.now()
    }

    /// Stamps an event and adds it unless the trace is full.
    #[cold]
    pub(crate) fn push(&self, qpn: Qpn, kind: TraceKind) {
        let mut queue = self.queue();
        if queue.events.len() >= self.shared.capacity {
            queue.lost += 1;
            return;
        }
        // Under the lock, so that the order of the queue is that of the stamps.
        let at = self.shared.clock.now();
        queue.events.push_back(TraceEvent { at, qpn, kind });
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two traces are equal if they are clones of one.
impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Trace {}

/// The monotonic clock plus its offset to the time of day when it was made: stamps of several processes
/// of one host can be compared, and none goes backwards when the time of day is set.
#[derive(Clone, Copy, Debug)]
struct Clock {
    origin: Instant,
    /// Nanoseconds from the Unix epoch to `origin`.
    unix: u64,
}

impl Clock {
    /// Reads both clocks a few times and keeps the shortest reading, since two clocks cannot be read at
    /// the same moment.
    fn new() -> Self {
        let attempt = || {
            let before = Instant::now();
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let took = before.elapsed();
            (took, Self { origin: before + took / 2, unix: nanos(unix) })
        };
        let mut best = attempt();
        for _ in 0..8 {
            let next = attempt();
            if next.0 < best.0 {
                best = next;
            }
        }
        best.1
    }

    fn now(&self) -> u64 {
        self.unix.saturating_add(nanos(self.origin.elapsed()))
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(wr_id: u64) -> TraceKind {
        TraceKind::PostRecv { wr_id }
    }

    #[test]
    fn a_full_trace_keeps_the_oldest_and_counts_the_rest() {
        let trace = Trace::new(2);
        let qpn = Qpn::new(17).unwrap();
        (0..5).for_each(|id| trace.push(qpn, post(id)));
        let kinds: Vec<_> = trace.drain().iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [post(0), post(1)]);
        assert_eq!(trace.lost(), 3);
        trace.push(qpn, post(5));
        assert_eq!(trace.drain().len(), 1, "it is empty again");
    }

    #[test]
    fn stamps_are_the_time_of_day_and_never_go_backwards() {
        let day = || nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
        let trace = Trace::new(1000);
        let before = day();
        (0..1000).for_each(|id| trace.push(Qpn::new(17).unwrap(), post(id)));
        let (after, events) = (day(), trace.drain());
        assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at));
        // The two clocks were read some hundred nanoseconds apart.
        let slack = 1_000_000;
        assert!(events[0].at + slack >= before && events[999].at <= after + slack);
    }

    #[test]
    fn a_trace_equals_itself_alone() {
        let trace = Trace::new(1);
        assert_eq!(trace, trace.clone());
        assert_ne!(trace, Trace::new(1));
    }
}
