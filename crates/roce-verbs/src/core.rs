//! Who drives the engine, and when it sleeps.
//!
//! *Whoever polls drives.* A thread that polls a completion queue takes the engine if it
//! is free and runs one round in place: no other thread has to wake up between a packet
//! and its completion. A thread that waits on a completion channel drives while it waits.
//! When nobody does either, the device's own thread does: a one-sided operation needs no
//! help from the target's application, and a program may wait by reading its memory.
//!
//! The thread (`core/thread.rs`) keeps out of the way of those who drive inline: as long as one
//! did so a moment ago, it does not watch the interface and looks again after [`AWAY`], and more
//! and more seldom, up to [`LONGEST_AWAY`]. It spins a little after work, then sleeps in
//! `poll(2)`: an idle device uses no CPU.

mod engine_lock;
mod thread;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use roce_transport::{Completion, Instant, PathHandle};

pub(crate) use self::engine_lock::assert_not_held as assert_engine_unlocked;
use self::engine_lock::{EngineGuard, EngineLock};
use crate::completion_queue;
use crate::device::Opened;
use crate::engine::{Engine, Glance};
use crate::error::Error;
use crate::fork;
use crate::manners::Manners;
use crate::netlink::AddressNews;
use crate::patience::Patience;
use crate::placement::Placement;
use crate::port::Port;

/// How long the thread stays away before it looks again.
const AWAY: Duration = Duration::from_millis(1);
/// The longest it stays away from a program that polls and polls: twice as long each time that it
/// came for nothing. Coming takes some 10 µs of the core that the program polls on: with a
/// millisecond each time, a small message in a hundred waited that long.
const LONGEST_AWAY: Duration = Duration::from_millis(4);
/// How long to sleep while frames wait for room in the kernel's queue, of which no
/// descriptor tells.
const BACKLOG_NAP: Duration = Duration::from_micros(50);

/// A device's engine and all that is needed to drive it; what every object holds on to.
#[derive(Debug)]
pub(crate) struct Core {
    shared: Arc<Shared>,
    opened: Opened,
    thread: Option<JoinHandle<()>>,
}

/// What became of driving inline.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Driven {
    /// There was work.
    pub(crate) worked: bool,
    /// What the queue that was polled would hold now: older than anything that it does hold.
    pub(crate) completion: Option<Completion>,
}

/// The part that the device's thread shares.
#[derive(Debug)]
struct Shared {
    engine: EngineLock,
    port: Port,
    epoch: std::time::Instant,
    generation: fork::Generation,
    /// Readable when the devices have frames; duplicates, to wait without the lock.
    device_fds: Vec<OwnedFd>,
    wake: EventFd,
    stopping: AtomicBool,
    /// When someone last drove inline, in nanoseconds since `epoch`.
    inline_at: AtomicU64,
    /// How many threads are in `drive_until`.
    drivers: AtomicUsize,
    /// When the sleeping thread will wake by itself, in nanoseconds; 0: it is not asleep.
    wakes_at: AtomicU64,
    manners: Manners,
    patience: Patience,
}

impl Core {
    pub(crate) fn new(
        engine: Engine,
        port: Port,
        opened: Opened,
        spin: Duration,
        placement: Placement,
    ) -> Result<Self, Error> {
        let mut device_fds = Vec::new();
        for fd in engine.wire.wait_fds() {
            device_fds.push(fd.try_clone_to_owned()?);
        }
        for fd in engine.lo.iter().flat_map(|lo| lo.wait_fds()) {
            device_fds.push(fd.try_clone_to_owned()?);
        }
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_value_and_flags(0, flags).map_err(std::io::Error::from)?;
        let shared = Shared {
            engine: EngineLock::new(engine),
            port,
            epoch: std::time::Instant::now(),
            generation: fork::Generation::current(),
            device_fds,
            wake,
            stopping: AtomicBool::new(false),
            inline_at: AtomicU64::new(0),
            drivers: AtomicUsize::new(0),
            wakes_at: AtomicU64::new(0),
            manners: Manners::default(),
            patience: Patience::new(spin),
        };
        let shared = Arc::new(shared);
        // Both here, in the network namespace of the device.
        let news = AddressNews::listen()?;
        let thread = std::thread::Builder::new().name(format!("roce {}", shared.port.name()));
        let its = Arc::clone(&shared);
        let (tell, placed) = mpsc::channel();
        let thread = thread.spawn(move || {
            let outcome = thread::become_a_background_thread(placement);
            let runs = outcome.is_ok();
            let _told = tell.send(outcome);
            if runs {
                its.run(&news);
            }
        })?;
        // It says so before anything else; if it cannot even do that, it has panicked.
        placed.recv().unwrap_or(Ok(()))?;
        Ok(Self { shared, opened, thread: Some(thread) })
    }

    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }

    pub(crate) fn port(&self) -> &Port {
        &self.shared.port
    }

    /// Whether this is still the process that opened the device.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        if self.shared.generation.is_current() { Ok(()) } else { Err(Error::Forked) }
    }

    /// The engine, for as long as the guard lives.
    pub(crate) fn engine(&self) -> Result<EngineGuard<'_>, Error> {
        // Before the lock: after a fork its holder may be a thread that does not exist.
        self.check_alive()?;
        Ok(self.shared.lock())
    }

    /// Does `work` on the engine and then drives it one round, so that what was asked for
    /// is on its way when this returns.
    pub(crate) fn with_engine<T>(
        &self,
        work: impl FnOnce(&mut Engine, Instant) -> T,
    ) -> Result<T, Error> {
        let mut engine = self.engine()?;
        let now = self.shared.now();
        let result = work(&mut engine, now);
        self.shared.note_inline(now);
        engine.round(now);
        self.shared.nudge(&engine);
        Ok(result)
    }

    /// Posts something and sends what can leave; what has come in is for who polls.
    pub(crate) fn post<T>(&self, work: impl FnOnce(&mut Engine, Instant) -> T) -> Result<T, Error> {
        let mut engine = self.engine()?;
        let before = engine.latest();
        let result = work(&mut engine, before);
        if engine.endpoint.wants_time() {
            engine.posted_round(self.shared.now());
        } else {
            engine.posted_round(before);
            // Behind the message nobody waits for it: that is worth 20 ns of half a round trip.
            engine.note_time(self.shared.now());
        }
        self.shared.nudge(&engine);
        Ok(result)
    }

    /// Posts receives, because of which nothing leaves and no timer changes: so the time does not
    /// matter.
    pub(crate) fn post_receives<T>(
        &self,
        work: impl FnOnce(&mut Engine, Instant) -> T,
    ) -> Result<T, Error> {
        let mut engine = self.engine()?;
        let now = engine.latest();
        let result = work(&mut engine, now);
        engine.report(now);
        Ok(result)
    }

    /// Drives one round if nobody else is. `poller` is the empty completion queue because of which.
    pub(crate) fn drive_inline(&self, poller: Option<&completion_queue::Inner>) -> Driven {
        let shared = &self.shared;
        if !shared.generation.is_current() {
            return Driven::default();
        }
        let Some(mut engine) = shared.engine.try_lock() else {
            // Another thread drives right now: what it finds is found for this one too.
            shared.note_inline(shared.now());
            std::thread::yield_now();
            return Driven { worked: true, completion: None };
        };
        let now = match engine.glance() {
            Glance::Nothing => {
                drop(engine);
                shared.manners.after_empty_round();
                return Driven::default();
            }
            Glance::Something { latest } => latest,
            Glance::NotNow => shared.now(),
        };
        shared.note_inline(now);
        let (round, completion) = engine.polled_round(now, poller);
        shared.nudge(&engine);
        drop(engine);
        let worked = round.worked();
        if !worked {
            shared.manners.after_empty_round();
        }
        Driven { worked, completion }
    }

    /// Drives until `done` says so or `deadline` comes, sleeping when there is no work;
    /// `fd` wakes it besides the device.
    pub(crate) fn drive_until(
        &self,
        deadline: Option<std::time::Instant>,
        fd: BorrowedFd<'_>,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        Self::drive_all_until(&[self], deadline, &[fd], |_| done())
    }

    /// As [`drive_until`](Self::drive_until), over several devices at once. `done` is told
    /// whether the last of `fds` was readable after a sleep.
    pub(crate) fn drive_all_until(
        cores: &[&Self],
        deadline: Option<std::time::Instant>,
        fds: &[BorrowedFd<'_>],
        mut done: impl FnMut(bool) -> bool,
    ) -> Result<(), Error> {
        cores.iter().try_for_each(|core| core.check_alive())?;
        let _driving: Vec<_> = cores.iter().map(|core| Driving::begin(&core.shared)).collect();
        let spin = cores.iter().map(|core| core.shared.patience.spin()).max().unwrap_or_default();
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
            let mut worked = false;
            let mut limit = deadline.map(|at| at.saturating_duration_since(now));
            for shared in cores.iter().map(|core| &core.shared) {
                let now = shared.now();
                let mut engine = shared.lock();
                worked |= engine.round(now).worked();
                shared.nudge(&engine);
                if let Some(at) = shared.wake_at(&engine, now) {
                    let wait = at.saturating_since(now);
                    limit = Some(limit.map_or(wait, |limit| limit.min(wait)));
                }
            }
            if worked {
                last_work = now;
                continue;
            }
            if now.duration_since(last_work) < spin {
                std::thread::yield_now();
                continue;
            }
            let devices = cores.iter().flat_map(|core| &core.shared.device_fds);
            let all: Vec<_> = fds.iter().copied().chain(devices.map(|fd| fd.as_fd())).collect();
            let readable = sleep(&all, limit)?;
            let lasted = now.elapsed();
            cores.iter().for_each(|core| core.shared.patience.note_sleep(lasted));
            last_is_readable = fds.len().checked_sub(1).is_some_and(|last| readable[last]);
        }
    }

    /// Drops a path that no object names any more.
    pub(crate) fn forget_path(&self, handle: PathHandle) {
        if let Ok(mut engine) = self.engine() {
            engine.paths.remove(handle);
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // In a child after fork the thread does not exist, and the eventfd is the parent's.
        if !self.shared.generation.is_current() {
            return;
        }
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake_thread();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed by the runtime; there is nothing to add.
            let _ended = thread.join();
        }
    }
}

impl Shared {
    fn now(&self) -> Instant {
        let nanos = u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // One later than zero, which stands for "never" in the atomics below.
        Instant::from_nanos(nanos.saturating_add(1))
    }

    fn lock(&self) -> EngineGuard<'_> {
        self.engine.lock()
    }

    fn note_inline(&self, now: Instant) {
        self.inline_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Nudges the thread where it would sleep far past the next timer, or past work that is left:
    /// who posts need not poll. Not where it would be a little late: who drives inline looks after
    /// both, and a nudge for each request posted would cost more than the request.
    fn nudge(&self, engine: &Engine) {
        let asleep_until = self.wakes_at.load(Ordering::Acquire);
        let is_late = |at: Instant| (at + LONGEST_AWAY).as_nanos() < asleep_until;
        // Asked first, since mostly it is awake, or will be soon.
        if is_late(engine.latest()) && next_work(engine).is_some_and(is_late) {
            self.wake_thread();
        }
    }

    /// When the engine wants to be driven again, work or not.
    fn wake_at(&self, engine: &Engine, now: Instant) -> Option<Instant> {
        let mut wake = engine.endpoint.poll_timeout();
        let mut earlier = |at: Instant| wake = Some(wake.map_or(at, |known| known.min(at)));
        let held_back = [engine.wire.wake_at(), engine.lo.as_ref().and_then(|lo| lo.wake_at())];
        for at in held_back.into_iter().flatten() {
            earlier(now + at.saturating_duration_since(std::time::Instant::now()));
        }
        if engine.has_backlog() {
            earlier(now + BACKLOG_NAP);
        }
        wake
    }

    fn wake_thread(&self) {
        // Once is enough until it has woken.
        self.wakes_at.store(0, Ordering::Release);
        let _written = self.wake.write(1);
    }
}

/// When there is work of which no descriptor tells: what is left, and the next timer.
fn next_work(engine: &Engine) -> Option<Instant> {
    let left = engine.is_unfinished().then(|| engine.latest() + BACKLOG_NAP);
    left.into_iter().chain(engine.endpoint.poll_timeout()).min()
}

/// Sleeps until one of the descriptors is readable or the time is over, and says which are.
fn sleep(fds: &[BorrowedFd<'_>], limit: Option<Duration>) -> Result<Vec<bool>, Error> {
    let mut set: Vec<_> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    let timeout = limit
        .map(|limit| nix::sys::time::TimeSpec::from_duration(limit.min(Duration::from_secs(3600))));
    match nix::poll::ppoll(&mut set, timeout, None) {
        Ok(_) => Ok(set.iter().map(|fd| fd.any().unwrap_or(true)).collect()),
        Err(nix::errno::Errno::EINTR) => Ok(vec![false; fds.len()]),
        Err(errno) => Err(std::io::Error::from(errno).into()),
    }
}

/// Says for its lifetime that a thread drives, and tells the device's thread at the end.
struct Driving<'a>(&'a Shared);

impl<'a> Driving<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.drivers.fetch_add(1, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        let now = self.0.now();
        self.0.note_inline(now);
        let last = self.0.drivers.fetch_sub(1, Ordering::SeqCst) == 1;
        // Near enough it wakes by itself: a program that waits in a loop must not pay
        // for a wake-up each time. (To set a timer instead takes 10 µs in a virtual machine.)
        if last && self.0.wakes_at.load(Ordering::SeqCst) > (now + AWAY * 2).as_nanos() {
            self.0.wake_thread();
        }
    }
}
