//! A shard of a device: an engine behind a lock, and what its threads need to drive it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use roce_engine::policy::{Cause, MAX_FLUSH};
use roce_io::process::Own;
use roce_transport::Instant;

use super::caller_run;
use super::common::Common;
use super::driven_engine::{DrivenEngine, EngineGuard};
use super::held_posts::HeldPosts;
use super::sleep::ThreadSleep;
use crate::engine::{self, Engine};
use crate::error::Error;
use crate::process::fork;
use crate::queue_state::QueueState;
use crate::sockets::growing_socket::Successor;

/// A shard of a device: an engine, and all that is needed to drive it. Its threads share it.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(super) engine: DrivenEngine,
    /// Its number among the shards of the device.
    pub(super) number: usize,
    pub(super) common: Arc<Common>,
    /// As in `common`.
    pub(super) generation: fork::Generation,
    /// Duplicates of the devices' descriptors, to wait for frames without the lock.
    device_fds: Vec<Own<OwnedFd>>,
    /// As long as its sockets are small, what takes their place.
    successors: Vec<Arc<Successor>>,
    /// Its sockets are small.
    is_small: AtomicBool,
    /// Duplicates of the descriptors of the successors.
    later_fds: OnceLock<Vec<Own<OwnedFd>>>,
    /// Readable once `device_fds` are those of sockets of before: among them, so that every sleep on them ends.
    replaced: Option<Own<EventFd>>,
    /// Time of the last inline round, in nanoseconds since `epoch`; 0 if there was none.
    pub(super) inline_at: AtomicU64,
    /// Threads in `drive_until`.
    pub(super) waiters: AtomicUsize,
    /// The queues that notify a channel.
    notifying: Mutex<Vec<Weak<QueueState>>>,
}

impl Shard {
    /// Makes a shard, which no thread drives yet.
    pub(super) fn new(
        number: usize,
        mut engine: Engine,
        common: &Arc<Common>,
    ) -> Result<Self, Error> {
        let mut device_fds = duplicates(&engine)?;
        let successors = std::mem::take(&mut engine.consumer_mut().successors);
        let is_small = !successors.is_empty();
        let mut replaced = None;
        if is_small {
            let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
            let fd = Own::make(|| EventFd::from_flags(flags))?;
            device_fds.push(Own::make(|| fd.as_fd().try_clone_to_owned())?);
            replaced = Some(fd);
        }
        Ok(Self {
            engine: DrivenEngine::new(engine, common.epoch)?,
            number,
            generation: common.generation,
            common: Arc::clone(common),
            device_fds,
            successors,
            is_small: AtomicBool::new(is_small),
            later_fds: OnceLock::new(),
            replaced,
            inline_at: AtomicU64::new(0),
            waiters: AtomicUsize::new(0),
            notifying: Mutex::default(),
        })
    }

    /// Returns descriptors that are readable when frames have arrived, or others are to be asked for.
    pub(super) fn device_fds(&self) -> &[Own<OwnedFd>] {
        self.later_fds.get().unwrap_or(&self.device_fds)
    }

    /// Returns true if its sockets are too small for the traffic of queue pairs.
    pub(crate) fn is_small(&self) -> bool {
        self.is_small.load(Ordering::Acquire)
    }

    #[cfg(test)]
    pub(super) fn pretend_to_be_small(&self) {
        self.is_small.store(true, Ordering::Release);
    }

    /// Replaces small sockets, in the thread that is in the device's network namespace. Without memory for
    /// larger ones they stay. Returns the new descriptors, if there are any.
    pub(super) fn grow(&self) -> Option<&[Own<OwnedFd>]> {
        if !self.is_small() {
            return None;
        }
        let grown = self.open_successors().and_then(|()| {
            let mut engine = self.lock_engine();
            // As many descriptors as are duplicated afterwards, when one socket may be another already.
            let spare = duplicates(&engine)?;
            let updated = engine::update_filters(&mut engine);
            drop(spare);
            Ok((updated, duplicates(&engine)?))
        });
        self.is_small.store(false, Ordering::Release);
        let (updated, fds) = match grown {
            Ok((updated, fds)) => (updated.map_err(Error::from), Some(fds)),
            Err(error) => (Err(error), None),
        };
        if let Err(error) = updated {
            // The next change of the filter would put those that are left in their places.
            self.successors.iter().for_each(|it| it.close());
            let interface = self.common.port.name();
            tracing::warn!(%error, interface, "the device has not all of its receive rings");
        }
        // Also those of a change that failed half-way: frames arrive at the sockets that were replaced before.
        let _first = self.later_fds.set(fds?);
        let _written = self.replaced.as_ref().map(|it| it.write(1));
        self.sleep().wake();
        self.later_fds.get().map(Vec::as_slice)
    }

    fn open_successors(&self) -> Result<(), Error> {
        let filter = engine::own_numbers(&self.lock_engine()).filter();
        self.successors.iter().try_for_each(|it| Ok(it.open(filter.clone())?))
    }

    /// Returns its number among the shards of the device.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Checks that this is the process that opened the device.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        if self.generation.is_current() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Locks the engine.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn engine(&self) -> Result<EngineGuard<'_>, Error> {
        // Before the lock: after a fork its holder may be a thread that the child does not have.
        self.check_alive()?;
        Ok(self.lock_engine())
    }

    /// Does `work` on the engine and then runs one round, so that packets due to `work` have left
    /// when this returns. Held packets leave first: `work` may end their queue pair.
    pub(crate) fn with_engine<T>(
        &self,
        work: impl FnOnce(&mut Engine, Instant) -> T,
    ) -> Result<T, Error> {
        self.check_alive()?;
        let (mut engine, now) = self.lock_engine_now();
        caller_run::end_run();
        engine.run(now, Cause::Flush, None);
        let result = work(&mut engine, now);
        self.record_inline_poll(now);
        engine.run(now, Cause::Call, None);
        Ok(result)
    }

    /// Does `work` on the engine between two flushes of held packets.
    pub(crate) fn end<T>(&self, work: impl FnOnce(&mut Engine) -> T) -> Result<T, Error> {
        self.check_alive()?;
        let (mut engine, now) = self.lock_engine_now();
        engine.run(now, Cause::Flush, None);
        let result = work(&mut engine);
        engine.run(now, Cause::Flush, None);
        Ok(result)
    }

    /// Sends held packets, and all else that can leave, at most until `deadline`. Never waits for
    /// the lock beyond that.
    pub(super) fn flush_held(&self, deadline: std::time::Instant) {
        let mut give_up_at = deadline;
        while self.generation.is_current() {
            if let Some(mut engine) = self.engine.try_lock_engine() {
                engine.run(self.now(), Cause::Flush, None);
                if !engine.is_unfinished() || std::time::Instant::now() >= give_up_at {
                    return engine.abandon_held();
                }
                // The rest waits for the interface, which may have no carrier.
                give_up_at = give_up_at.min(std::time::Instant::now() + MAX_FLUSH);
            }
            if std::time::Instant::now() >= give_up_at {
                return;
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.common.now()
    }

    /// Returns the driver thread's sleep.
    pub(super) fn sleep(&self) -> &ThreadSleep {
        self.engine.sleep()
    }

    /// Returns what the driver thread sees of held posts.
    pub(super) fn held_posts(&self) -> &HeldPosts {
        self.engine.held_posts()
    }

    /// Waits for the engine's lock.
    #[cfg_attr(test, track_caller)]
    pub(super) fn lock_engine(&self) -> EngineGuard<'_> {
        self.engine.lock_engine()
    }

    pub(super) fn notifying(&self) -> MutexGuard<'_, Vec<Weak<QueueState>>> {
        self.notifying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a queue that notifies a channel.
    pub(super) fn add_notifying(&self, queue: &Arc<QueueState>) {
        let mut notifying = self.notifying();
        notifying.retain(|queue| queue.strong_count() > 0);
        notifying.push(Arc::downgrade(queue));
    }

    pub(super) fn record_inline_poll(&self, now: Instant) {
        self.inline_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Takes the lock, and reads the time when it is held.
    #[cfg_attr(test, track_caller)]
    pub(super) fn lock_engine_now(&self) -> (EngineGuard<'_>, Instant) {
        let engine = self.lock_engine();
        let now = self.now();
        (engine, now)
    }

    /// Returns the longest time that a thread spins before it sleeps.
    pub(super) fn max_spin(&self) -> Duration {
        self.common.max_spin
    }
}

/// Returns duplicates of the descriptors that are readable when frames have arrived.
fn duplicates(engine: &Engine) -> io::Result<Vec<Own<OwnedFd>>> {
    engine.wait_fds().into_iter().map(|fd| Own::make(|| fd.try_clone_to_owned())).collect()
}
