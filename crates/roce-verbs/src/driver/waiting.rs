//! Callers that wait: they drive the engine, and sleep on descriptors when there is no work.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use roce_engine::policy::{Cause, MIN_RECHECK};
use roce_io::process::Own;
use roce_transport::{CqHandle, Instant};

use super::Driver;
use super::shard::Shard;
use super::sleep::sleep;
use crate::error::Error;
use crate::queue_state::QueueState;
use crate::shard_set::ShardMask;
use crate::thread_wait;

impl Driver {
    /// Returns these shards of the device.
    pub(crate) fn shards(&self, mask: ShardMask) -> impl Iterator<Item = &Arc<Shard>> {
        mask.iter().map(|number| self.shards.get(number))
    }

    /// Runs rounds of these shards until `done` returns true or `deadline` comes, and sleeps on the
    /// devices and `fd` when there is no work.
    pub(crate) fn drive_until(
        &self,
        shards: ShardMask,
        deadline: Option<std::time::Instant>,
        fd: BorrowedFd<'_>,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        let shards: Vec<_> = self.shards(shards).collect();
        Self::drive_all_until(&shards, deadline, &[fd], |_| done())
    }

    /// As [`drive_until`](Self::drive_until), over shards of several devices at once. `done` receives
    /// whether the last of `fds` was readable after a sleep.
    pub(crate) fn drive_all_until(
        shards: &[&Arc<Shard>],
        deadline: Option<std::time::Instant>,
        fds: &[BorrowedFd<'_>],
        mut done: impl FnMut(bool) -> bool,
    ) -> Result<(), Error> {
        shards.iter().try_for_each(|shard| shard.check_alive())?;
        let _guards: Vec<_> = shards.iter().map(|shard| WaitGuard::begin(shard)).collect();
        let max_spin = shards.iter().map(|shard| shard.max_spin()).max();
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
            for shard in shards {
                let (mut engine, now) = shard.lock_engine_now();
                did_work |= engine.run(now, Cause::Call, None).did_work();
                if let Some(at) = engine.wake_at(now) {
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
            let devices = shards.iter().flat_map(|shard| shard.device_fds());
            let all: Vec<_> = fds.iter().copied().chain(devices.map(|fd| fd.as_fd())).collect();
            let readable = sleep(&all, limit)?;
            let lasted = now.elapsed();
            thread_wait::with_current(|policy| policy.on_slept(lasted, max_spin));
            last_is_readable = fds.len().checked_sub(1).is_some_and(|last| readable[last]);
        }
    }

    /// Returns what a thread sleeps on that waits for an event and does not drive the device. Once the
    /// driver threads have ended, this runs a round of each shard in their place.
    pub(crate) fn prepare_sleep(&self) -> SleepSet<'_> {
        let common = &*self.shards.common;
        if !common.generation.is_current() || !common.stopping.load(Ordering::SeqCst) {
            let fds = std::slice::from_ref(&common.thread_ended);
            return SleepSet { fds, limit: None, is_driven: true };
        }
        let mut limit: Option<Duration> = None;
        for shard in self.shards.iter() {
            let (mut engine, now) = shard.lock_engine_now();
            let did_work = engine.run(now, Cause::Call, None).did_work();
            let wake_at = if did_work { Some(now) } else { engine.wake_at(now) };
            limit = limit.into_iter().chain(wake_at.map(|at| at.saturating_since(now))).min();
        }
        SleepSet { fds: self.shards.wait_fds(), limit, is_driven: false }
    }

    /// Notes that the caller, which has run a round, sleeps now: the driver threads do not wait for its next
    /// one.
    pub(crate) fn leave_to_threads(&self) {
        if self.check_alive().is_err() {
            return;
        }
        for shard in self.shards.iter() {
            shard.inline_at.store(0, Ordering::SeqCst);
            if shard.sleep().ignores_devices() {
                shard.sleep().wake();
            }
        }
    }

    /// Notes a completion queue whose queue pairs may be in this shard, from now on.
    pub(crate) fn add_queue(&self, queue: &Arc<QueueState>, shard: usize) {
        if queue.has_channel() {
            self.shards.get(shard).add_notifying(queue);
        }
    }

    /// Forgets a queue that has no user any more, so that its memory and its channel are given back at once.
    pub(crate) fn remove_queue(&self, queue: CqHandle) {
        for shard in self.shards.iter() {
            let removed = shard.engine().map(|mut it| it.consumer_mut().queues.remove(&queue));
            // Dropped without the lock: the channel's descriptors may be closed with it.
            drop(removed);
        }
    }

    /// Notes a queue pair of this shard that completes in a queue.
    pub(crate) fn add_user(&self, queue: &Arc<QueueState>, shard: usize) {
        if shard != queue.shards.home() && queue.shards.is_first_in(shard) {
            self.add_queue(queue, shard);
        }
        queue.add_queue_pair_of(shard);
        let shard = self.shards.get(shard);
        // A caller that armed the queue before has not seen the shard.
        if shard.sleep().ignores_devices() && queue.relies_on_thread(shard.now()) {
            shard.sleep().wake();
        }
    }

    /// Arms a queue with `arm`, which receives the time. From now on its caller may sleep on the
    /// channel's descriptor, so frames must be able to wake the driver threads of its shards.
    pub(crate) fn arm(&self, queue: &QueueState, arm: impl FnOnce(Instant)) {
        if self.check_alive().is_err() {
            return;
        }
        let now = self.shards.common.now();
        arm(now);
        for shard in self.shards(queue.shards.mask()) {
            if shard.sleep().ignores_devices() && queue.relies_on_thread(now) {
                shard.sleep().wake();
            }
        }
    }
}

/// What a thread of the program sleeps on beside its own descriptor: see
/// [`Device::prepare_sleep`](crate::Device::prepare_sleep).
#[derive(Clone, Copy, Debug)]
pub struct SleepSet<'a> {
    /// Descriptors that end the sleep when they are readable.
    pub fds: &'a [Own<OwnedFd>],
    /// Longest time of the sleep.
    pub limit: Option<Duration>,
    /// The device's threads drive it meanwhile. Their end is when the process exits.
    pub is_driven: bool,
}

/// Counts a waiting thread for its lifetime, and wakes the driver thread at the end.
struct WaitGuard<'a>(&'a Shard);

impl<'a> WaitGuard<'a> {
    fn begin(shard: &'a Shard) -> Self {
        shard.waiters.fetch_add(1, Ordering::SeqCst);
        Self(shard)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let now = self.0.now();
        self.0.record_inline_poll(now);
        let last = self.0.waiters.fetch_sub(1, Ordering::SeqCst) == 1;
        // Unless the thread wakes soon by itself: a program that waits in a loop must not pay for
        // a wake-up each time. (To set a timer instead takes 10 µs in a virtual machine.)
        if last && self.0.sleep().lasts_beyond(now + MIN_RECHECK * 2) {
            self.0.sleep().wake();
        }
    }
}
