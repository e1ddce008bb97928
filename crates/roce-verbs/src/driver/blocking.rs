//! Blocks a polling thread on a contended processor until a device has something.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Shared;
use super::sleep::sleep;
use crate::wait_policy::{self, Wait};

/// Time after which a blocked poll returns whatever happens.
const MAX_BLOCK: Duration = Duration::from_micros(500);
/// Time that a polling thread leaves to a thread that holds the engine's lock. With the timer
/// slack of the kernel it is some 100 µs.
const LOCK_HOLDER_SLEEP: Duration = Duration::from_micros(50);

thread_local! {
    /// Devices that the calling thread has polled in vain since it last blocked.
    static POLLED: RefCell<Vec<Weak<Shared>>> = const { RefCell::new(Vec::new()) };
}

impl Shared {
    /// Lets other threads run if the calling thread has polled for long enough. The engine's lock
    /// is free.
    #[inline]
    pub(super) fn after_empty_poll(self: &Arc<Self>) {
        match wait_policy::with_current(|policy| policy.on_empty_poll(std::time::Instant::now)) {
            Wait::Poll => {}
            Wait::Yield => {
                wait_policy::yield_now(std::time::Instant::now());
            }
            Wait::Block => self.block_polling_thread(),
        }
    }

    /// Blocks the calling thread until any device that it polls has frames, or a timer is due.
    ///
    /// A thread may poll several devices in turn. It blocks when it comes to one of them for the
    /// second time, and then on all.
    #[cold]
    fn block_polling_thread(self: &Arc<Self>) {
        // While the thread ends there is no list any more: its last polls do not block.
        let devices = POLLED.try_with(|polled| {
            let mut polled = polled.borrow_mut();
            if polled.iter().any(|device| device.as_ptr() == Arc::as_ptr(self)) {
                return std::mem::take(&mut *polled);
            }
            polled.push(Arc::downgrade(self));
            Vec::new()
        });
        let devices = devices.unwrap_or_default();
        // In a child process a lock of the parent's may be held for ever.
        let is_ours = |device: &Arc<Self>| device.generation.is_current();
        let devices: Vec<_> = devices.iter().filter_map(Weak::upgrade).filter(is_ours).collect();
        let Some(limit) = devices.iter().try_fold(MAX_BLOCK, |limit, device| {
            device.prepare_to_block().map(|device_limit| limit.min(device_limit))
        }) else {
            return;
        };
        if devices.is_empty() {
            return;
        }
        let fds: Vec<_> =
            devices.iter().flat_map(|device| &device.device_fds).map(AsFd::as_fd).collect();
        if let Err(error) = sleep(&fds, Some(limit)) {
            tracing::error!(%error, "a polling thread cannot block");
        }
        wait_policy::with_current(|policy| policy.on_blocked(std::time::Instant::now()));
    }

    /// Lets everything leave that waits for the next poll, and returns how long the thread may
    /// block; `None` if there is work.
    fn prepare_to_block(&self) -> Option<Duration> {
        let Some(mut engine) = self.engine.try_lock() else {
            // What that thread finds may be for the calling thread, which has to look again.
            wait_for_lock_holder();
            return None;
        };
        let now = self.now();
        if engine.round_before_block(now).did_work() {
            return None;
        }
        let wake_at = self.wake_at(&engine, now);
        let limit = wake_at.map_or(MAX_BLOCK, |at| at.saturating_since(now).min(MAX_BLOCK));
        // The device's thread stays away as long as this one is about to come back.
        self.record_inline_poll(now + limit);
        Some(limit)
    }
}

/// Lets the thread run that holds the engine's lock and drives the engine.
///
/// On a contended processor it may have been preempted. To wait for the lock itself could take for
/// ever: the holder releases it between two rounds only for a moment.
pub(super) fn wait_for_lock_holder() {
    if wait_policy::with_current(|policy| policy.is_contended()) {
        std::thread::sleep(LOCK_HOLDER_SLEEP);
    } else {
        wait_policy::yield_now(std::time::Instant::now());
    }
}
