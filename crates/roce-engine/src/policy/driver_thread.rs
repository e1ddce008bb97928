//! Decides whether the driver thread runs rounds or leaves that to the application; without I/O.

use std::time::Duration;

use roce_transport::Instant;

use super::doorbell::Check;

/// Time after an inline round for which the driver thread expects another one.
pub const INLINE_RECENT: Duration = Duration::from_micros(300);
/// Time after an inline round for which a thread that runs a round now is taken for an application that polls, and
/// posts long messages. The driver thread would wait for the end of that round, and take turns with it.
const MAX_ROUND: Duration = Duration::from_millis(5);
/// Shortest time for which the driver thread leaves the engine to an application that polls.
pub const MIN_RECHECK: Duration = Duration::from_millis(1);
/// Longest such time: it doubles as long as the application polls on. A check costs some 10 µs of
/// the processor that the application polls on: with a check every millisecond, one small message
/// in a hundred waited that long.
pub const MAX_RECHECK: Duration = Duration::from_millis(4);
/// Longest time for which the driver thread leaves the engine to a caller in `wait`, which sleeps
/// on the same descriptors and wakes the thread at the end.
const MAX_RECHECK_IN_WAIT: Duration = Duration::from_millis(100);

/// Fewest wakes by frames for an application that polls, after which the driver thread leaves the
/// engine to the application again.
const MIN_WATCHES: u32 = 4;
/// Most such wakes: they double each time that frames have waited again. With more of them, the thread
/// takes the processor too often from a program that polls again.
const MAX_WATCHES: u32 = 16;
/// Time after an inline round for which the application is taken to poll at this moment.
const INLINE_NOW: Duration = Duration::from_micros(20);
/// Consecutive sleeps without the devices in which no frame has waited that make up for one in which
/// some have.
const MAX_CALM_SLEEPS: u32 = 64;

/// The input of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// The present time.
    pub now: Instant,
    /// The last inline round, if there was any.
    pub last_inline: Option<Instant>,
    /// Another thread runs a round at this moment.
    pub is_in_round: bool,
    /// A caller is in `wait`.
    pub is_waited_on: bool,
    /// A caller may sleep on a channel's descriptor, since the last of those queues was armed or
    /// reported.
    pub relied_on_since: Option<Instant>,
    /// What the driver thread does about held posts.
    pub held: Check,
    /// Packets wait to be sent, which no descriptor shows. Set only where a caller is in `wait`.
    pub has_backlog: bool,
    /// The next timer, or the time at which a delayed ACK is due. As above.
    pub next_timer: Option<Instant>,
}

impl Situation {
    /// Returns true if the thread may spin for work, `since_inline` after the last inline round.
    ///
    /// Beside an application that polls, a spin only takes its processor. One that has armed a queue
    /// at this moment does not poll on but sleeps, and the spin serves it.
    pub fn may_spin(&self, since_inline: Duration) -> bool {
        since_inline >= INLINE_NOW || self.is_newly_relied_on()
    }

    fn is_newly_relied_on(&self) -> bool {
        self.relied_on_since.is_some_and(|since| self.now.saturating_since(since) < INLINE_RECENT)
    }
}

/// What the driver thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It runs rounds, and sleeps on the devices' descriptors when there is no work.
    Drive,
    /// The application runs rounds: the thread sleeps for this time, and frames do not wake it.
    Sleep(Duration),
}

/// The state of the driver thread from one decision to the next.
#[derive(Debug)]
pub struct DriverThreadPolicy {
    /// Next sleep if the application polls.
    recheck: Duration,
    last_sleep: LastSleep,
    /// Frames have waited, as an application that had polled has stopped: it may wait for them by
    /// reading its memory, and poll in between for its own requests. The thread watches the devices
    /// although the application polls, until it was woken so many times while the application
    /// polled.
    watches: u32,
    /// Value of `watches` after the next time that frames have waited.
    next_watches: u32,
    /// Consecutive sleeps without the devices.
    calm_sleeps: u32,
}

/// How the driver thread has slept before a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastSleep {
    /// Not at all, or the round is not the first since.
    None,
    /// Without the devices.
    Away,
    /// On the devices.
    OnDevices {
        /// The application polled when it ended.
        is_polled: bool,
    },
}

impl Default for DriverThreadPolicy {
    fn default() -> Self {
        Self {
            recheck: MIN_RECHECK,
            last_sleep: LastSleep::None,
            watches: 0,
            next_watches: MIN_WATCHES,
            calm_sleeps: 0,
        }
    }
}

impl DriverThreadPolicy {
    /// Decides what the thread does next.
    pub fn decide(&mut self, seen: &Situation) -> Decision {
        let this_time = std::mem::replace(&mut self.recheck, MIN_RECHECK);
        if seen.relied_on_since.is_some() {
            return self.decide_relied_on(seen);
        }
        match seen.held {
            Check::Nothing => {}
            Check::Send => return Decision::Drive,
            Check::Again(interval) => return Decision::Sleep(interval),
        }
        if seen.is_waited_on {
            // The caller may have begun to sleep before another thread set a timer or left a backlog.
            let left = seen.next_timer.map(|at| (at + MIN_RECHECK).saturating_since(seen.now));
            return match left {
                _ if seen.has_backlog => Decision::Drive,
                Some(Duration::ZERO) => Decision::Drive,
                left => Decision::Sleep(left.unwrap_or(Duration::MAX).min(MAX_RECHECK_IN_WAIT)),
            };
        }
        if self.watches > 0 {
            return Decision::Drive;
        }
        let recent = if seen.is_in_round { MAX_ROUND } else { INLINE_RECENT };
        let since_inline = seen.last_inline.map(|last| seen.now.saturating_since(last));
        let Some(since_inline) = since_inline.filter(|since| *since < recent) else {
            return Decision::Drive;
        };
        self.recheck = (2 * this_time).min(MAX_RECHECK);
        self.last_sleep = LastSleep::Away;
        self.calm_sleeps += 1;
        if self.calm_sleeps >= MAX_CALM_SLEEPS {
            self.calm_sleeps = 0;
            self.next_watches = (self.next_watches / 2).max(MIN_WATCHES);
        }
        // A long round that is the last thing the application does must not make the engine wait longer.
        Decision::Sleep(this_time.min(MAX_ROUND.saturating_sub(since_inline)))
    }

    /// Decides beside a queue on whose channel a caller may sleep.
    ///
    /// Another thread may poll another queue of the device all the time: its rounds notify the channel
    /// too, and this thread would only take its processor. UCX does so: its datagram interface waits by
    /// events, and its connections are polled.
    fn decide_relied_on(&mut self, seen: &Situation) -> Decision {
        let is_polled = |last| seen.now.saturating_since(last) < INLINE_RECENT;
        if seen.is_newly_relied_on()
            || self.watches > 0
            || seen.held != Check::Nothing
            || !seen.last_inline.is_some_and(is_polled)
        {
            return Decision::Drive;
        }
        self.last_sleep = LastSleep::Away;
        Decision::Sleep(MIN_RECHECK)
    }

    /// Notes that a sleep on the devices is over, `since_inline` after the last inline round.
    pub fn on_woken(&mut self, since_inline: Duration) {
        let is_polled = since_inline < INLINE_NOW;
        self.last_sleep = LastSleep::OnDevices { is_polled };
    }

    /// Notes a round that has received so many frames.
    pub fn on_round(&mut self, received: usize) {
        match (std::mem::replace(&mut self.last_sleep, LastSleep::None), received) {
            (LastSleep::Away, 1..) => {
                self.watches = self.next_watches;
                self.next_watches = (2 * self.next_watches).min(MAX_WATCHES);
                self.calm_sleeps = 0;
            }
            // The application would have received them at once, if this thread had not run instead
            // of it.
            (LastSleep::OnDevices { is_polled }, _) if is_polled || received == 0 => {
                self.watches = self.watches.saturating_sub(1);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    /// A driver thread in virtual time, beside an application that does what a script says.
    struct Script {
        thread: DriverThreadPolicy,
        seen: Situation,
    }

    impl Script {
        fn new() -> Self {
            let seen = Situation {
                now: at(0),
                last_inline: None,
                is_in_round: false,
                is_waited_on: false,
                relied_on_since: None,
                held: Check::Nothing,
                has_backlog: false,
                next_timer: None,
            };
            Self { thread: DriverThreadPolicy::default(), seen }
        }

        /// The decision at `now`, of an application whose last poll was at `polled`.
        fn decide(&mut self, now: Instant, polled: Instant) -> Decision {
            self.seen.now = now;
            self.seen.last_inline = Some(polled);
            self.thread.decide(&self.seen)
        }

        /// When the driver thread first drives, if the application polls from `at(1)` until
        /// `last_poll` and calls nothing afterwards.
        fn first_drive(&mut self, last_poll: Instant) -> Instant {
            let mut now = at(1);
            loop {
                match self.decide(now, now.min(last_poll)) {
                    Decision::Drive => return now,
                    Decision::Sleep(limit) => now += limit,
                }
            }
        }
    }

    #[test]
    fn the_engine_is_driven_within_5_ms_of_the_last_poll_whenever_that_was() {
        let bound = Duration::from_micros(4_400);
        let mut worst = Duration::ZERO;
        for last_poll in 1..30_000 {
            let drive = Script::new().first_drive(at(last_poll));
            assert!(drive >= at(last_poll), "it drives although the application polls");
            worst = worst.max(drive.saturating_since(at(last_poll)));
        }
        assert!(worst <= bound, "{worst:?}");
        assert!(worst > MAX_RECHECK, "the script never reaches the longest sleep: {worst:?}");
    }

    #[test]
    fn the_engine_is_driven_within_5_ms_of_the_last_poll_also_beside_a_round_that_goes_on() {
        let mut worst = Duration::ZERO;
        for last_poll in 1..30_000 {
            let mut script = Script::new();
            script.seen.is_in_round = true;
            let drive = script.first_drive(at(last_poll));
            assert!(drive >= at(last_poll), "it drives although the application polls");
            worst = worst.max(drive.saturating_since(at(last_poll)));
        }
        assert!(worst <= MAX_ROUND, "{worst:?}");
    }

    #[test]
    fn the_engine_is_left_to_a_long_round_of_an_application_that_has_polled_shortly_before() {
        let mut script = Script::new();
        assert_eq!(script.decide(at(1000), at(600)), Decision::Drive, "no poll, and no round");
        script.seen.is_in_round = true;
        assert!(matches!(script.decide(at(1000), at(600)), Decision::Sleep(_)));
        assert!(matches!(script.decide(at(3000), at(600)), Decision::Sleep(_)));
        assert_eq!(script.decide(at(9000), at(600)), Decision::Drive, "it posts and never polls");
        script.seen.last_inline = None;
        assert_eq!(script.thread.decide(&script.seen), Decision::Drive, "it has never polled");
        script.seen.relied_on_since = Some(at(50));
        assert_eq!(script.decide(at(1000), at(600)), Decision::Drive, "a caller sleeps");
    }

    #[test]
    fn a_thread_on_which_a_caller_relies_drives_however_the_application_polls_or_waits() {
        for is_waited_on in [false, true] {
            let mut script = Script::new();
            script.seen.is_waited_on = is_waited_on;
            script.seen.relied_on_since = Some(at(50));
            assert_eq!(script.decide(at(100), at(99)), Decision::Drive);
            assert_eq!(script.decide(at(1000), at(700)), Decision::Drive, "polled, but not now");
            script.seen.relied_on_since = None;
            assert!(matches!(script.decide(at(1001), at(999)), Decision::Sleep(_)));
        }
    }

    #[test]
    fn beside_a_queue_armed_long_ago_the_thread_leaves_the_engine_to_polls_that_go_on() {
        let mut script = Script::new();
        script.seen.relied_on_since = Some(at(50));
        assert_eq!(script.decide(at(349), at(348)), Decision::Drive, "armed at this moment");
        for now in [350, 1350, 2350, 90_350] {
            assert_eq!(script.decide(at(now), at(now - 1)), Decision::Sleep(MIN_RECHECK));
            script.thread.on_round(0);
        }
        // The polls end, and a frame waits until the sleep ends: the thread watches for a while.
        assert_eq!(script.decide(at(91_350), at(90_351)), Decision::Drive);
        script.seen.relied_on_since = Some(at(80_000));
        assert!(matches!(script.decide(at(92_000), at(91_999)), Decision::Sleep(_)));
        script.thread.on_round(1);
        assert_eq!(script.decide(at(93_000), at(92_999)), Decision::Drive);
    }

    #[test]
    fn the_thread_spins_for_a_program_that_sleeps_behind_its_last_poll_and_not_for_one_that_polls()
    {
        let mut seen = Script::new().seen;
        let [just_now, long_ago] = [2, 100].map(Duration::from_micros);
        seen.now = at(1000);
        assert!(!seen.may_spin(just_now) && seen.may_spin(long_ago), "no queue is armed");
        seen.relied_on_since = Some(at(500));
        assert!(!seen.may_spin(just_now), "a queue was armed long ago, and another is polled");
        seen.relied_on_since = Some(at(998));
        assert!(seen.may_spin(just_now), "armed behind the last poll");
    }

    #[test]
    fn a_thread_that_checks_held_posts_soon_does_not_sleep_longer_because_of_polls_or_waits() {
        for is_waited_on in [false, true] {
            let mut script = Script::new();
            script.seen.is_waited_on = is_waited_on;
            let soon = Duration::from_micros(100);
            script.seen.held = Check::Again(soon);
            assert_eq!(script.decide(at(100), at(99)), Decision::Sleep(soon));
            script.seen.held = Check::Send;
            assert_eq!(script.decide(at(200), at(199)), Decision::Drive);
            script.seen.held = Check::Nothing;
            assert!(matches!(script.decide(at(300), at(299)), Decision::Sleep(_)));
        }
    }

    #[test]
    fn beside_a_caller_in_wait_the_thread_serves_late_timers_and_backlogs() {
        let mut script = Script::new();
        script.seen.is_waited_on = true;
        assert_eq!(script.decide(at(0), at(0)), Decision::Sleep(MAX_RECHECK_IN_WAIT));
        script.seen.next_timer = Some(at(10_000));
        let until_late = Duration::from_millis(10) + MIN_RECHECK;
        assert_eq!(script.decide(at(0), at(0)), Decision::Sleep(until_late));
        assert_eq!(script.decide(at(11_000), at(0)), Decision::Drive);
        script.seen.next_timer = None;
        script.seen.has_backlog = true;
        assert_eq!(script.decide(at(0), at(0)), Decision::Drive);
    }

    #[test]
    fn the_sleep_doubles_while_the_application_polls_and_starts_short_afterwards() {
        let mut script = Script::new();
        let mut away = |now, polled| script.decide(at(now), at(polled));
        for millis in [1, 2, 4, 4] {
            assert_eq!(away(1000, 999), Decision::Sleep(Duration::from_millis(millis)));
        }
        assert_eq!(away(2000, 999), Decision::Drive);
        assert_eq!(away(3000, 2999), Decision::Sleep(MIN_RECHECK));
    }

    /// Lets frames wait once, and returns how often the thread is woken until it leaves the engine to
    /// an application that polls.
    fn wakes_until_it_leaves(thread: &mut DriverThreadPolicy, received: usize) -> u32 {
        let mut script = Script::new();
        std::mem::swap(&mut script.thread, thread);
        assert!(matches!(script.decide(at(100), at(99)), Decision::Sleep(_)));
        // The application has stopped polling, and a frame was there.
        assert_eq!(script.decide(at(1100), at(99)), Decision::Drive);
        script.thread.on_round(1);
        let mut now = 1200;
        let wakes = (0..).take_while(|_| {
            now += 1;
            let decision = script.decide(at(now), at(now - 1));
            script.thread.on_woken(Duration::from_micros(1));
            script.thread.on_round(received);
            decision == Decision::Drive
        });
        let wakes = wakes.count() as u32;
        *thread = script.thread;
        wakes
    }

    #[test]
    fn where_frames_have_waited_the_thread_watches_the_devices_for_a_number_of_wakes() {
        for received in [0, 1] {
            let mut thread = DriverThreadPolicy::default();
            let wakes: Vec<u32> =
                (0..3).map(|_| wakes_until_it_leaves(&mut thread, received)).collect();
            assert_eq!(wakes, [MIN_WATCHES, 2 * MIN_WATCHES, 4 * MIN_WATCHES]);
        }
    }

    #[test]
    fn the_thread_goes_on_watching_for_an_application_that_does_not_poll_when_frames_come() {
        let mut script = Script::new();
        assert!(matches!(script.decide(at(100), at(99)), Decision::Sleep(_)));
        assert_eq!(script.decide(at(1100), at(99)), Decision::Drive);
        script.thread.on_round(1);
        for now in (2000..1_000_000).step_by(100) {
            assert_eq!(script.decide(at(now), at(now - 50)), Decision::Drive);
            script.thread.on_woken(Duration::from_micros(50));
            script.thread.on_round(1);
        }
    }

    #[test]
    fn a_thread_beside_an_application_that_polls_on_forgets_that_frames_have_waited() {
        let mut thread = DriverThreadPolicy::default();
        (0..4).for_each(|_| _ = wakes_until_it_leaves(&mut thread, 0));
        let mut script = Script::new();
        script.thread = thread;
        for now in (10_000..3_000_000).step_by(4000) {
            assert!(matches!(script.decide(at(now), at(now - 1)), Decision::Sleep(_)));
        }
        script.thread.on_round(0);
        assert_eq!(wakes_until_it_leaves(&mut script.thread, 0), MIN_WATCHES);
    }
}
