//! When the steps of operations began and ended.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use roce_verbs::Trace;

/// One step of one operation at this rank. All times are nanoseconds since the Unix epoch on
/// a clock that never goes back; those of a group with a trace are on the trace's clock.
///
/// StepRecorder overlap: the next one sends its first piece as soon as that was received in this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// The operation's number, counted from 0.
    pub operation: u64,
    /// The step, counted from 0.
    pub step: u32,
    /// When the operation began.
    pub begun: u64,
    /// When its first message was posted; `None` where this rank sends nothing in it.
    pub posted: Option<u64>,
    /// When its last message came; `None` where this rank receives nothing in it.
    pub received: Option<u64>,
    /// When its last message was computed with.
    pub done: Option<u64>,
    /// Nanoseconds that this rank had nothing to do while it was the earliest step whose
    /// messages were still to come: waiting for the previous rank.
    pub waited: u64,
    /// Messages that were received in it.
    pub messages: u32,
    /// Bytes that were received in it.
    pub bytes: u64,
}

impl StepRecord {
    /// Nanoseconds from the first message posted (or, where none is, from the operation's begin)
    /// to the end; `None` where nothing was received.
    pub fn latency(&self) -> Option<u64> {
        Some(self.done?.saturating_sub(self.posted.unwrap_or(self.begun)))
    }
}

/// The latest records, and what is known of the operation under way.
#[derive(Debug)]
pub(crate) struct StepRecorder {
    capacity: usize,
    records: VecDeque<StepRecord>,
    /// Records before this one belong to earlier operations.
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

    /// The number of the operation under way.
    pub(crate) fn operation(&self) -> u64 {
        self.operation
    }

    pub(crate) fn begin(&mut self, operation: u64, now: u64) {
        self.finish();
        (self.operation, self.begun) = (operation, now);
    }

    /// The operation is over.
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

    /// Nothing could be done for `span` before the message that came just now, in `step`.
    pub(crate) fn waited(&mut self, step: u32, span: Duration) {
        if let Some(record) = self.step(step) {
            record.waited += nanos(span);
        }
    }

    /// The record of a step of the operation under way. StepRecorder come nearly in order, and those
    /// long past are kept already.
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

    /// All records, oldest first.
    pub(crate) fn take(&mut self) -> Vec<StepRecord> {
        std::mem::take(&mut self.records).into()
    }
}

/// StepRecorder of one operation that are looked up: more than that far apart none are under way.
const MAX_OPEN: usize = 4096;

/// Nanoseconds since the Unix epoch that never go back.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// That of a trace, so that its events and ours can be laid side by side.
    Trace(Trace),
    /// One of our own.
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
    fn only_the_latest_records_are_kept_and_none_when_none_are_asked_for() {
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
    fn however_many_steps_an_operation_has_few_are_open() {
        let mut steps = StepRecorder::new(usize::MAX);
        steps.begin(0, 0);
        let all = MAX_OPEN as u32 + 100;
        (0..all).for_each(|step| steps.posted(step, u64::from(step)));
        assert_eq!(steps.current.len(), MAX_OPEN);
        steps.finish();
        assert!(steps.take().iter().zip(0..).all(|(one, step)| one.step == step));
    }
}
