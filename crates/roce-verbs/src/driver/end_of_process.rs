//! What a device does when its process exits.

use std::sync::Arc;

use roce_engine::policy::MAX_TELLING;

use super::Driver;
use crate::process::background_thread::is_background_thread;

impl Driver {
    /// Lets the monitor thread end the device: see [`begin_end`](Self::begin_end).
    pub(crate) fn allow_end(self: &Arc<Self>) {
        let driver = Arc::downgrade(self);
        self.monitor.ending().set(move |deadline| {
            let Some(driver) = driver.upgrade() else { return };
            driver.end(deadline);
            // The last reference would join the thread that runs this.
            std::mem::forget(driver);
        });
    }

    /// Ends connections of connection management, sends delayed ACKs and held posts, publishes the counters, writes
    /// the capture and ends the driver threads. The monitor thread does so, where there is one, and this returns
    /// at once; [`has_ended`](Self::has_ended) says when. It waits at most until `deadline` for locks and threads.
    pub(crate) fn begin_end(&self, deadline: std::time::Instant) {
        let ending = self.monitor.ending();
        let may_wait = !is_background_thread() && !self.monitor.is_lost();
        if self.check_alive().is_ok() && may_wait && ending.ask(deadline) {
            return self.monitor.wake();
        }
        self.end(deadline);
        ending.note_done();
    }

    /// Returns true if all is done that [`begin_end`](Self::begin_end) has begun.
    pub(crate) fn has_ended(&self) -> bool {
        self.monitor.ending().is_done()
    }

    fn end(&self, deadline: std::time::Instant) {
        self.end_connections(deadline.min(std::time::Instant::now() + MAX_TELLING));
        self.flush_held(deadline);
        self.end_threads(deadline);
        self.publish_counters(deadline);
        if let Some(capture) = &self.device().capture {
            // There is nothing left to report an error to.
            let _written = capture.flush();
        }
    }
}
