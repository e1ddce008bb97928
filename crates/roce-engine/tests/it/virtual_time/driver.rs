//! A driver of an engine in virtual time: what `roce-verbs` does with clocks, locks and descriptors.
//!
//! Every step is done at one instant; its caller lets time pass between two.

use std::time::Duration;

use roce_engine::policy::{
    BACKLOG_RETRY, CallerRun, Cause, Check, Decision, DriverThreadPolicy, Held, MAX_BLOCK,
    MAX_RECHECK, MIN_RECHECK, PostRuns, QueuePairRun, Situation,
};
use roce_engine::{Departure, Engine, Posted, SendQueue};
use roce_transport::{Completion, CqHandle, Instant, PostError, SendWr};
use roce_wire::Qpn;

use super::queues::{Polled, Queues};
use super::wire::{Clock, WireHandle};

/// Time from a report or a frame until the thread runs that sleeps on it.
pub(crate) const WAKE_UP: Duration = Duration::from_micros(40);
/// Time from one round of the driver thread to the next while it has work.
const ROUND: Duration = Duration::from_micros(1);
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// What the driver thread does until its next step.
#[derive(Clone, Copy, Debug)]
enum Thread {
    /// It runs at this time.
    Awake(Instant),
    /// It sleeps until this time, or until a frame comes if it watches the devices.
    Asleep { until: Instant, watches_devices: bool },
}

/// A send queue at one instant.
struct Queue {
    queue_pair: Qpn,
    now: Instant,
}

impl SendQueue for Queue {
    fn queue_pair(&self) -> Qpn {
        self.queue_pair
    }

    fn now(&self) -> Instant {
        self.now
    }
}

/// An engine, and the state that its threads share.
pub(crate) struct Driver {
    pub(crate) engine: Engine<Queues>,
    pub(crate) wire: WireHandle,
    clock: Clock,
    inline_at: Option<Instant>,
    pub(crate) waiters: u32,
    held: Held,
    thread: Thread,
    policy: DriverThreadPolicy,
    last_work: Instant,
    max_spin: Duration,
    caller: CallerRun,
    runs: Vec<(Qpn, QueuePairRun)>,
}

impl Driver {
    pub(crate) fn new(
        engine: Engine<Queues>,
        wire: WireHandle,
        clock: Clock,
        max_spin: Duration,
    ) -> Self {
        let now = clock.now();
        Self {
            engine,
            wire,
            clock,
            inline_at: None,
            waiters: 0,
            held: Held { is_holding: false, at: Instant::default(), interval: Duration::ZERO },
            thread: Thread::Awake(now),
            policy: DriverThreadPolicy::default(),
            last_work: now,
            max_spin,
            caller: CallerRun::NONE,
            runs: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns the time of the last inline round.
    pub(crate) fn last_inline(&self) -> Instant {
        self.inline_at.unwrap_or_default()
    }

    /// Returns the time at which a thread runs that sleeps on the devices.
    pub(crate) fn woken_by_frame(&self) -> Option<Instant> {
        self.wire.next_arrival().map(|at| at + WAKE_UP)
    }

    /// Returns when the engine needs its next round, whether frames arrive or not.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let last = self.engine.last_now();
        let backlog = self.engine.is_unfinished().then(|| last + BACKLOG_RETRY);
        backlog.into_iter().chain(self.next_timer()).min()
    }

    fn next_timer(&self) -> Option<Instant> {
        let of_devices = self.engine.device_timeout().map(|at| self.clock.of_system(at));
        let timers = [self.engine.endpoint().poll_timeout(), self.engine.held_due(), of_devices];
        timers.into_iter().flatten().min()
    }

    fn wake_thread(&mut self) {
        if matches!(self.thread, Thread::Asleep { .. }) {
            self.thread = Thread::Awake(self.now() + WAKE_UP);
        }
    }

    fn sleeps_beyond(&self, at: Instant) -> bool {
        matches!(self.thread, Thread::Asleep { until, .. } if until > at)
    }

    fn wake_thread_if_late(&mut self) {
        if !self.engine.doorbells().is_holding() {
            self.held.is_holding = false;
        }
        if self.wake_at().is_some_and(|at| self.sleeps_beyond(at + MAX_RECHECK)) {
            self.wake_thread();
        }
    }

    // Calls of the program.

    /// Polls a queue for one completion.
    pub(crate) fn poll(&mut self, handle: CqHandle) -> Option<Completion> {
        let taken = self.engine.consumer_mut().get(handle).entries.pop_front();
        if taken.is_some() {
            self.send_held_posts();
            return taken;
        }
        self.caller = CallerRun::NONE;
        let now = self.now();
        self.inline_at = Some(now);
        let queue = self.engine.consumer_mut().get(handle);
        if queue.is_armed {
            queue.polled_at = now;
        }
        let (has_channel, can_bypass) = (queue.has_channel, !queue.is_armed);
        let polled = Polled { handle, can_bypass, has_channel };
        let round = self.engine.run(now, Cause::Poll, Some(&polled));
        self.wake_thread_if_late();
        round.completion.or_else(|| self.engine.consumer_mut().get(handle).entries.pop_front())
    }

    /// Blocks as a polling thread does on a contended processor. Returns until when at most.
    pub(crate) fn block(&mut self) -> Option<Instant> {
        let now = self.now();
        if self.engine.run(now, Cause::Block, None).did_work() {
            return None;
        }
        let until = self.wake_at().map_or(now + MAX_BLOCK, |at| at.min(now + MAX_BLOCK)).max(now);
        self.inline_at = Some(until);
        Some(until)
    }

    fn send_held_posts(&mut self) {
        self.caller = CallerRun::NONE;
        if self.held.is_holding {
            let now = self.now();
            self.engine.run(now, Cause::HeldPosts, None);
            self.wake_thread_if_late();
        }
    }

    pub(crate) fn post(&mut self, queue_pair: Qpn, work: SendWr) -> Result<(), PostError> {
        let mut runs = PostRuns { caller: self.caller, queue_pair: self.run_of(queue_pair) };
        let queue = Queue { queue_pair, now: self.now() };
        let mut work = Some(work);
        let Posted { result, departure } = self.engine.post(&queue, &mut runs, |_| work.take());
        self.caller = runs.caller;
        self.set_run(queue_pair, runs.queue_pair);
        if departure != Departure::Held {
            self.wake_thread_if_late();
        }
        if departure != Departure::Left {
            self.note_held(queue.now);
        }
        result.map_err(|(_, refused)| refused)
    }

    fn run_of(&self, queue_pair: Qpn) -> QueuePairRun {
        self.runs
            .iter()
            .find(|(qpn, _)| *qpn == queue_pair)
            .map_or_else(Default::default, |it| it.1)
    }

    fn set_run(&mut self, queue_pair: Qpn, run: QueuePairRun) {
        self.runs.retain(|(qpn, _)| *qpn != queue_pair);
        self.runs.push((queue_pair, run));
    }

    fn note_held(&mut self, now: Instant) {
        self.held.at = now;
        if !self.held.is_holding {
            self.held.interval = self.engine.doorbells().check_interval();
            self.held.is_holding = true;
            if self.held.next_check().is_some_and(|at| self.sleeps_beyond(at)) {
                self.wake_thread();
            }
        }
    }

    /// Does `work` between a flush and a round, as a call that changes an object does.
    pub(crate) fn call<T>(&mut self, work: impl FnOnce(&mut Engine<Queues>, Instant) -> T) -> T {
        let now = self.now();
        self.caller = CallerRun::NONE;
        self.engine.run(now, Cause::Flush, None);
        let result = work(&mut self.engine, now);
        self.inline_at = Some(now);
        self.engine.run(now, Cause::Call, None);
        self.wake_thread_if_late();
        result
    }

    /// Arms a queue, on whose channel the program may sleep from now on.
    pub(crate) fn arm(&mut self, handle: CqHandle) {
        self.send_held_posts();
        let now = self.now();
        let queue = self.engine.consumer_mut().get(handle);
        queue.arm(now);
        let relies = queue.relies_on_thread(now);
        if relies && matches!(self.thread, Thread::Asleep { watches_devices: false, .. }) {
            self.wake_thread();
        }
    }

    /// Runs a round of a caller that waits. Returns until when it sleeps on the devices if there was no
    /// work.
    pub(crate) fn wait_round(&mut self) -> Option<Instant> {
        let now = self.now();
        self.caller = CallerRun::NONE;
        let did_work = self.engine.run(now, Cause::Call, None).did_work();
        self.wake_thread_if_late();
        (!did_work).then(|| self.wake_at().unwrap_or(NEVER))
    }

    /// Ends the wait of a caller.
    pub(crate) fn end_wait(&mut self) {
        let now = self.now();
        self.inline_at = Some(now);
        self.waiters -= 1;
        if self.waiters == 0 && self.sleeps_beyond(now + MIN_RECHECK * 2) {
            self.wake_thread();
        }
    }

    // The driver thread.

    /// Returns the time of its next step.
    pub(crate) fn thread_at(&self) -> Instant {
        match self.thread {
            Thread::Awake(at) => at,
            Thread::Asleep { until, watches_devices: false } => until,
            Thread::Asleep { until, watches_devices: true } => {
                self.woken_by_frame().map_or(until, |at| at.min(until))
            }
        }
    }

    fn since_inline(&self) -> Duration {
        self.inline_at.map_or(Duration::MAX, |at| self.now().saturating_since(at))
    }

    fn relied_on_since(&self) -> Option<Instant> {
        let now = self.now();
        let queues = self.engine.consumer().0.iter().filter(|queue| queue.relies_on_thread(now));
        queues.map(|queue| queue.event_at).max()
    }

    pub(crate) fn run_thread(&mut self) {
        let now = self.now();
        if matches!(self.thread, Thread::Asleep { watches_devices: true, .. }) {
            self.policy.on_woken(self.since_inline());
        }
        let held = self.held.check(now);
        let is_waited_on = self.waiters > 0;
        let seen = Situation {
            now,
            last_inline: self.inline_at,
            is_in_round: false,
            is_waited_on,
            relied_on_since: self.relied_on_since(),
            held,
            has_backlog: is_waited_on && self.engine.is_unfinished(),
            next_timer: if is_waited_on { self.next_timer() } else { None },
        };
        if held == Check::Send {
            self.inline_at = None;
        }
        if let Decision::Sleep(limit) = self.policy.decide(&seen) {
            self.thread = Thread::Asleep { until: now + limit, watches_devices: false };
            return;
        }
        let round = self.engine.run(now, Cause::DriverThread, None);
        self.policy.on_round(round.received);
        (self.held.is_holding, self.held.at) = (false, Instant::default());
        if round.did_work() && !round.notified {
            self.last_work = now;
        }
        let is_spinning = seen.may_spin(self.since_inline())
            && now.saturating_since(self.last_work) < self.max_spin;
        self.thread = if round.did_work() || is_spinning {
            Thread::Awake(now + ROUND)
        } else {
            let until = self.wake_at().unwrap_or(NEVER).max(now + ROUND);
            Thread::Asleep { until, watches_devices: true }
        };
    }
}
