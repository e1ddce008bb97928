//! The driver thread: it runs rounds when the application does not.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use roce_engine::policy::{
    Cause, Check, Decision, DriverThreadPolicy, MAX_RECHECK, MIN_RECHECK, Situation,
};
use roce_io::process::Own;
use roce_transport::Instant;

use super::driven_engine::EngineGuard;
use super::shard::Shard;
use super::sleep::{is_closed, sleep};
use crate::answer::answer;
use crate::error::Error;
use crate::process::background_thread::BackgroundThread;
use crate::process::thread_placement::{self, ThreadPlacement};
use crate::thread_wait;

impl Shard {
    /// Starts the driver thread.
    pub(super) fn start(
        self: &Arc<Self>,
        placement: ThreadPlacement,
    ) -> Result<JoinHandle<()>, Error> {
        let port = self.common.port.name();
        let name = match self.number {
            0 => format!("roce {port}"),
            number => format!("roce.{number} {port}"),
        };
        let its = Arc::clone(self);
        let (tell, placed) = answer();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let thread = BackgroundThread::begin();
            let outcome = thread.place(placement);
            let runs = outcome.is_ok();
            tell.give(outcome);
            if runs {
                its.run();
            }
        })?;
        // A thread that sends nothing has panicked.
        placed.wait().unwrap_or(Ok(()))?;
        Ok(thread)
    }

    /// Returns the input of the driver thread's next decision.
    fn situation(&self) -> Situation {
        let last_inline = self.inline_at.load(Ordering::Relaxed);
        // Before this thread takes the lock itself.
        let is_in_round = self.engine.is_locked();
        let held = self.check_held(self.now());
        let is_waited_on = self.waiters.load(Ordering::SeqCst) > 0;
        let engine = is_waited_on.then(|| self.lock_engine());
        let now = self.now();
        Situation {
            now,
            last_inline: (last_inline != 0).then(|| Instant::from_nanos(last_inline)),
            is_in_round,
            is_waited_on,
            held,
            relied_on_since: self.relied_on_since(now),
            has_backlog: engine.as_ref().is_some_and(|engine| engine.is_unfinished()),
            next_timer: engine.as_ref().and_then(EngineGuard::next_timer),
        }
    }

    /// Returns the time since the last inline round.
    fn since_inline(&self) -> Duration {
        let last = Instant::from_nanos(self.inline_at.load(Ordering::Relaxed));
        self.now().saturating_since(last)
    }

    /// Returns what to do about held posts. A thread that holds the engine's lock is likely to be the
    /// caller that posted, in a long round that sends them.
    fn check_held(&self, now: Instant) -> Check {
        match self.held_posts().check(now) {
            Check::Send if self.engine.is_locked() => Check::Again(self.held_posts().interval()),
            check => check,
        }
    }

    /// Returns when the last of the queues on whose channels a caller may sleep was armed or reported,
    /// if there are any.
    fn relied_on_since(&self, now: Instant) -> Option<Instant> {
        let notifying = self.notifying();
        let queues = notifying.iter().filter_map(Weak::upgrade);
        queues.filter(|queue| queue.relies_on_thread(now)).map(|it| it.notified_at()).max()
    }

    /// Runs the driver thread.
    fn run(&self) {
        let mut last_work = self.now();
        let mut policy = DriverThreadPolicy::default();
        if let Err(error) = thread_placement::shorten_slices() {
            tracing::debug!(%error, "the driver thread keeps its long time slices");
        }
        while !self.common.stopping.load(Ordering::Acquire) {
            let seen = self.situation();
            if seen.held == Check::Send {
                // The caller that posted has gone away, and may not come back.
                self.inline_at.store(0, Ordering::Relaxed);
            }
            if let Decision::Sleep(limit) = policy.decide(&seen) {
                self.sleep_without_devices(limit, &seen);
                continue;
            }
            let (wake_at, now) = {
                let (mut engine, now) = self.lock_engine_now();
                let round = engine.run(now, Cause::DriverThread, None);
                policy.on_round(round.received);
                self.held_posts().note_driver_round();
                let wake_at = engine.wake_at(now);
                drop(engine);
                if round.notified {
                    // The application runs next, perhaps on this processor.
                    self.note_notifications(now);
                } else if round.did_work() {
                    last_work = now;
                }
                if round.did_work() {
                    continue;
                }
                (wake_at, now)
            };
            let spin = thread_wait::with_current(|policy| policy.spin(self.max_spin()));
            if seen.may_spin(self.since_inline()) && now.saturating_since(last_work) < spin {
                thread_wait::yield_now(std::time::Instant::now());
                continue;
            }
            self.sleep_on_devices(wake_at, now);
            policy.on_woken(self.since_inline());
            let lasted = self.now().saturating_since(now);
            thread_wait::with_current(|policy| policy.on_slept(lasted, self.max_spin()));
        }
    }

    /// Marks the channels that the driver thread notified at `now`.
    fn note_notifications(&self, now: Instant) {
        let notifying = self.notifying();
        let queues = notifying.iter().filter_map(Weak::upgrade);
        queues.filter(|queue| queue.notified_at() == now).for_each(|it| it.on_unattended_notify());
    }

    /// Sleeps while the application runs rounds; frames do not end the sleep.
    fn sleep_without_devices(&self, limit: Duration, seen: &Situation) {
        self.sleep().begin(self.now() + limit, false);
        // Work that came before other threads could see that this one sleeps. Where posts were held
        // already, `limit` is the time until the next check.
        let mut is_over = self.relied_on_since(self.now()) > seen.relied_on_since;
        is_over |= seen.last_inline.is_some() && self.inline_at.load(Ordering::SeqCst) == 0;
        is_over |= seen.held == Check::Nothing && self.held_posts().is_missed(self.sleep());
        if limit > MAX_RECHECK {
            // The caller in `wait` may have left, or not see a backlog or a timer.
            // As seen when the limit was set: a moment later, the timer that set it would seem to come before it.
            let until = seen.now + limit;
            let engine = self.lock_engine();
            is_over |= self.waiters.load(Ordering::SeqCst) == 0
                || engine.is_unfinished()
                || engine.next_timer().is_some_and(|at| at + MIN_RECHECK < until);
        }
        self.sleep_unless(is_over, &[], Some(limit));
    }

    /// Sleeps until a frame comes, or until `wake_at`.
    fn sleep_on_devices(&self, wake_at: Option<Instant>, now: Instant) {
        let until = wake_at.unwrap_or(Instant::from_nanos(u64::MAX));
        self.sleep().begin(until, true);
        // A timer or a backlog from before other threads could see that this one sleeps. The thread
        // that holds the lock may have tested that already, so this one waits for the lock.
        let is_over = self.lock_engine().next_work().is_some_and(|at| at < until)
            || self.held_posts().is_missed(self.sleep());
        let fds: Vec<_> = self.device_fds().iter().map(|fd| fd.as_fd()).collect();
        self.sleep_unless(is_over, &fds, wake_at.map(|at| at.saturating_since(now)));
    }

    /// Sleeps unless `is_over`.
    fn sleep_unless(&self, is_over: bool, fds: &[BorrowedFd<'_>], limit: Option<Duration>) {
        if !is_over && !self.common.stopping.load(Ordering::SeqCst) {
            let fds: Vec<_> = fds.iter().copied().chain([self.sleep().as_fd()]).collect();
            let slept = sleep(&fds, limit);
            // The program may have closed all descriptors while this thread slept, and opened others: the kernel
            // goes on waiting for the files that it began with.
            if slept.as_ref().is_err_and(is_closed) || !self.has_descriptors() {
                // All threads of the device end, and touch its descriptors no more.
                tracing::debug!("the program has closed the descriptors of a device, which ends");
                self.common.stopping.store(true, Ordering::SeqCst);
                self.sleep().end_unread();
                return;
            }
            match slept {
                // A wake-up that comes behind this look ends the next sleep at once.
                Ok(readable) if readable.last() == Some(&false) => {
                    self.sleep().end_unread();
                    return;
                }
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "the driver thread cannot sleep"),
            }
        }
        self.sleep().end();
    }

    /// Returns true unless the program has closed all descriptors: then the first of the devices is among them, and
    /// what the next round writes to channels would go elsewhere. A look at each would add 0.2 microseconds to a
    /// wake-up.
    fn has_descriptors(&self) -> bool {
        self.device_fds().first().is_none_or(Own::is_open)
    }
}
