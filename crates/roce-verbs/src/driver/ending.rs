//! The end of a device at the end of its process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

use roce_engine::policy::MAX_TELLING;

use super::Driver;

/// Lets the monitor thread end a device for a thread that exits, which may hold any lock: see [`Driver::begin_end`].
#[derive(Debug, Default)]
pub(super) struct Ending {
    driver: OnceLock<Weak<Driver>>,
    deadline: Mutex<Option<Instant>>,
    has_ended: AtomicBool,
}

impl Ending {
    /// Ends the device if that was asked for, in the monitor thread.
    pub(super) fn end_if_asked(&self) {
        let asked = self.deadline.lock().unwrap_or_else(PoisonError::into_inner).take();
        let driver = self.driver.get().and_then(Weak::upgrade);
        if let Some((deadline, driver)) = asked.zip(driver) {
            driver.end(deadline);
            self.has_ended.store(true, Ordering::Release);
            // The last reference would join this thread.
            std::mem::forget(driver);
        }
    }
}

impl Driver {
    /// Lets the monitor thread know the driver, which [`begin_end`](Self::begin_end) needs.
    pub(crate) fn introduce(self: &Arc<Self>) {
        // Once.
        let _known = self.monitor.ending().driver.set(Arc::downgrade(self));
    }

    /// Ends connections of connection management, sends delayed ACKs and held posts, publishes the counters, writes
    /// the capture and ends the driver threads. The monitor thread does so, where there is one, and this returns
    /// at once; [`has_ended`](Self::has_ended) says when. It waits at most until `deadline` for locks and threads.
    pub(crate) fn begin_end(&self, deadline: Instant) {
        let ending = self.monitor.ending();
        if ending.driver.get().is_some() && !self.monitor.is_lost() && self.check_alive().is_ok() {
            // Held for moments, by the monitor thread alone.
            *ending.deadline.lock().unwrap_or_else(PoisonError::into_inner) = Some(deadline);
            self.monitor.wake();
            return;
        }
        self.end(deadline);
        ending.has_ended.store(true, Ordering::Release);
    }

    /// Returns true if all is done that [`begin_end`](Self::begin_end) has begun.
    pub(crate) fn has_ended(&self) -> bool {
        self.monitor.ending().has_ended.load(Ordering::Acquire)
    }

    fn end(&self, deadline: Instant) {
        self.end_connections(deadline.min(Instant::now() + MAX_TELLING));
        self.flush_held(deadline);
        self.end_threads(deadline);
        self.publish_counters(deadline);
        if let Some(capture) = &self.device().capture {
            // There is nothing left to report an error to.
            let _written = capture.flush();
        }
    }
}
