//! Runs rounds of the engine, in the calling thread or in the device's own.
//!
//! A round receives frames, fires timers, sends frames and delivers completions. `poll` of an empty
//! queue runs one inline if the engine's lock is free, so no other thread has to wake up between a
//! packet and its completion; `wait` runs rounds until an event. The driver thread, one for each
//! device, runs them whenever the application may not. It sleeps without the devices only while
//! the last inline round is less than [`INLINE_RECENT`](roce_engine::policy::INLINE_RECENT) ago or a caller is in `wait`, and never
//! while a caller may sleep on the descriptor of a completion channel, unless another polls. So every packet, timer and
//! ACK is served whatever the application calls or omits; how soon depends on its last call:
//!
//! | the application | drives | the driver thread |
//! |---|---|---|
//! | polls | each poll of an empty queue, one round | sleeps 1 to 4 ms at a time, without the devices; drives 300 µs after the last poll, or at the end of that sleep |
//! | polls for its requests, and waits for messages by reading its memory | as where it polls | as where it polls, until frames have waited in such a sleep; then sleeps on the devices' descriptors for some 16 wakes, twice as many each time |
//! | is in `CompletionChannel::wait` | the caller | sleeps up to 100 ms; drives a timer that is 1 ms late, and a backlog that the caller cannot see |
//! | arms a queue and may sleep on the descriptor, or awaits it | the driver thread | sleeps on the devices' descriptors; arming wakes it from any other sleep |
//! | armed, and polls the same queue on for 300 µs | as where it polls | as where it polls |
//! | armed a queue 300 µs ago, and polls another one all the time | each poll of an empty queue, one round, which notifies too | sleeps 1 ms at a time, without the devices; if a frame has waited in such a sleep, on the devices' descriptors for some 16 wakes |
//! | posts | the post sends what can leave | drives the rest: woken where it would sleep 4 ms beyond the next timer or backlog |
//! | calls nothing | the driver thread | sleeps on the devices' descriptors until the next timer: an idle device uses no CPU |
//!
//! Which queues may be slept on follows from when each was armed, reported and polled, and from
//! whether the last report found a caller in `wait`
//! ([`Inner::relies_on_thread`](completion_queue::Inner::relies_on_thread)). What the driver thread
//! does about it is decided by [`DriverThreadPolicy`](roce_engine::policy::DriverThreadPolicy) and done in `thread.rs`.
//!
//! A thread that finds no work polls again, yields or blocks as its [`WaitPolicy`] says. A polling
//! thread blocks only on a contended processor, and with nothing held: see `blocking.rs`. Until it
//! returns it counts as polling, so the driver thread sleeps.
//!
//! [`WaitPolicy`]: roce_engine::policy::WaitPolicy
//!
//! Time is read with the engine's lock held, so the engine's instants never go backwards.
//!
//! Another thread (`monitor.rs`) asks the kernel about routes, neighbours and the interface, so that
//! no thread waits for an answer under the engine's lock.

mod blocking;
mod caller_run;
mod counter_publisher;
mod held_posts;
mod monitor;
mod polling;
mod posting;
mod shared;
mod sleep;
mod thread;
mod waiting;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use nix::sys::eventfd::{EfdFlags, EventFd};
use roce_engine::PathEntry;
use roce_engine::policy::{Cause, MAX_FLUSH};
use roce_transport::{Instant, PathHandle};

use self::counter_publisher::CounterPublisher;
use self::held_posts::HeldPosts;
pub(crate) use self::held_posts::QueuePairRunCell;
use self::monitor::Monitor;
use self::shared::Shared;
use self::sleep::ThreadSleep;
pub use self::waiting::SleepSet;
use crate::background_thread::set_up_background_thread;
use crate::counter_file;
use crate::device_state::DeviceState;
use crate::engine::Engine;
use crate::engine_lock::{EngineGuard, EngineLock};
use crate::error::Error;
use crate::fork;
use crate::port::Port;

/// A device's engine and all that is needed to drive it; every object of the device keeps it alive.
#[derive(Debug)]
pub(crate) struct Driver {
    shared: Arc<Shared>,
    device: DeviceState,
    thread: Option<JoinHandle<()>>,
    monitor: Monitor,
    publisher: Option<CounterPublisher>,
}

impl Driver {
    pub(crate) fn new(engine: Engine, port: Port, device: DeviceState) -> Result<Self, Error> {
        let (spin, placement) = (device.config.spin, device.config.thread);
        let mut device_fds = Vec::new();
        for fd in engine.wait_fds() {
            device_fds.push(fd.try_clone_to_owned()?);
        }
        let shared = Shared {
            engine: EngineLock::new(engine),
            port,
            epoch: std::time::Instant::now(),
            generation: fork::Generation::current(),
            device_fds,
            stopping: AtomicBool::new(false),
            thread_ended: EventFd::from_flags(EfdFlags::EFD_CLOEXEC)
                .map_err(io::Error::from)?
                .into(),
            inline_at: AtomicU64::new(0),
            waiters: AtomicUsize::new(0),
            sleep: ThreadSleep::new()?,
            notifying: Mutex::default(),
            max_spin: spin,
            held_posts: HeldPosts::default(),
        };
        let shared = Arc::new(shared);
        // Started by this thread, which is in the network namespace of the device.
        let monitor = Monitor::start(&shared)?;
        let thread = std::thread::Builder::new().name(format!("roce {}", shared.port.name()));
        let its = Arc::clone(&shared);
        let (tell, placed) = mpsc::channel();
        let thread = thread.spawn(move || {
            let outcome = set_up_background_thread(placement);
            let runs = outcome.is_ok();
            let _told = tell.send(outcome);
            if runs {
                its.run();
            }
        })?;
        // A thread that sends nothing has panicked.
        placed.recv().unwrap_or(Ok(()))?;
        let file = device.config.counter_file.clone();
        let publisher = file.map(|file| CounterPublisher::start(&shared, &file)).transpose()?;
        if device.config.counters_each_round {
            shared.lock().consumer.counter_file =
                publisher.as_ref().map(|it| Arc::clone(it.file()));
        }
        Ok(Self { shared, device, thread: Some(thread), monitor, publisher })
    }

    pub(crate) fn device(&self) -> &DeviceState {
        &self.device
    }

    pub(crate) fn port(&self) -> &Port {
        &self.shared.port
    }

    /// Checks that this is the process that opened the device.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        if self.shared.generation.is_current() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Locks the engine.
    pub(crate) fn engine(&self) -> Result<EngineGuard<'_>, Error> {
        // Before the lock: after a fork its holder may be a thread that the child does not have.
        self.check_alive()?;
        Ok(self.shared.lock())
    }

    /// Does `work` on the engine and then runs one round, so that packets due to `work` have left
    /// when this returns. Held packets leave first: `work` may end their queue pair.
    pub(crate) fn with_engine<T>(
        &self,
        work: impl FnOnce(&mut Engine, Instant) -> T,
    ) -> Result<T, Error> {
        self.check_alive()?;
        let (mut engine, now) = self.shared.lock_now();
        caller_run::end_run();
        engine.run(now, Cause::Flush, None);
        let result = work(&mut engine, now);
        self.shared.record_inline_poll(now);
        engine.run(now, Cause::Call, None);
        self.shared.wake_thread_if_late(&engine);
        Ok(result)
    }

    /// Does `work` on the engine between two flushes of held packets.
    pub(crate) fn end<T>(&self, work: impl FnOnce(&mut Engine) -> T) -> Result<T, Error> {
        self.check_alive()?;
        let (mut engine, now) = self.shared.lock_now();
        engine.run(now, Cause::Flush, None);
        let result = work(&mut engine);
        engine.run(now, Cause::Flush, None);
        self.shared.wake_thread_if_late(&engine);
        Ok(result)
    }

    /// Sends held packets, and all else that can leave, at most until `deadline`. Never waits for
    /// the lock beyond that.
    pub(crate) fn flush_held(&self, deadline: std::time::Instant) {
        let shared = &self.shared;
        let mut give_up_at = deadline;
        while shared.generation.is_current() {
            if let Some(mut engine) = shared.engine.try_lock() {
                engine.run(shared.now(), Cause::Flush, None);
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

    /// Publishes the counters, if the device does that. Waits at most until `deadline` for the lock.
    pub(crate) fn publish_counters(&self, deadline: std::time::Instant) {
        let Some(publisher) = &self.publisher else { return };
        while self.shared.generation.is_current() {
            if let Some(engine) = self.shared.engine.try_lock() {
                return counter_file::write(publisher.file(), &engine.counters());
            }
            if std::time::Instant::now() >= deadline {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Ends the driver thread, at the latest at `deadline`. Calls of the application run rounds as
    /// before.
    pub(crate) fn end_thread(&self, deadline: std::time::Instant) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        let runs = || self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        while runs() && std::time::Instant::now() < deadline {
            self.shared.sleep.wake();
            std::thread::yield_now();
        }
        // Threads of the program that sleep until an event comes drive the device from now on.
        let _written = nix::unistd::write(&self.shared.thread_ended, &1_u64.to_ne_bytes());
    }

    /// Takes a user from a path.
    pub(crate) fn release_path(&self, handle: PathHandle) {
        // Packets of a destroyed queue pair may still need the path.
        let _forked = self.end(|engine| engine.paths.release(handle));
    }

    /// Finds the next hop of a path and enters the path into the table, with one user. Waits for
    /// the kernel's answer, at most some four seconds, without the engine's lock.
    pub(crate) fn resolve(&self, entry: PathEntry) -> Result<PathHandle, Error> {
        self.check_alive()?;
        Ok(self.monitor.resolve(entry)?)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // In a child after fork the thread does not exist, and the eventfd is the parent's.
        if !self.shared.generation.is_current() {
            return;
        }
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.sleep.wake();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed by the runtime; there is nothing to add.
            let _ended = thread.join();
        }
        let deadline = std::time::Instant::now() + MAX_FLUSH;
        self.flush_held(deadline);
        if let Some(publisher) = &mut self.publisher {
            publisher.end();
        }
        self.publish_counters(deadline);
    }
}
