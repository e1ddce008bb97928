//! Decides whether the driver thread runs rounds or leaves that to the application; without I/O.

use std::time::Duration;

use roce_transport::Instant;

use crate::doorbell::Check;

/// Time after an inline round for which the driver thread expects another one.
pub(crate) const INLINE_RECENT: Duration = Duration::from_micros(300);
/// Shortest time for which the driver thread leaves the engine to an application that polls.
pub(super) const MIN_RECHECK: Duration = Duration::from_millis(1);
/// Longest such time: it doubles as long as the application polls on. A check costs some 10 µs of
/// the processor that the application polls on: with a check every millisecond, one small message
/// in a hundred waited that long.
pub(super) const MAX_RECHECK: Duration = Duration::from_millis(4);
/// Longest time for which the driver thread leaves the engine to a caller in `wait`, which sleeps
/// on the same descriptors and wakes the thread at the end.
const MAX_RECHECK_IN_WAIT: Duration = Duration::from_millis(100);

/// Consecutive times that the driver thread is woken by frames that the application has received
/// itself, after which it leaves the engine to the application again.
const MAX_USELESS_WAKES: u32 = 16;

/// The input of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    pub(super) now: Instant,
    /// The last inline round, if there was any.
    pub(super) last_inline: Option<Instant>,
    /// A caller is in `wait`.
    pub(super) is_waited_on: bool,
    /// A caller may sleep on a channel's descriptor: see
    /// [`Inner::relies_on_thread`](crate::completion_queue::Inner::relies_on_thread).
    pub(super) is_relied_on: bool,
    /// What the driver thread does about held posts.
    pub(super) held: Check,
    /// Packets wait to be sent, which no descriptor shows. Set only where a caller is in `wait`.
    pub(super) has_backlog: bool,
    /// The next timer, or the time at which a delayed ACK is due. As above.
    pub(super) next_timer: Option<Instant>,
}

/// What the driver thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It runs rounds, and sleeps on the devices' descriptors when there is no work.
    Drive,
    /// The application runs rounds: the thread sleeps for this time, and frames do not wake it.
    Sleep(Duration),
}

/// The state of the driver thread from one decision to the next.
#[derive(Debug)]
pub(super) struct DriverThreadPolicy {
    /// Next sleep if the application polls.
    recheck: Duration,
    last_sleep: LastSleep,
    /// Frames have waited, as an application that had polled has stopped: it may wait for them by
    /// reading its memory, and poll in between for its own requests. The thread watches the devices
    /// although the application polls, until this many wakes were useless.
    watches: u32,
}

/// How the driver thread has slept before a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastSleep {
    /// Not at all, or the round is not the first since.
    None,
    /// Without the devices.
    Away,
    /// On the devices.
    OnDevices,
}

impl Default for DriverThreadPolicy {
    fn default() -> Self {
        Self { recheck: MIN_RECHECK, last_sleep: LastSleep::None, watches: 0 }
    }
}

impl DriverThreadPolicy {
    pub(super) fn decide(&mut self, seen: &Situation) -> Decision {
        let this_time = std::mem::replace(&mut self.recheck, MIN_RECHECK);
        if seen.is_relied_on {
            return Decision::Drive;
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
        let is_polled = |last| seen.now.saturating_since(last) < INLINE_RECENT;
        if !seen.last_inline.is_some_and(is_polled) {
            return Decision::Drive;
        }
        self.recheck = (2 * this_time).min(MAX_RECHECK);
        self.last_sleep = LastSleep::Away;
        Decision::Sleep(this_time)
    }

    /// Notes that a sleep on the devices is over.
    pub(super) fn on_woken(&mut self) {
        self.last_sleep = LastSleep::OnDevices;
    }

    /// Notes a round that has received so many frames.
    pub(super) fn on_round(&mut self, received: usize) {
        match (std::mem::replace(&mut self.last_sleep, LastSleep::None), received) {
            (LastSleep::Away, 1..) => self.watches = MAX_USELESS_WAKES,
            (LastSleep::OnDevices, 1..) if self.watches > 0 => self.watches = MAX_USELESS_WAKES,
            (LastSleep::OnDevices, 0) => self.watches = self.watches.saturating_sub(1),
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
                is_waited_on: false,
                is_relied_on: false,
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
                    Decision::Sleep(limit) => now = now + limit,
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
    fn a_thread_on_which_a_caller_relies_drives_however_the_application_polls_or_waits() {
        for is_waited_on in [false, true] {
            let mut script = Script::new();
            script.seen.is_waited_on = is_waited_on;
            script.seen.is_relied_on = true;
            assert_eq!(script.decide(at(100), at(99)), Decision::Drive);
            script.seen.is_relied_on = false;
            assert!(matches!(script.decide(at(101), at(99)), Decision::Sleep(_)));
        }
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

    #[test]
    fn where_frames_have_waited_the_thread_watches_the_devices_until_it_is_woken_for_nothing() {
        let mut script = Script::new();
        assert!(matches!(script.decide(at(100), at(99)), Decision::Sleep(_)));
        // The application has stopped polling, and a frame was there.
        assert_eq!(script.decide(at(1100), at(99)), Decision::Drive);
        script.thread.on_round(1);
        for woken in 0..MAX_USELESS_WAKES {
            let now = 1200 + u64::from(woken);
            assert_eq!(script.decide(at(now), at(now - 1)), Decision::Drive, "{woken}");
            script.thread.on_woken();
            script.thread.on_round(0);
        }
        assert!(matches!(script.decide(at(2000), at(1999)), Decision::Sleep(_)));
        // No frame has waited.
        assert_eq!(script.decide(at(5000), at(1999)), Decision::Drive);
        script.thread.on_round(0);
        assert!(matches!(script.decide(at(6000), at(5999)), Decision::Sleep(_)));
    }
}
