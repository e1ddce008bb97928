//! Whether acknowledgements may wait for the application's answer.

use std::time::Duration;

use roce_transport::Instant;

/// The longest time between two polls of a program that does little else.
const MAX_FAST_POLL_GAP: Duration = Duration::from_micros(20);
/// The longest that an acknowledgement may have been held without anybody being to blame: it is
/// what interrupts and other programs take of a core now and then.
const GRACE: Duration = Duration::from_micros(200);
/// Polls in a row that make a program one that does nothing else.
const MIN_REQUIRED_POLLS: u32 = 16;
/// Where that number stops growing: some 60 ms of polling.
const MAX_REQUIRED_POLLS: u32 = 1 << 20;
/// How long the peer's next message is waited for.
const MAX_IDLE: Duration = Duration::from_micros(30);
/// How long an acknowledgement is held in all, until the answer after that: far below what a peer
/// takes for silence.
const MAX_DELAY: Duration = Duration::from_micros(120);
/// Pauses in a row that show that the peer waits: fewer are chance.
const MAX_IDLE_EXPIRIES: u32 = 3;
/// Exchanges, at least, in which nothing is held beyond our answer after a peer waited for it.
const MIN_BACKOFF: u32 = 64;
/// And at most.
const MAX_BACKOFF: u32 = 1 << 16;

/// Watches how application and peer talk, to tell when an acknowledgement can wait.
///
/// What arrives must be acknowledged, but an acknowledgement costs both ends a frame, and the
/// program that polls has most likely been waiting for just this and is about to answer. Two
/// beliefs, and what is done when one turns out wrong:
///
/// 1. *A program that polls in a tight loop will be back at once.* So the acknowledgement leaves
///    with its next poll, behind the answer if there is one. One that went away instead is
///    believed only after twice as many polls, each time: the device's thread would look after
///    the peer only milliseconds later.
/// 2. *Who was answered at once will say the next thing soon.* As long as message and answer
///    alternate, one acknowledgement serves several of them, and leaves in one batch with an
///    answer, behind it. A peer that falls silent instead was
///    waiting for it (programs may wait for the completion of what they sent before they look for
///    an answer); such a peer gets its acknowledgements straight behind the answers for a while,
///    each time for twice as many.
///
/// An 8-byte ping-pong between two namespaces took 3.4 µs half a round trip without either, 2.3
/// with the first, and 1.9 with both.
#[derive(Debug)]
pub(crate) struct DelayedAck {
    last_poll: Instant,
    /// Quick polls in a row.
    fast_polls: u32,
    /// As many of them it takes.
    required_polls: u32,
    /// What is being held, if anything.
    delayed: Option<Delayed>,
    /// How often in a row the peer fell silent.
    idle_expiries: u32,
    /// Exchanges left before the second belief is tried again.
    backoff: u32,
    /// How many there will be next time.
    next_backoff: u32,
}

#[derive(Clone, Copy, Debug)]
struct Delayed {
    since: Instant,
    /// When something last arrived.
    arrival: Instant,
    /// The application has sent something since.
    is_replied: bool,
    /// It has been long: the next answer is the last that is waited for.
    is_last: bool,
}

impl Default for DelayedAck {
    fn default() -> Self {
        Self {
            last_poll: Instant::default(),
            fast_polls: 0,
            required_polls: MIN_REQUIRED_POLLS,
            delayed: None,
            idle_expiries: 0,
            backoff: 0,
            next_backoff: MIN_BACKOFF,
        }
    }
}

impl DelayedAck {
    /// The application polls at `now`, and something to acknowledge that it may have waited for
    /// `has_arrived` or not: are acknowledgements to be held until it polls again?
    pub(crate) fn on_poll(&mut self, now: Instant, has_arrived: bool) -> bool {
        self.note_poll(now);
        let before = self.delayed.take();
        self.delayed = match before {
            None if has_arrived && self.fast_polls >= self.required_polls => {
                self.backoff = self.backoff.saturating_sub(1);
                Some(Delayed { since: now, arrival: now, is_replied: false, is_last: false })
            }
            Some(it) if it.is_replied && self.backoff == 0 => {
                if has_arrived {
                    // The peer went on without.
                    self.idle_expiries = 0;
                    self.next_backoff = self.next_backoff.saturating_sub(1).max(MIN_BACKOFF);
                    let is_last = now.saturating_since(it.since) >= MAX_DELAY;
                    Some(Delayed { arrival: now, is_replied: false, is_last, ..it })
                } else if now.saturating_since(it.arrival) < MAX_IDLE {
                    Some(it)
                } else {
                    self.note_idle_expiry();
                    None
                }
            }
            _ => None,
        };
        self.delayed.is_some()
    }

    /// The application sends something. True if what is held is to leave straight behind it.
    pub(crate) fn on_send(&mut self) -> bool {
        let Some(delayed) = &mut self.delayed else { return false };
        delayed.is_replied = true;
        let is_last = delayed.is_last;
        if is_last {
            self.delayed = None;
        }
        is_last
    }

    /// The application polled, and nothing was looked at but whether a frame is there.
    #[inline]
    pub(crate) fn on_quick_poll(&mut self) {
        self.fast_polls = self.fast_polls.saturating_add(1);
    }

    /// When what is held should have left, if the application does not call before.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.delayed.map(|delayed| delayed.since + MAX_DELAY)
    }

    /// Whoever else drives holds nothing.
    pub(crate) fn on_flush(&mut self) {
        self.delayed = None;
    }

    fn note_idle_expiry(&mut self) {
        self.idle_expiries += 1;
        if self.idle_expiries >= MAX_IDLE_EXPIRIES {
            self.idle_expiries = 0;
            self.backoff = self.next_backoff;
            self.next_backoff = (2 * self.next_backoff).min(MAX_BACKOFF);
        }
    }

    fn note_poll(&mut self, now: Instant) {
        let away = now.saturating_since(self.last_poll);
        self.last_poll = now;
        if away < MAX_FAST_POLL_GAP {
            self.fast_polls = self.fast_polls.saturating_add(1);
            if self.fast_polls / 64 >= self.required_polls {
                // It has been at it for so long that what was once no longer counts.
                self.required_polls = (self.required_polls / 2).max(MIN_REQUIRED_POLLS);
                self.fast_polls = self.required_polls;
            }
            return;
        }
        self.fast_polls = 0;
        if self.delayed.is_some() && away > GRACE {
            self.required_polls = (self.required_polls * 2).min(MAX_REQUIRED_POLLS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device on which nothing happens but what a test does.
    struct Script {
        delayed_ack: DelayedAck,
        now: Instant,
    }

    impl Script {
        fn new() -> Self {
            Self { delayed_ack: DelayedAck::default(), now: Instant::from_nanos(1_000_000) }
        }

        fn after(&mut self, micros: u64) -> &mut DelayedAck {
            self.now = self.now + Duration::from_micros(micros);
            &mut self.delayed_ack
        }

        fn poll(&mut self, has_arrived: bool) -> bool {
            let now = self.now + Duration::from_micros(1);
            self.after(1).on_poll(now, has_arrived)
        }

        /// Polls every microsecond until an arrival would be held; how many polls that takes.
        fn polls_until_trusted(&mut self) -> u32 {
            let polls = (1..2 * MAX_REQUIRED_POLLS).find(|_| {
                self.poll(false);
                self.delayed_ack.fast_polls >= self.delayed_ack.required_polls
            });
            polls.unwrap_or(u32::MAX)
        }
    }

    #[test]
    fn a_program_that_polls_now_and_then_is_never_trusted() {
        let mut script = Script::new();
        for _ in 0..1000 {
            script.after(30);
            assert!(!script.poll(true));
        }
    }

    #[test]
    fn without_an_answer_the_next_poll_releases() {
        let mut script = Script::new();
        script.polls_until_trusted();
        assert!(script.poll(true));
        assert!(!script.poll(false));
    }

    #[test]
    fn as_long_as_message_and_answer_alternate_nothing_is_released_until_it_has_been_long() {
        let mut script = Script::new();
        script.polls_until_trusted();
        assert!(script.poll(true));
        let since = script.now;
        for _ in 0..100 {
            let is_released = script.delayed_ack.on_send();
            assert_eq!(is_released, script.now.saturating_since(since) >= MAX_DELAY);
            if is_released {
                assert!(!script.poll(false));
                return;
            }
            assert!(script.poll(false) && script.poll(false) && script.poll(true));
        }
        panic!("held for ever");
    }

    #[test]
    fn what_has_been_held_for_long_is_not_held_beyond_the_next_poll_without_an_answer() {
        let mut script = Script::new();
        script.polls_until_trusted();
        assert!(script.poll(true));
        let since = script.now;
        while script.now.saturating_since(since) < MAX_DELAY {
            assert!(!script.delayed_ack.on_send());
            assert!(script.poll(true));
        }
        assert!(!script.poll(false));
    }

    #[test]
    fn a_peer_that_waits_for_the_acknowledgement_is_held_up_by_few_pauses_and_then_not_for_long() {
        let mut script = Script::new();
        let mut held_up = 0;
        for _ in 0..1000 {
            script.polls_until_trusted();
            assert!(script.poll(true));
            script.delayed_ack.on_send();
            let polls = (1..=100).find(|_| !script.poll(false)).unwrap();
            assert!(polls as u128 <= MAX_IDLE.as_micros());
            held_up += u32::from(polls > 1);
        }
        assert!((1..=6 * MAX_IDLE_EXPIRIES).contains(&held_up), "{held_up}");
    }

    #[test]
    fn who_went_away_with_an_acknowledgement_has_to_poll_twice_as_long_each_time() {
        let mut script = Script::new();
        let mut before = script.polls_until_trusted();
        for _ in 0..30 {
            assert!(script.poll(true));
            script.after(10_000);
            assert!(!script.poll(false));
            let polls = script.polls_until_trusted();
            assert!(polls >= (2 * before).min(MAX_REQUIRED_POLLS) - 2, "{before} {polls}");
            before = polls;
        }
        assert!(before >= MAX_REQUIRED_POLLS);
    }

    #[test]
    fn who_polls_for_long_without_going_away_is_trusted_again() {
        let mut script = Script::new();
        for _ in 0..3 {
            script.polls_until_trusted();
            assert!(script.poll(true));
            script.after(10_000);
            script.poll(false);
        }
        (0..1_000_000).for_each(|_| assert!(!script.poll(false)));
        assert_eq!(script.delayed_ack.required_polls, MIN_REQUIRED_POLLS);
    }
}
