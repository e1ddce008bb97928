//! When a thread that waits for messages of its peers polls, and when it yields to them.

use std::time::Duration;

use roce_transport::Instant;

/// Longest yield in which no other thread has run; it takes some 0.3 µs.
const MAX_IDLE_YIELD: Duration = Duration::from_nanos(800);
/// Longest polling between two yields: about what a peer takes to receive and to send a message.
const MAX_POLLING: Duration = Duration::from_micros(6);
/// Consecutive empty first polls after which waits begin with a yield.
const MAX_EMPTY_FIRST_POLLS: u32 = 8;
/// Waits that begin with a yield between two that begin with a poll all the same.
const WAITS_PER_FIRST_POLL: u32 = 64;
/// Waits that begin with a yield for each one whose yield is timed.
const WAITS_PER_TIMED_YIELD: u32 = 8;
/// Time that a thread polls before it sleeps while its polls block: they use little of the
/// processor, and a completion channel costs more system calls.
const MIN_BLOCKING_SPIN: Duration = Duration::from_millis(20);

/// Decides when a thread yields that exchanges messages with peers on its own processor.
///
/// With more ranks than processors, some of them share one, and within an operation it has to be
/// handed from one to the other. The policy learns three things from one wait for the next:
///
/// - whether another thread wants the processor: a yield tells by how long it takes. Where none
///   does, the thread polls on, since a message that comes during a yield waits;
/// - whether the first poll is useless: a thread that has just sent a message has no response yet,
///   and the poll delays the peer whose turn it is;
/// - whether messages come soon after the peers had their turn. Then the thread polls for a while:
///   two threads that yield to each other with nothing to do take 1 µs a turn, in which a message
///   waits. Where messages take longer, since others have to run first, it yields at once.
///
/// All this is for peers that hand the processor on after a message. Where other threads use up
/// whole time slices, polls of a completion queue yield and block
/// themselves, and this policy does not yield besides.
///
/// An allreduce of one float over three ranks on two cores took 3 to 6 % longer with a yield after
/// every poll.
#[derive(Debug)]
pub struct YieldTiming {
    /// Another thread ran during the last timed yield.
    is_processor_wanted: bool,
    /// The last message came soon after the first empty poll behind a yield.
    comes_soon: bool,
    /// Consecutive waits whose first poll was empty.
    empty_first_polls: u32,
    /// Waits since the last that began with a poll.
    waits_begun_by_yield: u32,
    /// The present wait has yielded.
    has_yielded: bool,
    /// The first empty poll of the present wait that was not followed by a yield at once.
    empty_since: Option<Instant>,
    /// The first empty poll since the last yield.
    polling_since: Option<Instant>,
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It polls.
    Poll,
    /// It yields the processor.
    Yield,
}

impl Default for YieldTiming {
    fn default() -> Self {
        Self {
            is_processor_wanted: true,
            comes_soon: true,
            empty_first_polls: 0,
            waits_begun_by_yield: 0,
            has_yielded: false,
            empty_since: None,
            polling_since: None,
        }
    }
}

impl YieldTiming {
    /// Returns how long a thread polls before it sleeps, at most `max` unless its polls give way.
    pub fn spin(polls_give_way: bool, max: Duration) -> Duration {
        if polls_give_way { max.max(MIN_BLOCKING_SPIN) } else { max }
    }

    /// Returns what a wait begins with.
    pub fn first(&mut self) -> Next {
        (self.has_yielded, self.empty_since, self.polling_since) = (false, None, None);
        let is_first_poll_useful = self.empty_first_polls < MAX_EMPTY_FIRST_POLLS;
        if !self.is_processor_wanted
            || is_first_poll_useful
            || self.waits_begun_by_yield >= WAITS_PER_FIRST_POLL
        {
            self.waits_begun_by_yield = 0;
            return Next::Poll;
        }
        self.waits_begun_by_yield += 1;
        Next::Yield
    }

    /// Returns true if the yield that begins this wait is to be timed. One in some is enough:
    /// reading a clock twice takes as long as a poll.
    pub fn is_time_due(&self) -> bool {
        self.waits_begun_by_yield.is_multiple_of(WAITS_PER_TIMED_YIELD)
    }

    /// Returns what follows an empty poll at `now`.
    pub fn after_empty(&mut self, now: Instant) -> Next {
        if !self.has_yielded {
            if self.empty_since.is_none() {
                self.empty_first_polls = self.empty_first_polls.saturating_add(1);
            }
            if self.is_processor_wanted {
                return Next::Yield;
            }
        }
        self.empty_since.get_or_insert(now);
        let since = *self.polling_since.get_or_insert(now);
        let max = if self.comes_soon { MAX_POLLING } else { Duration::ZERO };
        if now.saturating_since(since) < max { Next::Poll } else { Next::Yield }
    }

    /// Notes a yield and how long it took, if it was timed.
    pub fn on_yielded(&mut self, took: Option<Duration>) {
        if let Some(took) = took {
            self.is_processor_wanted = took > MAX_IDLE_YIELD;
            self.comes_soon |= !self.is_processor_wanted;
        }
        (self.has_yielded, self.polling_since) = (true, None);
    }

    /// Notes that the wait is over: a poll was not empty. The clock is read only after an empty poll.
    pub fn end_wait(&mut self, clock: impl FnOnce() -> Instant) {
        if !self.has_yielded && self.empty_since.is_none() {
            self.empty_first_polls = 0;
        }
        if let Some(since) = self.empty_since {
            self.comes_soon = clock().saturating_since(since) < MAX_POLLING;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Duration = Duration::from_micros(5);
    const IDLE: Duration = Duration::from_nanos(300);
    const POLL: Duration = Duration::from_nanos(100);

    /// One rank, on a processor on which a yield takes so long, and what it did in its last wait.
    struct Script {
        policy: YieldTiming,
        now: Instant,
        yield_takes: Duration,
        polls: u32,
        yields: u32,
        polled_first: bool,
    }

    impl Script {
        fn new(yield_takes: Duration) -> Self {
            let (policy, now) = (YieldTiming::default(), Instant::default());
            Self { policy, now, yield_takes, polls: 0, yields: 0, polled_first: true }
        }

        fn yield_processor(&mut self) {
            self.now += self.yield_takes;
            self.yields += 1;
            self.policy.on_yielded(Some(self.yield_takes));
        }

        /// Waits for a message that comes after `delay`.
        fn wait(&mut self, delay: Duration) {
            let at = self.now + delay;
            (self.polls, self.yields) = (0, 0);
            self.polled_first = self.policy.first() == Next::Poll;
            if !self.polled_first && self.policy.is_time_due() {
                self.yield_processor();
            } else if !self.polled_first {
                (self.now, self.yields) = (self.now + self.yield_takes, 1);
                self.policy.on_yielded(None);
            }
            loop {
                self.polls += 1;
                self.now += POLL;
                if self.now >= at {
                    let now = self.now;
                    return self.policy.end_wait(|| now);
                }
                if self.policy.after_empty(self.now) == Next::Yield {
                    self.yield_processor();
                }
            }
        }

        fn waits(&mut self, times: u32, delay: Duration) {
            (0..times).for_each(|_| self.wait(delay));
        }
    }

    #[test]
    fn a_processor_that_no_other_thread_wants_is_hardly_ever_yielded() {
        let mut rank = Script::new(IDLE);
        rank.waits(3, 4 * MAX_POLLING);
        assert!(rank.polled_first);
        assert!(rank.yields <= 4, "{}", rank.yields);
        assert!(rank.polls > 200, "{}", rank.polls);
    }

    #[test]
    fn a_processor_that_is_wanted_is_yielded_before_the_first_poll_once_first_polls_are_useless() {
        let mut rank = Script::new(BUSY);
        rank.waits(MAX_EMPTY_FIRST_POLLS, BUSY + 5 * POLL);
        assert!(rank.polled_first);
        rank.wait(BUSY + 5 * POLL);
        assert!(!rank.polled_first);
        assert_eq!(rank.yields, 1, "a message that comes soon after is polled for");
    }

    #[test]
    fn a_message_that_is_there_already_is_found_without_a_yield() {
        let mut rank = Script::new(BUSY);
        rank.waits(100, BUSY);
        let mut polled = 0;
        for _ in 0..4 * WAITS_PER_FIRST_POLL {
            rank.wait(Duration::ZERO);
            polled += u32::from(rank.polled_first);
        }
        assert!(polled > 2 * WAITS_PER_FIRST_POLL, "{polled}");
        assert_eq!((rank.polls, rank.yields), (1, 0));
    }

    #[test]
    fn where_other_threads_have_to_run_first_a_thread_polls_once_a_yield() {
        let mut rank = Script::new(BUSY);
        rank.waits(3, 10 * BUSY);
        assert!(rank.polls <= rank.yields + 1, "{} {}", rank.polls, rank.yields);
    }

    #[test]
    fn a_processor_that_is_free_again_is_not_yielded() {
        let mut rank = Script::new(BUSY);
        rank.waits(20, 10 * BUSY);
        rank.yield_takes = IDLE;
        rank.waits(WAITS_PER_TIMED_YIELD + 1, 2 * MAX_POLLING);
        assert!(rank.yields <= 2, "{}", rank.yields);
    }

    #[test]
    fn an_empty_first_poll_is_followed_by_a_yield_at_once_where_the_processor_is_wanted() {
        let mut rank = Script::new(BUSY);
        rank.wait(BUSY + 5 * POLL);
        assert!(rank.polled_first);
        assert!(rank.polls <= 7 && rank.yields == 1, "{} {}", rank.polls, rank.yields);
    }

    #[test]
    fn few_waits_begin_with_a_useless_poll() {
        let mut rank = Script::new(BUSY);
        // The message is there as soon as the others had the processor.
        rank.waits(MAX_EMPTY_FIRST_POLLS + 1, BUSY);
        let mut polled = 0;
        for _ in 0..4 * WAITS_PER_FIRST_POLL {
            assert_eq!(rank.yields, 1);
            polled += u32::from(rank.polled_first);
            rank.wait(BUSY);
        }
        assert!((2..=4).contains(&polled), "{polled}");
    }

    #[test]
    fn a_free_processor_is_noticed_although_every_wait_begins_with_a_yield() {
        let mut rank = Script::new(BUSY);
        rank.waits(MAX_EMPTY_FIRST_POLLS + 1, BUSY);
        rank.yield_takes = IDLE;
        rank.waits(WAITS_PER_TIMED_YIELD + 2, IDLE);
        assert!(rank.polled_first);
        assert_eq!(rank.yields, 0, "a message that comes so soon is polled for");
    }

    #[test]
    fn each_wait_has_its_own_time_to_poll() {
        let mut rank = Script::new(IDLE);
        rank.waits(2, 4 * MAX_POLLING);
        // Once messages come soon again, they are polled for from the next wait on.
        rank.wait(MAX_POLLING / 2);
        for _ in 0..20 {
            rank.wait(MAX_POLLING / 2);
            assert_eq!((rank.polled_first, rank.yields), (true, 0));
        }
    }
}
