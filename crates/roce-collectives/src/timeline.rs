//! The timeline of a rank: the events of its devices, with their steps, and its own.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use roce_ring::Operation;
use roce_verbs::{CompletionOperation, Qpn, Trace, TraceEvent, TraceKind};

use crate::steps::Clock;

/// An event of a rank. Times are nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineEvent {
    /// An event of a queue pair.
    Device {
        /// The event.
        event: TraceEvent,
        /// Step and piece, for events of sent data.
        step: Option<(u32, u64)>,
    },
    /// The start of an operation.
    Began {
        /// The time.
        at: u64,
        /// The number of the operation, from 0.
        number: u64,
        /// The operation.
        operation: Operation,
    },
    /// The consumption of a message.
    Received {
        /// The time.
        at: u64,
        /// The step.
        step: u32,
        /// The piece of the step's chunk.
        piece: u64,
        /// The lane.
        lane: u32,
        /// The length in bytes.
        bytes: u64,
    },
    /// The end of an operation.
    Ended {
        /// The time.
        at: u64,
        /// The number of the operation.
        number: u64,
    },
}

impl TimelineEvent {
    /// Returns the time of the event.
    pub fn at(&self) -> u64 {
        match self {
            Self::Device { event, .. } => event.at,
            Self::Began { at, .. } | Self::Received { at, .. } | Self::Ended { at, .. } => *at,
        }
    }
}

impl fmt::Display for TimelineEvent {
    /// Writes seconds with six digits, then the event, as [`TraceEvent`] does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stamp = |at: u64| format!("{}.{:06}", at / 1_000_000_000, at / 1000 % 1_000_000);
        match self {
            Self::Device { event, step: None } => event.fmt(f),
            Self::Device { event, step: Some((step, piece)) } => {
                write!(f, "{event} step={step} piece={piece}")
            }
            Self::Began { at, number, operation } => {
                let Operation { collective, data_type, op, root, count } = operation;
                write!(
                    f,
                    "{} begin operation={number} {collective:?} type={data_type} op={op} root={root} count={count}",
                    stamp(*at)
                )
            }
            Self::Received { at, step, piece, lane, bytes } => {
                let at = stamp(*at);
                write!(f, "{at} received step={step} piece={piece} lane={lane} bytes={bytes}")
            }
            Self::Ended { at, number } => write!(f, "{} end operation={number}", stamp(*at)),
        }
    }
}

/// Records this rank's events; does nothing without a trace.
#[derive(Debug)]
pub(crate) struct TimelineRecorder {
    trace: Option<Trace>,
    events: VecDeque<TimelineEvent>,
    /// The steps of requests, in the order of posting.
    posted: VecDeque<((Qpn, u64), (u32, u64))>,
}

/// The most events and requests that are kept; the oldest are dropped.
const MAX_EVENTS: usize = 1 << 17;
/// Requests kept when the timeline is taken, since their completions may follow.
const MAX_PENDING: usize = 4096;

impl TimelineRecorder {
    pub(crate) fn new(trace: Option<Trace>) -> Self {
        Self { trace, events: VecDeque::new(), posted: VecDeque::new() }
    }

    fn keep(&mut self, event: TimelineEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub(crate) fn begin(&mut self, clock: &Clock, number: u64, operation: &Operation) {
        if self.trace.is_some() {
            self.keep(TimelineEvent::Began { at: clock.now(), number, operation: *operation });
        }
    }

    pub(crate) fn end(&mut self, clock: &Clock, number: u64) {
        if self.trace.is_some() {
            self.keep(TimelineEvent::Ended { at: clock.now(), number });
        }
    }

    pub(crate) fn posted(&mut self, qpn: Qpn, wr_id: u64, step: u32, piece: u64) {
        if self.trace.is_some() {
            if self.posted.len() >= MAX_EVENTS {
                self.posted.pop_front();
            }
            self.posted.push_back(((qpn, wr_id), (step, piece)));
        }
    }

    pub(crate) fn received(&mut self, clock: &Clock, step: u32, piece: u64, lane: u32, bytes: u64) {
        if self.trace.is_some() {
            self.keep(TimelineEvent::Received { at: clock.now(), step, piece, lane, bytes });
        }
    }

    /// Takes all events, in the order of their times.
    pub(crate) fn take(&mut self) -> Vec<TimelineEvent> {
        let Some(trace) = &self.trace else { return Vec::new() };
        let steps: HashMap<_, _> = self.posted.iter().copied().collect();
        let annotate = |event: TraceEvent| {
            let id = match event.kind {
                TraceKind::PostSend { wr_id, .. } => Some(wr_id),
                TraceKind::Completed { wr_id, operation, .. }
                | TraceKind::PollCq { wr_id, operation, .. } => {
                    (operation == CompletionOperation::Write).then_some(wr_id)
                }
                _ => None,
            };
            let step = id.and_then(|id| steps.get(&(event.qpn, id)).copied());
            TimelineEvent::Device { event, step }
        };
        let mut all: Vec<TimelineEvent> = trace.drain().into_iter().map(annotate).collect();
        all.extend(self.events.drain(..));
        all.sort_by_key(TimelineEvent::at);
        let old = self.posted.len().saturating_sub(MAX_PENDING);
        self.posted.drain(..old);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roce_ring::{DataType, ReduceOp};

    #[test]
    fn without_a_trace_nothing_is_kept() {
        let mut log = TimelineRecorder::new(None);
        let clock = Clock::new(None);
        log.begin(&clock, 0, &Operation::barrier());
        log.posted(Qpn::new(17).unwrap(), 1, 0, 0);
        log.received(&clock, 0, 0, 0, 4);
        assert!(log.take().is_empty() && log.posted.is_empty());
    }

    #[test]
    fn events_are_ordered_and_named() {
        let trace = Trace::new(16);
        let clock = Clock::new(Some(&trace));
        let mut log = TimelineRecorder::new(Some(trace));
        log.begin(&clock, 3, &Operation::all_reduce(DataType::F32, ReduceOp::Sum, 1));
        log.received(&clock, 1, 0, 0, 4);
        log.end(&clock, 3);
        let all = log.take();
        assert!(all.is_sorted_by_key(TimelineEvent::at));
        let text: Vec<String> = all.iter().map(TimelineEvent::to_string).collect();
        let after_stamp = |i: usize| text[i].split_once(' ').unwrap().1;
        assert_eq!(after_stamp(0), "begin operation=3 AllReduce type=float op=sum root=0 count=1");
        assert_eq!(after_stamp(1), "received step=1 piece=0 lane=0 bytes=4");
        assert_eq!(after_stamp(2), "end operation=3");
        assert!(log.take().is_empty());
    }
}
