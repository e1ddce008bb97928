//! Callers that wait: they drive the engine, and sleep on descriptors when there is no work.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use roce_engine::policy::{Cause, MIN_RECHECK};
use roce_transport::Instant;

use super::Driver;
use super::shared::Shared;
use super::sleep::sleep;
use crate::completion_queue;
use crate::error::Error;
use crate::thread_wait;

impl Driver {
    /// Runs rounds until `done` returns true or `deadline` comes, and sleeps on the devices and `fd`
    /// when there is no work.
    pub(crate) fn drive_until(
        &self,
        deadline: Option<std::time::Instant>,
        fd: BorrowedFd<'_>,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        Self::drive_all_until(&[self], deadline, &[fd], |_| done())
    }

    /// As [`drive_until`](Self::drive_until), over several devices at once. `done` receives whether
    /// the last of `fds` was readable after a sleep.
    pub(crate) fn drive_all_until(
        drivers: &[&Self],
        deadline: Option<std::time::Instant>,
        fds: &[BorrowedFd<'_>],
        mut done: impl FnMut(bool) -> bool,
    ) -> Result<(), Error> {
        drivers.iter().try_for_each(|driver| driver.check_alive())?;
        let _guards: Vec<_> =
            drivers.iter().map(|driver| WaitGuard::begin(&driver.shared)).collect();
        let max_spin = drivers.iter().map(|driver| driver.shared.max_spin).max();
        let max_spin = max_spin.unwrap_or_default();
        let mut last_work = std::time::Instant::now();
        let mut last_is_readable = false;
        loop {
            if done(last_is_readable) {
                return Ok(());
            }
            let now = std::time::Instant::now();
            if deadline.is_some_and(|at| now >= at) {
                return Ok(());
            }
            let mut did_work = false;
            let mut limit = deadline.map(|at| at.saturating_duration_since(now));
            for shared in drivers.iter().map(|driver| &driver.shared) {
                let (mut engine, now) = shared.lock_now();
                did_work |= engine.run(now, Cause::Call, None).did_work();
                shared.wake_thread_if_late(&engine);
                if let Some(at) = shared.wake_at(&engine, now) {
                    let wait = at.saturating_since(now);
                    limit = Some(limit.map_or(wait, |limit| limit.min(wait)));
                }
            }
            if did_work {
                last_work = now;
                continue;
            }
            let spin = thread_wait::with_current(|policy| policy.spin(max_spin));
            if now.duration_since(last_work) < spin {
                thread_wait::yield_now(std::time::Instant::now());
                continue;
            }
            let devices = drivers.iter().flat_map(|driver| &driver.shared.device_fds);
            let all: Vec<_> = fds.iter().copied().chain(devices.map(|fd| fd.as_fd())).collect();
            let readable = sleep(&all, limit)?;
            let lasted = now.elapsed();
            thread_wait::with_current(|policy| policy.on_slept(lasted, max_spin));
            last_is_readable = fds.len().checked_sub(1).is_some_and(|last| readable[last]);
        }
    }

    /// Returns what a thread sleeps on that waits for an event and does not drive the device. Once the
    /// driver thread has ended, this runs a round in its place.
    pub(crate) fn prepare_sleep(&self) -> SleepSet<'_> {
        let shared = &*self.shared;
        if !shared.generation.is_current() || !shared.stopping.load(Ordering::SeqCst) {
            let fds = std::slice::from_ref(&shared.thread_ended);
            return SleepSet { fds, limit: None };
        }
        let (mut engine, now) = shared.lock_now();
        let did_work = engine.run(now, Cause::Call, None).did_work();
        let wake_at = if did_work { Some(now) } else { shared.wake_at(&engine, now) };
        let limit = wake_at.map(|at| at.saturating_since(now));
        SleepSet { fds: &shared.device_fds, limit }
    }

    /// Adds a queue that notifies a channel.
    pub(crate) fn add_notifying(&self, queue: &Arc<completion_queue::Inner>) {
        let mut notifying = self.shared.notifying();
        notifying.retain(|queue| queue.strong_count() > 0);
        notifying.push(Arc::downgrade(queue));
    }

    /// Arms a queue with `arm`, which receives the time. From now on its caller may sleep on the
    /// channel's descriptor, so frames must be able to wake the driver thread.
    pub(crate) fn arm(&self, queue: &completion_queue::Inner, arm: impl FnOnce(Instant)) {
        if !self.shared.generation.is_current() {
            return;
        }
        let now = self.shared.now();
        arm(now);
        if self.shared.sleep.ignores_devices() && queue.relies_on_thread(now) {
            self.shared.sleep.wake();
        }
    }
}

/// What a thread of the program sleeps on beside its own descriptor: see
/// [`Device::prepare_sleep`](crate::Device::prepare_sleep).
#[derive(Clone, Copy, Debug)]
pub struct SleepSet<'a> {
    /// Descriptors that end the sleep when they are readable.
    pub fds: &'a [OwnedFd],
    /// Longest time of the sleep.
    pub limit: Option<Duration>,
}

/// Counts a waiting thread for its lifetime, and wakes the driver thread at the end.
struct WaitGuard<'a>(&'a Shared);

impl<'a> WaitGuard<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.waiters.fetch_add(1, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let now = self.0.now();
        self.0.record_inline_poll(now);
        let last = self.0.waiters.fetch_sub(1, Ordering::SeqCst) == 1;
        // Unless the thread wakes soon by itself: a program that waits in a loop must not pay for
        // a wake-up each time. (To set a timer instead takes 10 µs in a virtual machine.)
        if last && self.0.sleep.lasts_beyond(now + MIN_RECHECK * 2) {
            self.0.sleep.wake();
        }
    }
}
