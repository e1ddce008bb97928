//! Properties of doorbell coalescing, in virtual time.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// When the driver thread of a device sleeps until something wakes it.
const NEVER: Instant = Instant::from_nanos(u64::MAX);
/// What a frame costs its sender.
const SEND: Duration = Duration::from_micros(2);
/// What a post costs that is held.
const POST: Duration = Duration::from_nanos(200);
/// A small message on a queue pair with packets under way.
const SMALL: PostedRequests = PostedRequests {
    queue_pair: Qpn::GSI,
    requests: 1,
    bytes: 8,
    is_outstanding: true,
    is_signaled: false,
};

/// A device with some queue pairs, callers that post to them, and a driver thread that is on time.
struct Device {
    doorbells: DoorbellCoalescing,
    held: Held,
    now: Instant,
    thread_sleeps_until: Instant,
    callers: [CallerRun; 2],
    queue_pairs: [QueuePairRun; 4],
    /// Requests and bytes that are held, and when the first was posted.
    waiting: Vec<(Instant, PostedRequests)>,
    /// The longest that any post was held.
    longest: Duration,
}

impl Device {
    fn new() -> Self {
        let at = Instant::from_nanos(1_000_000_000);
        Self {
            doorbells: DoorbellCoalescing::default(),
            held: Held { is_holding: false, at: Instant::default(), interval: CHECK_SHORT },
            now: at,
            thread_sleeps_until: NEVER,
            callers: [CallerRun::NONE; 2],
            queue_pairs: [QueuePairRun::default(); 4],
            waiting: Vec::new(),
            longest: Duration::ZERO,
        }
    }

    /// Lets time pass, and the driver thread do what it does meanwhile.
    fn pass(&mut self, span: Duration) {
        let until = self.now + span;
        while self.thread_sleeps_until <= until {
            self.now = self.thread_sleeps_until;
            self.thread_sleeps_until = match self.held.check(self.now) {
                Check::Nothing => NEVER,
                Check::Again(interval) => self.now + interval,
                Check::Send => {
                    self.doorbells.on_driver_round(self.now);
                    self.transmit();
                    self.held.at = Instant::default();
                    NEVER
                }
            };
        }
        self.now = until;
    }

    fn transmit(&mut self) {
        for (posted_at, _) in self.waiting.drain(..) {
            self.longest = self.longest.max(self.now.saturating_since(posted_at));
        }
        self.doorbells.on_transmit();
        self.held.is_holding = false;
    }

    /// A post of one caller to one queue pair; true if it is held.
    fn post_to(&mut self, caller: usize, queue_pair: usize, posted: PostedRequests) -> bool {
        let run = &mut self.queue_pairs[queue_pair];
        let doorbell = if self.callers[caller].is_begun() {
            self.doorbells.on_post(self.now, &mut self.callers[caller], run, posted)
        } else {
            self.doorbells.begin_run(&mut self.callers[caller], run);
            Doorbell::Ring
        };
        self.waiting.push((self.now, posted));
        if doorbell == Doorbell::Hold {
            if !self.held.is_holding {
                self.held.interval = self.doorbells.check_interval();
                self.held.is_holding = true;
            }
            self.held.at = self.now;
            if self.held.next_check().is_some_and(|at| at < self.thread_sleeps_until) {
                self.thread_sleeps_until = self.now;
            }
        } else {
            self.transmit();
            self.now += SEND;
            self.doorbells.on_returned(self.now, &mut self.callers[caller]);
        }
        self.pass(POST);
        doorbell == Doorbell::Hold
    }

    fn post(&mut self) -> bool {
        self.post_to(0, 0, SMALL)
    }

    /// A burst of posts, and how many of them were held.
    fn burst(&mut self, posts: u32) -> u32 {
        (0..posts).map(|_| u32::from(self.post())).sum()
    }

    /// A poll of the first caller.
    fn poll(&mut self) {
        self.callers[0] = CallerRun::NONE;
        self.doorbells.on_round(self.now);
        self.transmit();
    }

    /// Bursts with a poll straight behind each until nearly every post is held.
    fn win_trust(&mut self) {
        let bursts = (0..200).take_while(|_| {
            let held = self.burst(32);
            self.poll();
            held < 31
        });
        assert!(bursts.count() < 200, "{:?}", self.doorbells);
    }
}

#[test]
fn a_post_between_polls_is_never_held_however_fast_they_follow() {
    let mut device = Device::new();
    for trusted in [false, true] {
        if trusted {
            device.win_trust();
        }
        for nanos in (0..3000).step_by(10) {
            assert!(!device.post());
            device.poll();
            device.pass(Duration::from_nanos(nanos));
        }
    }
}

#[test]
fn a_post_that_does_not_follow_its_predecessor_directly_leaves_at_once_with_all_before_it() {
    let mut device = Device::new();
    device.win_trust();
    for _ in 0..100 {
        device.burst(20);
        assert!(!device.waiting.is_empty());
        device.pass(MAX_GAP);
        assert!(!device.post() && device.waiting.is_empty());
    }
}

#[test]
fn the_first_posts_of_a_burst_leave_at_once() {
    let mut device = Device::new();
    for _ in 0..DEFAULT_THRESHOLD {
        assert!(!device.post());
    }
    assert!(device.post(), "the threshold is never reached");
    device.poll();
    device.win_trust();
    device.pass(Duration::from_secs(1));
    assert!(!device.post(), "the first post of a caller that is trusted fully");
    assert!(device.post());
}

#[test]
fn never_more_than_64_requests_and_64_kib_wait() {
    let mut dice = StdRng::seed_from_u64(1);
    let mut device = Device::new();
    let (mut requests, mut bytes) = (0, 0);
    for _ in 0..100_000 {
        let posted = PostedRequests {
            requests: dice.random_range(1..20),
            bytes: dice.random_range(0..40_000),
            ..SMALL
        };
        device.post_to(0, 0, posted);
        requests = requests.max(device.waiting.iter().map(|(_, it)| it.requests).sum());
        bytes = bytes.max(device.waiting.iter().map(|(_, it)| it.bytes).sum());
        if dice.random_ratio(1, 50) {
            device.poll();
        }
    }
    assert!((32..64).contains(&requests), "{requests} requests were held");
    assert!((32 << 10..64 << 10).contains(&bytes), "{bytes} bytes were held");
}

/// A script of bursts and what callers do between them; returns the longest that a post was held.
fn longest_hold(seed: u64, longest_burst: u32, min_pause: Duration) -> Duration {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut device = Device::new();
    for _ in 0..100 {
        let (caller, queue_pair) = (dice.random_range(0..2), dice.random_range(0..4));
        for _ in 0..dice.random_range(1..=longest_burst) {
            let is_outstanding = dice.random_ratio(9, 10);
            device.post_to(caller, queue_pair, PostedRequests { is_outstanding, ..SMALL });
            if dice.random_ratio(1, 500) {
                // The other caller, at the same time.
                device.post_to(1 - caller, dice.random_range(0..4), SMALL);
            }
        }
        match dice.random_range(0..4) {
            0 => device.pass(Duration::from_millis(5)),
            1 => device.pass(Duration::from_nanos(dice.random_range(0..300_000))),
            _ => {}
        }
        if dice.random_ratio(1, 2) {
            device.poll();
        }
        device.pass(min_pause + Duration::from_nanos(dice.random_range(0..30_000)));
    }
    device.longest
}

#[test]
fn nothing_is_held_longer_than_the_bound_if_the_driver_thread_is_on_time() {
    // A post may be the first of 64, each as late as one may be that is held.
    let filling = MAX_REQUESTS * MAX_GAP;
    let scripts = [
        (40, MIN_BURST_PAUSE, CHECK_SHORT, 50),
        (1000, MIN_BURST_PAUSE, CHECK_SHORT, 20),
        (1000, Duration::ZERO, CHECK_LONG, 20),
        (40_000, Duration::ZERO, CHECK_LONG, 2),
    ];
    for (longest_burst, min_pause, interval, seeds) in scripts {
        let bound = filling + MAX_PROMPT + interval;
        let longest = (0..seeds).map(|seed| {
            let longest = longest_hold(seed, longest_burst, min_pause);
            assert!(longest <= bound, "seed {seed}: held for {longest:?}, bound {bound:?}");
            longest
        });
        let longest = longest.max().unwrap();
        println!("bursts of up to {longest_burst} posts: {longest:?} of {bound:?}");
        assert!(longest > interval / 2, "the scripts never come near the bound: {longest:?}");
    }
    assert!(filling + MAX_PROMPT + CHECK_SHORT < Duration::from_micros(200));
    assert!(filling + MAX_PROMPT + CHECK_LONG < Duration::from_millis(1));
}

#[test]
fn a_caller_that_goes_away_with_requests_held_is_trusted_less_each_time() {
    let mut device = Device::new();
    let mut at_once = DEFAULT_THRESHOLD;
    for _ in 0..10 {
        let posted = (0..100_000).position(|_| device.post()).expect("none is held") as u32;
        assert!(posted >= at_once, "{posted} of {at_once}");
        // It computes; the driver thread sends what is held.
        device.pass(Duration::from_secs(1));
        assert!(device.waiting.is_empty());
        device.poll();
        at_once = (2 * posted).min(MAX_THRESHOLD);
    }
    assert_eq!(at_once, MAX_THRESHOLD);
    assert_eq!(device.burst(MAX_THRESHOLD), 0, "its bursts are no longer than that");
}

#[test]
fn trust_comes_back_with_prompt_polls_and_not_by_the_driver_threads_rounds() {
    let mut device = Device::new();
    for _ in 0..4 {
        while !device.post() {}
        device.pass(Duration::from_secs(1));
        device.poll();
    }
    assert_eq!(device.burst(64), 0);
    for _ in 0..1000 {
        device.burst(64);
        // Another thread drives meanwhile, and the caller goes away with nothing held.
        device.doorbells.on_driver_round(device.now);
        device.transmit();
        device.pass(Duration::from_millis(2));
        device.poll();
    }
    assert_eq!(device.burst(64), 0, "no poll was prompt");
    device.poll();
    device.win_trust();
}

#[test]
fn one_queue_pair_never_holds_another() {
    let mut device = Device::new();
    device.win_trust();
    let idle = PostedRequests { is_outstanding: false, ..SMALL };
    for _ in 0..100 {
        device.burst(40);
        assert!(!device.waiting.is_empty());
        // The same caller, on a queue pair that it has not posted to in this run.
        assert!(!device.post_to(0, 1, SMALL));
        device.burst(40);
        // However often: a queue pair that has nothing under way.
        assert!((0..20).all(|_| !device.post_to(0, 2, idle)));
        device.burst(40);
        // Another caller between two posts of the first.
        assert!(!device.post_to(1, 3, SMALL));
        device.callers[1] = CallerRun::NONE;
        device.poll();
    }
}

#[test]
fn a_caller_that_posts_to_its_queue_pairs_in_turn_has_its_posts_held_too() {
    let mut device = Device::new();
    for _ in 0..100 {
        for post in 0..32 {
            device.post_to(0, post % 4, SMALL);
        }
        device.poll();
    }
    let held = (0..32).filter(|post| device.post_to(0, post % 4, SMALL)).count();
    assert_eq!(held, 28, "all but the first on each");
}

#[test]
fn the_driver_thread_checks_seldom_only_in_long_bursts_of_callers_that_stay() {
    let mut device = Device::new();
    device.win_trust();
    assert_eq!(device.doorbells.check_interval(), CHECK_SHORT);
    let long = |device: &mut Device| {
        for _ in 0..=MAX_SHORT_BURST / 100 {
            device.burst(100);
            device.poll();
        }
    };
    long(&mut device);
    assert_eq!(device.doorbells.check_interval(), CHECK_LONG);
    // A pause begins a new burst.
    device.pass(2 * MIN_PAUSE);
    device.burst(10);
    assert_eq!(device.doorbells.check_interval(), CHECK_SHORT);
    device.poll();
    // So does a caller that goes away, however shortly.
    long(&mut device);
    device.burst(10);
    device.pass(CHECK_LONG + MAX_PROMPT);
    assert!(device.waiting.is_empty());
    assert_eq!(device.doorbells.check_interval(), CHECK_SHORT);
}

#[test]
fn a_caller_that_comes_back_from_polling_stays_in_its_long_burst() {
    let mut device = Device::new();
    device.win_trust();
    for _ in 0..2 * MAX_SHORT_BURST / 100 {
        device.burst(100);
        device.poll();
        device.pass(MIN_BURST_PAUSE * 9 / 10);
        device.poll();
    }
    assert_eq!(device.doorbells.check_interval(), CHECK_LONG);
}

#[test]
fn large_posts_ring_by_their_bytes_and_receive_once_in_64_requests() {
    let mut device = Device::new();
    device.win_trust();
    let large = PostedRequests { bytes: 4096, ..SMALL };
    let run = &mut device.queue_pairs[0];
    let caller = &mut device.callers[0];
    device.doorbells.begin_run(caller, run);
    device.doorbells.on_returned(device.now, caller);
    let (mut rings, mut receives) = (0, 0);
    for _ in 0..6400 {
        match device.doorbells.on_post(device.now, caller, run, large) {
            Doorbell::Hold => continue,
            Doorbell::Ring => rings += 1,
            Doorbell::RingAndReceive => receives += 1,
        }
        device.doorbells.on_transmit();
        device.doorbells.on_returned(device.now, caller);
    }
    assert_eq!(rings + receives, 6400 / 15, "frames of 15 packets");
    assert!((80..=100).contains(&receives), "{receives}");
}

/// Posts of a caller that is trusted fully, one in `period` of them signaled; returns how many signaled
/// requests were held.
fn held_signaled(period: u32) -> u32 {
    let mut device = Device::new();
    device.win_trust();
    let posts = (1..=100 * period).map(|post| post % period == 0);
    let held = posts.map(|is_signaled| {
        device.post_to(0, 0, PostedRequests { is_signaled, ..SMALL }) && is_signaled
    });
    held.map(u32::from).sum()
}

#[test]
fn a_signaled_request_behind_many_that_are_not_leaves_at_once_with_all_before_it() {
    for period in [MIN_UNSIGNALED + 1, 100, 1000] {
        assert_eq!(held_signaled(period), 0, "one signaled request in {period}");
    }
}

#[test]
fn requests_that_are_signaled_often_wait_as_those_that_are_not() {
    for period in [1, 2, 16, MIN_UNSIGNALED - 1] {
        // One request in 64 reaches the limit, and with a period of 16 each of those is signaled.
        let held = held_signaled(period);
        assert!(held >= 70, "one signaled request in {period}: {held} of 100");
    }
}

#[test]
fn a_caller_that_loses_its_processor_after_one_run_in_ten_has_its_posts_held() {
    let mut device = Device::new();
    // It has gone away before, so it is trusted least.
    device.doorbells.threshold = MAX_THRESHOLD;
    let mut held = 0;
    for run in 0..1000 {
        held = device.burst(100);
        if run % 10 == 0 {
            device.pass(2 * MAX_PROMPT);
        }
        device.poll();
    }
    assert!(held > 90, "{held} of 100: {:?}", device.doorbells);
}
