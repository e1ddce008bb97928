//! Decides how a thread without work waits: it polls again, yields, or blocks.

use std::time::Duration;

use roce_transport::Instant;

/// Empty polls between two yields while other threads want the processor.
const MIN_POLLS_PER_YIELD: u32 = 48;
/// Empty polls between two yields while none does: some 60 µs.
const MAX_POLLS_PER_YIELD: u32 = 1536;
/// Longest yield in which no other thread has run; it takes some 0.3 µs.
const MAX_IDLE_YIELD: Duration = Duration::from_micros(2);
/// Longest yield that has not cost a time slice: after a longer one the processor is contended.
/// Threads that only exchange messages yield much sooner.
const MAX_SHORT_YIELD: Duration = Duration::from_micros(200);
/// Waits that block after the first yield that cost a time slice.
const MIN_BLOCKING_WAITS: u32 = 64;
/// Waits that block after consecutive ones: about half a second of a ping-pong.
const MAX_BLOCKING_WAITS: u32 = 1 << 14;
/// Factor from one number of blocking waits to the next.
const BLOCKING_WAITS_FACTOR: u32 = 4;
/// Longest time between two polls of a caller that does nothing else.
const MAX_POLL_GAP: Duration = Duration::from_micros(5);
/// Consecutive empty polls, without a longer gap between them, that make a wait.
const MIN_POLLS_PER_WAIT: u32 = 4;
/// Divisor of the longest spin after a long sleep.
const SHORT_SPIN_DIVISOR: u32 = 10;

/// Decides how one thread waits; one value for each thread.
///
/// On a processor of its own a thread polls, and so notices a packet at once. It yields now and then,
/// since the peer may be waiting for the same processor. While no other thread uses the processor,
/// yields are rare.
///
/// On a contended processor a yield sends the thread to the end of the run queue, behind whole
/// time slices of the others. Spinning until its own slice is used up does the same. A thread that
/// sleeps is preferred by the scheduler when a packet wakes it. So after a yield that cost a time
/// slice the thread blocks, for a bounded number of waits, and then tries a yield again. The bound
/// grows while yields keep costing slices, so that they become rare.
///
/// The policy only decides; its caller reads clocks, yields and blocks. What it learns holds for
/// one processor, so each thread has its own.
#[derive(Clone, Debug)]
pub struct WaitPolicy {
    /// Empty polls since the last yield or block.
    polls: u32,
    /// Consecutive polls, up to the last, between which the caller did nothing else.
    polls_in_row: u32,
    polls_per_yield: u32,
    /// Waits that are still to block before a yield is tried again.
    blocking_waits: u32,
    /// Value of `blocking_waits` after the next yield that costs a time slice.
    next_blocking_waits: u32,
    /// The last empty poll of a thread that may block, or the end of its last block.
    last_poll: Option<Instant>,
    /// The last sleep was shorter than the longest spin.
    is_sleep_short: bool,
}

/// What a thread that has found no work does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It polls again.
    Poll,
    /// It yields the processor.
    Yield,
    /// It blocks until a device has frames.
    Block,
}

impl Default for WaitPolicy {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitPolicy {
    /// Returns the policy of a thread that has not waited yet.
    pub const fn new() -> Self {
        Self {
            polls: 0,
            polls_in_row: 0,
            polls_per_yield: MIN_POLLS_PER_YIELD,
            blocking_waits: 0,
            next_blocking_waits: MIN_BLOCKING_WAITS,
            last_poll: None,
            is_sleep_short: false,
        }
    }

    /// Returns true while waits block.
    pub const fn is_contended(&self) -> bool {
        self.blocking_waits > 0
    }

    /// Returns true while polls of empty completion queues block or yield themselves.
    pub const fn gives_way(&self) -> bool {
        self.is_contended() || self.is_probing()
    }

    /// Returns true if waits have blocked until now, and a yield is to show whether they still must.
    const fn is_probing(&self) -> bool {
        !self.is_contended() && self.next_blocking_waits > MIN_BLOCKING_WAITS
    }

    /// Notes a poll that found nothing. The clock is read only while waits block.
    #[inline]
    pub fn on_empty_poll(&mut self, clock: impl FnOnce() -> Instant) -> Wait {
        if self.is_contended() && self.is_wait(clock()) {
            return Wait::Block;
        }
        self.polls += 1;
        if self.polls < self.polls_per_yield { Wait::Poll } else { Wait::Yield }
    }

    /// Returns true if the caller does nothing but poll.
    fn is_wait(&mut self, now: Instant) -> bool {
        let last = self.last_poll.replace(now);
        let comes_straight_back =
            last.is_some_and(|last| now.saturating_since(last) <= MAX_POLL_GAP);
        self.polls_in_row = if comes_straight_back { self.polls_in_row + 1 } else { 1 };
        self.polls_in_row >= MIN_POLLS_PER_WAIT
    }

    /// Notes how long a yield took.
    pub fn on_yielded(&mut self, took: Duration) {
        self.polls = 0;
        if took > MAX_SHORT_YIELD {
            self.blocking_waits = self.next_blocking_waits;
            self.next_blocking_waits =
                (self.next_blocking_waits * BLOCKING_WAITS_FACTOR).min(MAX_BLOCKING_WAITS);
            self.polls_per_yield = MIN_POLLS_PER_YIELD;
            return;
        }
        self.next_blocking_waits = MIN_BLOCKING_WAITS;
        self.polls_per_yield = match took > MAX_IDLE_YIELD {
            true => MIN_POLLS_PER_YIELD,
            false => (2 * self.polls_per_yield).min(MAX_POLLS_PER_YIELD),
        };
    }

    /// Notes that a wait of a polling thread blocked until `now`.
    pub fn on_blocked(&mut self, now: Instant) {
        self.blocking_waits = self.blocking_waits.saturating_sub(1);
        self.last_poll = Some(now);
        // A block lets others run as a yield does; after the last one a yield is tried.
        self.polls = if self.is_contended() { 0 } else { MAX_POLLS_PER_YIELD };
    }

    /// Returns how long a thread that can sleep spins after its last work, at most `max`.
    ///
    /// A sleep costs some 10 µs on the way down and up, and the sender that ends it pays for part
    /// of that. Where sleeps turn out to be shorter than the longest spin, spinning would have
    /// been better. Where they are long, a short spin is all that the next packet is worth. On a
    /// contended processor spinning only uses up the time slice.
    pub fn spin(&self, max: Duration) -> Duration {
        match (self.is_contended(), self.is_sleep_short) {
            (true, _) => Duration::ZERO,
            (false, true) => max,
            (false, false) => max / SHORT_SPIN_DIVISOR,
        }
    }

    /// Notes a sleep of a thread that spins at most `max` before it sleeps.
    pub fn on_slept(&mut self, lasted: Duration, max: Duration) {
        self.blocking_waits = self.blocking_waits.saturating_sub(1);
        self.is_sleep_short = lasted < max;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(3);
    const IDLE_YIELD: Duration = Duration::from_nanos(300);

    /// A thread that does nothing but empty polls, in virtual time.
    struct Poller {
        policy: WaitPolicy,
        now: Instant,
        /// Time from one poll to the next.
        gap: Duration,
        yield_takes: Duration,
        yields: u32,
        blocks: u32,
    }

    impl Poller {
        fn new(yield_takes: Duration) -> Self {
            let gap = Duration::from_nanos(50);
            let policy = WaitPolicy::new();
            Self { policy, now: Instant::default(), gap, yield_takes, yields: 0, blocks: 0 }
        }

        fn poll(&mut self) -> Wait {
            self.now += self.gap;
            let now = self.now;
            let wait = self.policy.on_empty_poll(|| now);
            match wait {
                Wait::Poll => {}
                Wait::Yield => {
                    self.now += self.yield_takes;
                    self.yields += 1;
                    self.policy.on_yielded(self.yield_takes);
                }
                Wait::Block => {
                    self.now += Duration::from_micros(30);
                    self.blocks += 1;
                    self.policy.on_blocked(self.now);
                }
            }
            wait
        }

        fn step(&mut self) {
            let _wait = self.poll();
        }

        fn poll_until(&mut self, wanted: Wait, max: u32) -> u32 {
            (1..=max).find(|_| self.poll() == wanted).expect("it comes")
        }
    }

    #[test]
    fn a_thread_on_a_quiet_processor_never_blocks_and_reads_no_clock() {
        let mut policy = WaitPolicy::new();
        let mut polls = 0;
        for _ in 0..1_000_000 {
            match policy.on_empty_poll(|| panic!("the clock is read")) {
                Wait::Poll => polls += 1,
                Wait::Yield => policy.on_yielded(IDLE_YIELD),
                Wait::Block => panic!("it blocks"),
            }
        }
        assert!(polls > 999_000, "yields become rare: {polls}");
    }

    #[test]
    fn threads_that_hand_the_processor_on_yield_often_and_never_block() {
        let mut poller = Poller::new(Duration::from_micros(50));
        (0..1_000_000).for_each(|_| poller.step());
        assert_eq!(poller.yields, 1_000_000 / MIN_POLLS_PER_YIELD);
        assert_eq!(poller.blocks, 0);
    }

    #[test]
    fn after_a_yield_that_cost_a_slice_a_bounded_number_of_waits_blocks_before_the_next_yield() {
        let mut poller = Poller::new(SLICE);
        let mut expected = MIN_BLOCKING_WAITS;
        for _ in 0..8 {
            poller.poll_until(Wait::Yield, MAX_POLLS_PER_YIELD);
            poller.blocks = 0;
            while poller.policy.is_contended() {
                poller.poll_until(Wait::Block, MIN_POLLS_PER_WAIT);
            }
            assert_eq!(poller.blocks, expected);
            expected = (expected * BLOCKING_WAITS_FACTOR).min(MAX_BLOCKING_WAITS);
            assert!(poller.policy.is_probing());
        }
    }

    #[test]
    fn yields_that_cost_slices_take_few_percent_of_the_time() {
        let mut poller = Poller::new(SLICE);
        let start = poller.now;
        while poller.now.saturating_since(start) < Duration::from_secs(2) {
            poller.poll();
        }
        let share = (poller.yields * SLICE).as_secs_f64() / 2.0;
        assert!(share < 0.02, "{share}");
    }

    #[test]
    fn a_processor_that_is_quiet_again_is_polled_on_after_one_short_yield() {
        let mut poller = Poller::new(SLICE);
        poller.poll_until(Wait::Yield, MAX_POLLS_PER_YIELD);
        poller.yield_takes = IDLE_YIELD;
        poller.poll_until(Wait::Yield, MIN_POLLS_PER_WAIT * (MIN_BLOCKING_WAITS + 1));
        poller.blocks = 0;
        (0..100_000).for_each(|_| poller.step());
        assert_eq!(poller.blocks, 0);
        assert!(!poller.policy.is_probing());
        // The number of blocking waits starts small again.
        poller.yield_takes = SLICE;
        poller.poll_until(Wait::Yield, MAX_POLLS_PER_YIELD);
        assert_eq!(poller.policy.blocking_waits, MIN_BLOCKING_WAITS);
    }

    #[test]
    fn a_program_that_works_between_its_polls_yields_as_ever_and_is_never_blocked() {
        let mut poller = Poller::new(SLICE);
        poller.poll_until(Wait::Yield, MAX_POLLS_PER_YIELD);
        poller.gap = MAX_POLL_GAP + Duration::from_micros(1);
        poller.yields = 0;
        (0..100 * MIN_POLLS_PER_YIELD).for_each(|_| poller.step());
        assert_eq!((poller.yields, poller.blocks), (100, 0));
    }

    #[test]
    fn a_thread_that_can_sleep_spins_longer_while_its_sleeps_are_short() {
        let max = Duration::from_micros(200);
        let mut policy = WaitPolicy::new();
        assert_eq!(policy.spin(max), max / SHORT_SPIN_DIVISOR);
        policy.on_slept(Duration::from_micros(60), max);
        assert_eq!(policy.spin(max), max);
        policy.on_slept(Duration::from_millis(1), max);
        assert_eq!(policy.spin(max), max / SHORT_SPIN_DIVISOR);
    }

    #[test]
    fn a_thread_that_can_sleep_spins_on_a_contended_processor_only_to_try_a_yield() {
        let max = Duration::from_micros(200);
        let mut policy = WaitPolicy::new();
        policy.on_yielded(SLICE);
        for _ in 0..MIN_BLOCKING_WAITS {
            assert_eq!(policy.spin(max), Duration::ZERO);
            policy.on_slept(Duration::from_micros(60), max);
        }
        assert_eq!(policy.spin(max), max);
    }
}
