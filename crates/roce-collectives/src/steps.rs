//! Records of the steps of operations.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use roce_verbs::Trace;

/// One step of one operation at this rank. All times are nanoseconds since the Unix epoch on
/// a monotonic clock, which is the trace's clock in a group with a trace.
///
/// Steps overlap: the next step sends its first piece as soon as this step has received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// The number of the operation, from 0.
    pub operation: u64,
    /// The step, from 0.
    pub step: u32,
    /// The start of the operation.
    pub begun: u64,
    /// The time of the first post; `None` if this rank sends nothing in the step.
    pub posted: Option<u64>,
    /// The time of the last arrival; `None` if this rank receives nothing in the step.
    pub received: Option<u64>,
    /// The end of the last computation.
    pub done: Option<u64>,
    /// Idle nanoseconds of this rank while this was the earliest step with missing messages: time
    /// spent waiting for the previous rank.
    pub waited: u64,
    /// The number of messages received.
    pub messages: u32,
    /// The number of bytes received.
    pub bytes: u64,
}

impl StepRecord {
    /// Returns the nanoseconds from the first post (without one, from the start of the operation)
    /// to the end; `None` if nothing was received.
    pub fn latency(&self) -> Option<u64> {
        Some(self.done?.saturating_sub(self.posted.unwrap_or(self.begun)))
    }
}

/// The latest records, and those of the active operation.
#[derive(Debug)]
pub(crate) struct StepRecorder {
    capacity: usize,
    records: VecDeque<StepRecord>,
    /// Records of the active operation.
    current: VecDeque<StepRecord>,
    operation: u64,
    begun: u64,
}

impl StepRecorder {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            records: VecDeque::new(),
            current: VecDeque::new(),
            operation: 0,
            begun: 0,
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.capacity > 0
    }

    /// Returns the number of the active operation.
    pub(crate) fn operation(&self) -> u64 {
        self.operation
    }

    pub(crate) fn begin(&mut self, operation: u64, now: u64) {
        self.finish();
        (self.operation, self.begun) = (operation, now);
    }

    /// Ends the operation.
    pub(crate) fn finish(&mut self) {
        while let Some(record) = self.current.pop_front() {
            self.keep(record);
        }
    }

    fn keep(&mut self, record: StepRecord) {
        if self.records.len() >= self.capacity {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    pub(crate) fn posted(&mut self, step: u32, now: u64) {
        if let Some(record) = self.step(step) {
            record.posted.get_or_insert(now);
        }
    }

    pub(crate) fn received(&mut self, step: u32, bytes: u64, arrived: u64, now: u64) {
        if let Some(record) = self.step(step) {
            record.received = Some(record.received.map_or(arrived, |last| last.max(arrived)));
            record.done = Some(now);
            record.messages += 1;
            record.bytes += bytes;
        }
    }

    /// Adds `span` of idle time before the latest message, which is of `step`.
    pub(crate) fn waited(&mut self, step: u32, span: Duration) {
        if let Some(record) = self.step(step) {
            record.waited += nanos(span);
        }
    }

    /// Returns the record of a step of the active operation. Steps come nearly in order, and old
    /// ones are complete.
    fn step(&mut self, step: u32) -> Option<&mut StepRecord> {
        if !self.is_on() {
            return None;
        }
        let index = match self.current.iter().rposition(|record| record.step <= step) {
            Some(index) if self.current[index].step == step => index,
            before => {
                let index = before.map_or(0, |before| before + 1);
                let (operation, begun) = (self.operation, self.begun);
                let record = StepRecord {
                    operation,
                    step,
                    begun,
                    posted: None,
                    received: None,
                    done: None,
                    waited: 0,
                    messages: 0,
                    bytes: 0,
                };
                self.current.insert(index, record);
                if self.current.len() > MAX_OPEN
                    && let Some(oldest) = self.current.pop_front()
                {
                    self.keep(oldest);
                    return self.current.get_mut(index.saturating_sub(1));
                }
                index
            }
        };
        self.current.get_mut(index)
    }

    /// Takes all records, oldest first.
    pub(crate) fn take(&mut self) -> Vec<StepRecord> {
        std::mem::take(&mut self.records).into()
    }
}

/// The most open steps of one operation: active steps are never farther apart.
const MAX_OPEN: usize = 4096;

/// A monotonic clock in nanoseconds since the Unix epoch.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The clock of a trace, so that its events and the group's share a time base.
    Trace(Trace),
    /// A clock of the group.
    Own { origin: Instant, unix: u64 },
}

impl Clock {
    pub(crate) fn new(trace: Option<&Trace>) -> Self {
        match trace {
            Some(trace) => Self::Trace(trace.clone()),
            None => {
                let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Self::Own { origin: Instant::now(), unix: nanos(unix) }
            }
        }
    }

    pub(crate) fn now(&self) -> u64 {
        match self {
            Self::Trace(trace) => trace.now(),
            Self::Own { origin, unix } => unix.saturating_add(nanos(origin.elapsed())),
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_lasts_from_its_first_post_to_its_last_computation() {
        let mut steps = StepRecorder::new(10);
        steps.begin(7, 90);
        steps.posted(0, 100);
        steps.posted(0, 110);
        steps.received(0, 4, 120, 130);
        steps.posted(1, 131);
        steps.waited(0, Duration::from_nanos(5));
        steps.received(0, 4, 140, 150);
        steps.received(1, 8, 160, 161);
        steps.received(2, 8, 170, 171);
        steps.finish();
        let records = steps.take();
        assert_eq!(records.len(), 3);
        let first = &records[0];
        assert_eq!((first.operation, first.step, first.messages, first.bytes), (7, 0, 2, 8));
        assert_eq!((first.posted, first.received, first.done), (Some(100), Some(140), Some(150)));
        assert_eq!((first.waited, first.latency()), (5, Some(50)));
        assert_eq!(records[1].latency(), Some(30));
        assert_eq!(records[2].latency(), Some(81), "nothing was posted: from the begin");
        assert!(steps.take().is_empty());
    }

    #[test]
    fn only_the_requested_number_of_latest_records_is_kept() {
        for (capacity, kept) in [(0, vec![]), (3, vec![(1, 1), (2, 0), (2, 1)])] {
            let mut steps = StepRecorder::new(capacity);
            for operation in 0..3 {
                steps.begin(operation, 0);
                (0..2).for_each(|step| steps.received(step, 1, 1, 1));
            }
            steps.finish();
            let seen: Vec<_> = steps.take().iter().map(|one| (one.operation, one.step)).collect();
            assert_eq!(seen, kept);
        }
    }

    #[test]
    fn the_number_of_open_steps_is_bounded() {
        let mut steps = StepRecorder::new(usize::MAX);
        steps.begin(0, 0);
        let all = MAX_OPEN as u32 + 100;
        (0..all).for_each(|step| steps.posted(step, u64::from(step)));
        assert_eq!(steps.current.len(), MAX_OPEN);
        steps.finish();
        assert!(steps.take().iter().zip(0..).all(|(one, step)| one.step == step));
    }
}
