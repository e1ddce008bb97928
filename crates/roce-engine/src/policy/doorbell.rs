//! Doorbell coalescing: which posted requests wait for the next one.

#[cfg(test)]
mod tests;

use std::time::Duration;

use roce_transport::Instant;
use roce_wire::Qpn;

/// Longest gap between two posts of a caller that does nothing else in between.
const MAX_GAP: Duration = Duration::from_nanos(1000);
/// Longest time from a post to the caller's next round that counts as prompt.
const MAX_PROMPT: Duration = Duration::from_micros(20);
/// Most requests that are held.
const MAX_REQUESTS: u32 = 64;
/// Bytes at which held requests leave: a train of 15 packets of 4 KiB.
const MAX_BYTES: u64 = 60 << 10;
/// Consecutive posts, at first, before one is held.
const DEFAULT_THRESHOLD: u32 = 8;
/// Most such posts: a longer burst gains more by its held posts than it may lose at its end.
const MAX_THRESHOLD: u32 = 256;
/// Trust at which the threshold halves; a run with a prompt round behind it adds 1.
const MAX_TRUST: u32 = 16;
/// Trust that a late round with requests held costs. The trust so grows if fewer than one run in
/// nine ends late: the system takes the processor from any program now and then.
const LATE_COST: u32 = 8;
/// Fewest consecutive posts without a signaled request before a signaled one that leaves at once. With
/// 16 or 32 a program whose completions are as frequent would send a frame for each of them, and lose
/// 22 or 7 % of its rate.
const MIN_UNSIGNALED: u32 = MAX_REQUESTS;
/// Consecutive posts up to which a burst counts as short.
const MAX_SHORT_BURST: u32 = 1 << 10;
/// Interval of the driver thread's checks of held requests in a short burst.
const CHECK_SHORT: Duration = Duration::from_micros(100);
/// Interval of those checks in a long burst.
const CHECK_LONG: Duration = Duration::from_micros(800);
/// Pause between two posts after which the second begins a new burst. After a shorter one the caller's
/// own post sends what is held, before a check of the driver thread does.
const MIN_BURST_PAUSE: Duration = Duration::from_micros(120);
/// Time after the last held request for which the driver thread keeps checking.
const MIN_PAUSE: Duration = Duration::from_millis(1);

/// Decides for each post whether it rings the doorbell or waits for the next post.
///
/// A network card that is busy fetches all requests posted meanwhile at once. Here the caller's
/// own thread does the card's work, so a caller that posts one request at a time would pay for a
/// frame and a system call with each. Instead, a request is held where its caller has come
/// straight back from its last post several times in a row. Held requests leave
///
/// - with the next post that does not follow its predecessor within `MAX_GAP`,
/// - with `MAX_REQUESTS` of them or `MAX_BYTES`,
/// - with a signaled request behind `MIN_UNSIGNALED` posts without one,
/// - at every round: a poll, arming, a wait, a change of state,
/// - by the driver thread, which checks after `CHECK_SHORT` or `CHECK_LONG`.
///
/// Each queue pair counts its own posts: the first ones of a run always leave at once, and so does
/// a request of a queue pair that knows its packets to have arrived. One without acknowledgements
/// never knows: its last packets left less than `MAX_GAP` before, or are held, as it is in a run.
/// After a caller has gone away with requests held, the threshold doubles; prompt rounds bring it
/// down again.
///
/// A caller that signals one request in many posts until its send queue is full, and then waits for that
/// completion. If the signaled request were held, it would leave only when the queue is full, and the
/// caller would wait for a round trip with nothing to send. So it leaves at once, with all before it.
#[derive(Debug)]
pub struct DoorbellCoalescing {
    /// Number of the latest run.
    run: u64,
    /// Time at which the latest post returned.
    returned_at: Instant,
    /// A post was made since the last round.
    awaits_round: bool,
    /// Posts since the last round that followed their predecessor directly.
    consecutive: u32,
    /// Time of the latest of those.
    consecutive_at: Instant,
    /// Posts of a run that leave at once.
    threshold: u32,
    /// Measure of how prompt the rounds behind runs have been, up to [`MAX_TRUST`].
    trust: u32,
    /// Consecutive posts since the last pause.
    burst: u32,
    held_requests: u32,
    held_bytes: u64,
    /// Consecutive posts without a signaled request.
    unsignaled: u32,
    /// Requests posted straight behind one another since frames were last received.
    since_receive: u32,
    /// Posts that were held since the device was opened.
    coalesced: u64,
}

/// The decision about a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doorbell {
    /// Its requests wait for the next post.
    Hold,
    /// It leaves now, and all that was held with it.
    Ring,
    /// The limit is reached: all held requests leave, and frames are received, since the caller has
    /// not polled for a while.
    RingAndReceive,
}

/// A caller's run: posts that follow each other directly, on any queue pairs.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallerRun {
    number: u64,
    returned_at: Instant,
}

impl CallerRun {
    /// No run: the caller has called another function since its last post.
    pub const NONE: Self = Self { number: 0, returned_at: Instant::from_nanos(0) };

    /// Returns true if the caller has called no other function since its last post.
    pub(crate) fn is_begun(&self) -> bool {
        self.number != 0
    }
}

/// Posts of a run to one queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueuePairRun {
    /// Number of the run.
    pub number: u64,
    /// Posts to the queue pair in it.
    pub posts: u32,
}

/// The runs that a post belongs to.
#[derive(Clone, Copy, Debug, Default)]
pub struct PostRuns {
    /// That of its caller.
    pub caller: CallerRun,
    /// The part of that which goes to its queue pair.
    pub queue_pair: QueuePairRun,
}

/// The requests of one post.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostedRequests {
    /// The queue pair.
    pub(crate) queue_pair: Qpn,
    /// Number of requests.
    pub(crate) requests: u32,
    /// Bytes of all their messages.
    pub(crate) bytes: u64,
    /// Packets of the queue pair may be under way.
    pub(crate) is_outstanding: bool,
    /// One of the requests is signaled.
    pub(crate) is_signaled: bool,
}

impl PostedRequests {
    /// Returns no requests to a queue pair.
    #[inline]
    pub(crate) fn none_to(queue_pair: Qpn) -> Self {
        Self { queue_pair, requests: 0, bytes: 0, is_outstanding: false, is_signaled: false }
    }

    /// Adds a request.
    #[inline]
    pub(crate) fn add(&mut self, bytes: u64, is_signaled: bool) {
        self.requests += 1;
        self.bytes += bytes;
        self.is_signaled |= is_signaled;
    }
}

impl Default for DoorbellCoalescing {
    fn default() -> Self {
        Self {
            run: 0,
            returned_at: Instant::default(),
            awaits_round: false,
            consecutive: 0,
            consecutive_at: Instant::default(),
            threshold: DEFAULT_THRESHOLD,
            trust: 0,
            burst: 0,
            held_requests: 0,
            held_bytes: 0,
            unsignaled: 0,
            since_receive: 0,
            coalesced: 0,
        }
    }
}

impl DoorbellCoalescing {
    /// Decides about the requests that a caller in the middle of a run has posted at `now`. Unless
    /// they are held, [`on_returned`](Self::on_returned) follows.
    #[inline]
    pub(crate) fn on_post(
        &mut self,
        now: Instant,
        caller: &mut CallerRun,
        queue_pair: &mut QueuePairRun,
        posted: PostedRequests,
    ) -> Doorbell {
        if now.saturating_since(caller.returned_at) > MAX_GAP {
            self.judge_caller(now);
            self.begin_run(caller, queue_pair);
            return Doorbell::Ring;
        }
        if queue_pair.number != caller.number {
            *queue_pair = QueuePairRun { number: caller.number, posts: 0 };
        }
        let is_awaited = posted.is_signaled && self.unsignaled >= MIN_UNSIGNALED;
        self.unsignaled = if posted.is_signaled { 0 } else { self.unsignaled.saturating_add(1) };
        let before = queue_pair.posts;
        queue_pair.posts += 1;
        self.consecutive += 1;
        let pause = now.saturating_since(self.consecutive_at);
        self.consecutive_at = now;
        self.burst = if pause > MIN_BURST_PAUSE { 1 } else { self.burst.saturating_add(1) };
        if before < self.threshold || !posted.is_outstanding {
            return Doorbell::Ring;
        }
        let was_holding = self.is_holding();
        self.held_requests += posted.requests;
        self.held_bytes += posted.bytes;
        self.since_receive = self.since_receive.saturating_add(posted.requests);
        if self.held_requests >= MAX_REQUESTS || self.held_bytes >= MAX_BYTES {
            if !was_holding || self.since_receive < MAX_REQUESTS {
                return Doorbell::Ring;
            }
            self.since_receive = 0;
            return Doorbell::RingAndReceive;
        }
        if is_awaited {
            return Doorbell::Ring;
        }
        self.coalesced += 1;
        self.note_return(now, caller);
        Doorbell::Hold
    }

    /// Begins a run of a caller with a post that leaves at once.
    #[inline]
    pub(crate) fn begin_run(&mut self, caller: &mut CallerRun, queue_pair: &mut QueuePairRun) {
        self.run += 1;
        caller.number = self.run;
        *queue_pair = QueuePairRun { number: self.run, posts: 1 };
    }

    /// Notes that a post that was not held has left, and that its caller returns at `now`.
    #[inline]
    pub(crate) fn on_returned(&mut self, now: Instant, caller: &mut CallerRun) {
        self.note_return(now, caller);
    }

    #[inline]
    fn note_return(&mut self, now: Instant, caller: &mut CallerRun) {
        self.returned_at = now;
        caller.returned_at = now;
        self.awaits_round = true;
    }

    /// Returns true if the caller has made as many posts to `queue_pair` without polling as would be
    /// held: requests may then be left that the window did not admit.
    #[inline]
    pub(crate) fn is_long_run(queue_pair: QueuePairRun) -> bool {
        queue_pair.posts >= MAX_REQUESTS
    }

    /// Returns true while requests are held.
    #[inline]
    pub fn is_holding(&self) -> bool {
        self.held_requests > 0
    }

    /// Notes that held requests leave.
    #[inline]
    pub(crate) fn on_transmit(&mut self) {
        self.held_requests = 0;
        self.held_bytes = 0;
    }

    /// Notes a caller's round at `now`.
    #[inline]
    pub(crate) fn on_round(&mut self, now: Instant) {
        if self.awaits_round {
            self.judge_caller(now);
        }
    }

    /// Notes a round of the driver thread at `now`. It proves that callers were away too long, but
    /// not that they were prompt.
    pub(crate) fn on_driver_round(&mut self, now: Instant) {
        if self.awaits_round && now.saturating_since(self.returned_at) > MAX_PROMPT {
            if self.is_holding() {
                self.burst = 0;
            }
            self.judge_caller(now);
        }
        self.consecutive = 0;
    }

    /// Returns the interval of the driver thread's checks of held requests.
    #[inline]
    pub fn check_interval(&self) -> Duration {
        if self.burst <= MAX_SHORT_BURST { CHECK_SHORT } else { CHECK_LONG }
    }

    /// Returns the number of posts that were held since the device was opened.
    pub(crate) fn coalesced(&self) -> u64 {
        self.coalesced
    }

    /// Learns from the time between the last post and `now`, the first round or post after it.
    fn judge_caller(&mut self, now: Instant) {
        self.awaits_round = false;
        self.since_receive = 0;
        let consecutive = std::mem::take(&mut self.consecutive);
        if now.saturating_since(self.returned_at) <= MAX_PROMPT {
            if consecutive >= DEFAULT_THRESHOLD {
                self.trust += 1;
                if self.trust >= MAX_TRUST {
                    self.trust = MAX_TRUST / 2;
                    self.threshold = (self.threshold / 2).max(1);
                }
            }
        } else if self.is_holding() {
            match self.trust.checked_sub(LATE_COST) {
                Some(left) => self.trust = left,
                None => {
                    self.trust = 0;
                    self.threshold = (2 * self.threshold).clamp(DEFAULT_THRESHOLD, MAX_THRESHOLD);
                }
            }
        }
    }
}

/// Held requests as the driver thread sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Requests are held now.
    pub is_holding: bool,
    /// Time at which one was last held.
    pub at: Instant,
    /// Interval of the driver thread's checks.
    pub interval: Duration,
}

/// The driver thread's decision about held requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Nothing: none are held.
    Nothing,
    /// It sends them: their caller has gone away.
    Send,
    /// It checks again after this time.
    Again(Duration),
}

impl Held {
    /// Decides what the driver thread does at `now`.
    pub fn check(&self, now: Instant) -> Check {
        let age = now.saturating_since(self.at);
        if self.is_holding {
            return if age > MAX_PROMPT { Check::Send } else { Check::Again(self.interval) };
        }
        // More requests are likely to be held soon: the thread goes on checking, since a wake-up
        // would cost the caller more than a check.
        if age < MIN_PAUSE { Check::Again(self.interval) } else { Check::Nothing }
    }

    /// Returns the latest time of the driver thread's next check; `None` if no requests are held.
    pub fn next_check(&self) -> Option<Instant> {
        // The check that found the latest post may have been that much later than the post.
        self.is_holding.then(|| self.at + MAX_PROMPT + self.interval)
    }
}
