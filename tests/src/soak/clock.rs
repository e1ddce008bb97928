//! A clock for bounds on what this thread does.

use std::time::{Duration, Instant};

/// A clock that stands still while its thread waits for a processor.
///
/// On a machine that has other work to do, a request may be late because the thread that polls for
/// it was not scheduled, which is no failure of the queue pair.
#[derive(Debug)]
pub(super) struct Clock {
    started: Instant,
    waited_before: Duration,
}

impl Clock {
    /// Starts the clock of the calling thread, which must use it from now on.
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), waited_before: time_without_processor() }
    }

    /// Returns the time since the start, including the time without a processor.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn now(&self) -> Duration {
        let waited = time_without_processor().saturating_sub(self.waited_before);
        self.started.elapsed().saturating_sub(waited)
    }
}

/// Time that this thread has waited for a processor so far; zero where the kernel does not count
/// it, and bounds are then those of the wall clock.
fn time_without_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}
