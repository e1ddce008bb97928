//! Delays ACKs of an application that busy-polls.

use std::time::Duration;

use roce_transport::Instant;

/// Longest time between two polls of a program that does little else.
const MAX_FAST_POLL_GAP: Duration = Duration::from_micros(20);
/// Longest absence of a polling program that is not counted against it: interrupts and other
/// programs take a processor for that long now and then.
const GRACE: Duration = Duration::from_micros(200);
/// Consecutive fast polls, at first, of a program that does nothing else.
const MIN_REQUIRED_POLLS: u32 = 16;
/// Most such polls: some 60 ms of polling.
const MAX_REQUIRED_POLLS: u32 = 1 << 20;
/// Longest wait for the peer's next message.
const MAX_IDLE: Duration = Duration::from_micros(30);
/// Time after which the next reply releases an ACK: far below the probe timeout of a peer.
const MAX_DELAY: Duration = Duration::from_micros(120);
/// Consecutive expiries of [`MAX_IDLE`] that show that the peer waits for the ACK.
const MAX_IDLE_EXPIRIES: u32 = 3;
/// Fewest exchanges in which no ACK is delayed beyond the reply, after a peer has waited for it.
const MIN_BACKOFF: u32 = 64;
/// Most such exchanges.
const MAX_BACKOFF: u32 = 1 << 16;

/// Decides when an ACK can wait.
///
/// An ACK costs both ends a frame, and a program that polls has most likely waited for the message
/// and is about to reply. The policy makes two guesses, and backs off exponentially when one is
/// wrong:
///
/// 1. *A program that polls in a tight loop polls again at once.* So the ACK leaves with its next
///    poll, behind the reply if there is one. If the program goes away instead, the driver thread
///    sends the ACK only milliseconds later, so the policy then requires twice as many fast polls.
/// 2. *A peer that got a reply at once sends its next message soon.* As long as message and reply
///    alternate, one ACK serves several messages, and leaves in one batch with a reply, behind it.
///    A peer that sends nothing may be waiting for the ACK (programs may wait for the completion of
///    a request before they poll for a reply). It gets its ACKs straight behind the replies for a
///    number of exchanges, which doubles each time.
///
/// An 8-byte ping-pong between two namespaces took 3.4 µs half a round trip without either, 2.3
/// with the first, and 1.9 with both.
#[derive(Debug)]
pub(crate) struct DelayedAck {
    last_poll: Instant,
    /// Consecutive fast polls.
    fast_polls: u32,
    /// Fast polls after which an ACK is delayed.
    required_polls: u32,
    /// The delayed ACK, if there is one.
    delayed: Option<Delayed>,
    /// Consecutive exchanges in which the peer sent nothing for [`MAX_IDLE`].
    idle_expiries: u32,
    /// Exchanges left before the second guess is made again.
    backoff: u32,
    /// Value of `backoff` after the next wrong guess.
    next_backoff: u32,
}

#[derive(Clone, Copy, Debug)]
struct Delayed {
    since: Instant,
    /// Time of the last arrival.
    arrival: Instant,
    /// The application has sent a message since.
    is_replied: bool,
    /// [`MAX_DELAY`] is over: the next reply releases the ACK.
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
    /// Notes a poll at `now`, and whether a message has arrived that it may have waited for. Returns
    /// true if ACKs are to be delayed until the next poll.
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
                    // The peer did not wait for the ACK.
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

    /// Notes that the application sends. Returns true if delayed ACKs leave straight behind that.
    pub(crate) fn on_send(&mut self) -> bool {
        let Some(delayed) = &mut self.delayed else { return false };
        delayed.is_replied = true;
        let is_last = delayed.is_last;
        if is_last {
            self.delayed = None;
        }
        is_last
    }

    /// Notes a quick poll that found nothing.
    #[inline]
    pub(crate) fn on_quick_poll(&mut self) {
        self.fast_polls = self.fast_polls.saturating_add(1);
    }

    /// Returns when a delayed ACK is due if the application does not call before.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.delayed.map(|delayed| delayed.since + MAX_DELAY)
    }

    /// Notes that ACKs are not delayed any longer.
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
                // So many fast polls make up for an earlier absence.
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

    /// A policy in virtual time.
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

        /// Polls every microsecond until an ACK would be delayed; returns the number of polls.
        fn polls_until_trusted(&mut self) -> u32 {
            let polls = (1..2 * MAX_REQUIRED_POLLS).find(|_| {
                self.poll(false);
                self.delayed_ack.fast_polls >= self.delayed_ack.required_polls
            });
            polls.unwrap_or(u32::MAX)
        }
    }

    #[test]
    fn no_ack_is_delayed_for_a_program_that_polls_now_and_then() {
        let mut script = Script::new();
        for _ in 0..1000 {
            script.after(30);
            assert!(!script.poll(true));
        }
    }

    #[test]
    fn without_a_reply_the_next_poll_releases_the_ack() {
        let mut script = Script::new();
        script.polls_until_trusted();
        assert!(script.poll(true));
        assert!(!script.poll(false));
    }

    #[test]
    fn while_message_and_reply_alternate_an_ack_is_delayed_for_its_longest_time() {
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
    fn an_ack_that_has_waited_its_longest_time_leaves_at_the_next_poll_without_a_reply() {
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
    fn a_peer_that_waits_for_acks_is_delayed_few_times() {
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
    fn a_program_that_goes_away_with_a_delayed_ack_has_to_poll_twice_as_long_each_time() {
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
    fn a_program_that_polls_for_long_without_going_away_has_its_acks_delayed_again() {
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
