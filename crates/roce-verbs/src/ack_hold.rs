//! Whether acknowledgements may wait for the application's answer.

use std::time::Duration;

use roce_transport::Instant;

/// The longest time between two polls of a program that does little else.
const QUICK: Duration = Duration::from_micros(20);
/// The longest that an acknowledgement may have been held without anybody being to blame: it is
/// what interrupts and other programs take of a core now and then.
const EXCUSED: Duration = Duration::from_micros(200);
/// Polls in a row that make a program one that does nothing else.
const LEAST_POLLS: u32 = 16;
/// Where that number stops growing: some 60 ms of polling.
const MOST_POLLS: u32 = 1 << 20;
/// How long the peer's next message is waited for.
const PAUSE: Duration = Duration::from_micros(30);
/// How long an acknowledgement is held in all, until the answer after that: far below what a peer
/// takes for silence.
const LONGEST: Duration = Duration::from_micros(120);
/// Pauses in a row that show that the peer waits: fewer are chance.
const MOST_PAUSES: u32 = 3;
/// Exchanges, at least, in which nothing is held beyond our answer after a peer waited for it.
const LEAST_PENANCE: u32 = 64;
/// And at most.
const MOST_PENANCE: u32 = 1 << 16;

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
pub(crate) struct AckHold {
    last: Instant,
    /// Quick polls in a row.
    quick: u32,
    /// As many of them it takes.
    wanted: u32,
    /// What is being held, if anything.
    holding: Option<Holding>,
    /// How often in a row the peer fell silent.
    pauses: u32,
    /// Exchanges left before the second belief is tried again.
    penance: u32,
    /// How many there will be next time.
    next_penance: u32,
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    since: Instant,
    /// When something last arrived.
    arrival: Instant,
    /// The application has sent something since.
    is_answered: bool,
    /// It has been long: the next answer is the last that is waited for.
    is_last: bool,
}

impl Default for AckHold {
    fn default() -> Self {
        Self {
            last: Instant::default(),
            quick: 0,
            wanted: LEAST_POLLS,
            holding: None,
            pauses: 0,
            penance: 0,
            next_penance: LEAST_PENANCE,
        }
    }
}

impl AckHold {
    /// The application polls at `now`, and something to acknowledge that it may have waited for
    /// `has_arrived` or not: are acknowledgements to be held until it polls again?
    pub(crate) fn on_poll(&mut self, now: Instant, has_arrived: bool) -> bool {
        self.note_poll(now);
        let before = self.holding.take();
        self.holding = match before {
            None if has_arrived && self.quick >= self.wanted => {
                self.penance = self.penance.saturating_sub(1);
                Some(Holding { since: now, arrival: now, is_answered: false, is_last: false })
            }
            Some(it) if it.is_answered && self.penance == 0 => {
                if has_arrived {
                    // The peer went on without.
                    self.pauses = 0;
                    self.next_penance = self.next_penance.saturating_sub(1).max(LEAST_PENANCE);
                    let is_last = now.saturating_since(it.since) >= LONGEST;
                    Some(Holding { arrival: now, is_answered: false, is_last, ..it })
                } else if now.saturating_since(it.arrival) < PAUSE {
                    Some(it)
                } else {
                    self.note_pause();
                    None
                }
            }
            _ => None,
        };
        self.holding.is_some()
    }

    /// The application sends something. True if what is held is to leave straight behind it.
    pub(crate) fn on_send(&mut self) -> bool {
        let Some(holding) = &mut self.holding else { return false };
        holding.is_answered = true;
        let is_last = holding.is_last;
        if is_last {
            self.holding = None;
        }
        is_last
    }

    /// The application polled, and nothing was looked at but whether a frame is there.
    #[inline]
    pub(crate) fn on_glance(&mut self) {
        self.quick = self.quick.saturating_add(1);
    }

    /// When what is held should have left, if the application does not call before.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.holding.map(|holding| holding.since + LONGEST)
    }

    /// Whoever else drives holds nothing.
    pub(crate) fn on_release(&mut self) {
        self.holding = None;
    }

    fn note_pause(&mut self) {
        self.pauses += 1;
        if self.pauses >= MOST_PAUSES {
            self.pauses = 0;
            self.penance = self.next_penance;
            self.next_penance = (2 * self.next_penance).min(MOST_PENANCE);
        }
    }

    fn note_poll(&mut self, now: Instant) {
        let away = now.saturating_since(self.last);
        self.last = now;
        if away < QUICK {
            self.quick = self.quick.saturating_add(1);
            if self.quick / 64 >= self.wanted {
                // It has been at it for so long that what was once no longer counts.
                self.wanted = (self.wanted / 2).max(LEAST_POLLS);
                self.quick = self.wanted;
            }
            return;
        }
        self.quick = 0;
        if self.holding.is_some() && away > EXCUSED {
            self.wanted = (self.wanted * 2).min(MOST_POLLS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device on which nothing happens but what a test does.
    struct Script {
        hold: AckHold,
        now: Instant,
    }

    impl Script {
        fn new() -> Self {
            Self { hold: AckHold::default(), now: Instant::from_nanos(1_000_000) }
        }

        fn after(&mut self, micros: u64) -> &mut AckHold {
            self.now = self.now + Duration::from_micros(micros);
            &mut self.hold
        }

        fn poll(&mut self, has_arrived: bool) -> bool {
            let now = self.now + Duration::from_micros(1);
            self.after(1).on_poll(now, has_arrived)
        }

        /// Polls every microsecond until an arrival would be held; how many polls that takes.
        fn polls_until_trusted(&mut self) -> u32 {
            let polls = (1..2 * MOST_POLLS).find(|_| {
                self.poll(false);
                self.hold.quick >= self.hold.wanted
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
            let is_released = script.hold.on_send();
            assert_eq!(is_released, script.now.saturating_since(since) >= LONGEST);
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
        while script.now.saturating_since(since) < LONGEST {
            assert!(!script.hold.on_send());
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
            script.hold.on_send();
            let polls = (1..=100).find(|_| !script.poll(false)).unwrap();
            assert!(polls as u128 <= PAUSE.as_micros());
            held_up += u32::from(polls > 1);
        }
        assert!((1..=6 * MOST_PAUSES).contains(&held_up), "{held_up}");
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
            assert!(polls >= (2 * before).min(MOST_POLLS) - 2, "{before} {polls}");
            before = polls;
        }
        assert!(before >= MOST_POLLS);
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
        assert_eq!(script.hold.wanted, LEAST_POLLS);
    }
}
