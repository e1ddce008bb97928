//! Limits the frames that all queue pairs together have in flight to one peer.

mod frame_cost;
mod wait_queue;

use core::time::Duration;

use self::frame_cost::FrameCost;
pub(crate) use self::wait_queue::Ticket;
use self::wait_queue::WaitQueue;
use crate::frames_in_flight::FrameFeedback;
use crate::{Instant, PeerWindowConfig};

/// A limit on the frames that all queue pairs together have in flight to one peer.
///
/// The peer's receive ring is FIFO, so a response to frame n shows that all earlier frames have left
/// the ring. Lost responses and destroyed queue pairs block nothing as long as another frame is
/// responded to.
///
/// A blocked queue pair waits in FIFO order. Each peer timeout admits a few more frames, which fit
/// into the ring beside those that it may still hold; after three the window stops limiting until
/// the peer responds. So a queue pair that sends to a dead peer fails nearly as soon as it would
/// without a window.
///
/// A packet train counts as one frame, or as its packets where the path segments it: see
/// [`FrameCost`].
#[derive(Debug)]
pub(crate) struct PeerWindow {
    config: PeerWindowConfig,
    limit: u32,
    /// Frames sent.
    sent: u64,
    /// Newest frame that has left the peer's ring; so have all before it.
    drained: u64,
    cost: FrameCost,
    /// Frames sent since the last one that carried AckReq.
    since_ack_req: u32,
    /// Queue pairs that wait for the window, each once.
    pub(crate) waiters: WaitQueue,
    /// Frames drained since the limit last grew.
    arrived: u64,
    /// Losses before this frame is drained count as one loss.
    recovery_end: u64,
    /// A queue pair was blocked since the limit last changed.
    is_limited: bool,
    /// Peer timeouts in a row.
    timeouts: u32,
    /// Deadline of the next peer timeout.
    timeout_at: Option<Instant>,
    /// Time of the last feedback or peer timeout; 0 before the first.
    changed_at: Instant,
    /// Deadline of its entry in the timer queue.
    pub(crate) timer_at: Option<Instant>,
}

/// What a waiting queue pair learns of its peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerView {
    /// The queue pair waits for the window, whose timer runs.
    pub(crate) is_blocked: bool,
    /// Time of the last feedback or peer timeout.
    pub(crate) changed_at: Instant,
}

/// How long a peer may send no response while queue pairs wait for it, doubled each time: longer
/// than it takes to work off a ring of frames.
const PEER_TIMEOUT: Duration = Duration::from_millis(16);
/// Peer timeouts in a row after which no queue pair waits: a tenth of a second in all.
const MAX_PEER_TIMEOUTS: u32 = 3;
/// Windows of frames that arrive before the limit grows by one frame: slowly, since a ring does not
/// become longer, and many losses are noticed late.
const GROWTH_WINDOWS: u64 = 4;

impl PeerWindow {
    pub(crate) fn new(config: PeerWindowConfig) -> Self {
        let min = config.min_frames.max(1);
        let max = config.max_frames.max(min);
        let config = PeerWindowConfig { min_frames: min, max_frames: max, ..config };
        Self {
            config,
            limit: config.initial_frames.clamp(min, max),
            sent: 0,
            drained: 0,
            cost: FrameCost::default(),
            since_ack_req: 0,
            waiters: WaitQueue::default(),
            arrived: 0,
            recovery_end: 0,
            is_limited: false,
            timeouts: 0,
            timeout_at: None,
            changed_at: Instant::from_nanos(0),
            timer_at: None,
        }
    }

    /// Frames that may be in flight. Where trains are segmented these are packets, whose losses show
    /// the path's limit rather than the ring's: the queue pairs' windows react to them.
    fn limit(&self) -> u32 {
        if self.cost.is_cut() { self.config.max_frames } else { self.limit }
    }

    /// Returns true if the window admits another frame.
    pub(crate) fn admits(&self) -> bool {
        self.sent - self.drained < u64::from(self.limit()) || self.timeouts >= MAX_PEER_TIMEOUTS
    }

    /// Returns true if the window admits a frame of a queue pair that has not waited.
    pub(crate) fn admits_new(&self) -> bool {
        self.waiters.is_empty() && self.admits()
    }

    /// Returns true if the next frame must carry AckReq: without ACKs the window would stay shut.
    pub(crate) fn must_request_ack(&self) -> bool {
        self.since_ack_req + 1 >= self.limit() / 4
    }

    /// Packets that a train may have. One that the path segments must not fill the peer's ring.
    pub(crate) fn max_train_packets(&self) -> usize {
        if self.cost.is_cut() { (self.limit() as usize / 4).max(1) } else { usize::MAX }
    }

    /// A train of `packets` packets left, with or without AckReq, and requests `response_frames`
    /// frames. Returns the number of the last frame.
    pub(crate) fn on_sent(
        &mut self,
        packets: u32,
        requests_ack: bool,
        response_frames: u32,
    ) -> u64 {
        let frames = self.cost.on_sent(packets);
        self.since_ack_req = if requests_ack { 0 } else { self.since_ack_req + frames };
        self.sent += u64::from(frames) + u64::from(response_frames);
        self.sent
    }

    /// A queue pair is blocked.
    pub(crate) fn on_blocked(&mut self, now: Instant) {
        self.is_limited = true;
        self.timeout_at
            .get_or_insert(now + PEER_TIMEOUT * (1 << self.timeouts.min(MAX_PEER_TIMEOUTS)));
    }

    /// A queue pair has learned of its frames.
    pub(crate) fn on_feedback(&mut self, feedback: FrameFeedback, now: Instant) {
        self.changed_at = now;
        if feedback.is_alive {
            self.on_peer_alive();
        }
        if feedback.is_part_lost {
            self.cost.on_part_lost();
        }
        if let Some(number) = feedback.drained {
            self.on_drained(number);
        }
        if feedback.is_lost {
            self.on_loss();
        }
    }

    fn on_peer_alive(&mut self) {
        if self.timeouts >= MAX_PEER_TIMEOUTS {
            // Of what was sent since the window stopped limiting the ring took what it could: to
            // count the rest would block queue pairs until ACKs that never come.
            self.drained = self.sent;
        }
        self.timeouts = 0;
        self.timeout_at = None;
    }

    /// Frame `number` has left the peer's ring: it was acknowledged, or is known to be lost.
    fn on_drained(&mut self, number: u64) {
        let number = number.min(self.sent);
        self.arrived += number.saturating_sub(self.drained);
        self.drained = self.drained.max(number);
        if self.is_limited && self.arrived >= GROWTH_WINDOWS * u64::from(self.limit) {
            self.is_limited = false;
            self.arrived = 0;
            self.limit = (self.limit + 1).min(self.config.max_frames);
        }
    }

    /// A frame was lost.
    fn on_loss(&mut self) {
        if self.is_limited && self.drained >= self.recovery_end && !self.cost.is_cut() {
            self.shrink();
        }
    }

    /// Time of the last feedback or peer timeout.
    pub(crate) const fn changed_at(&self) -> Instant {
        self.changed_at
    }

    /// Deadline for [`on_timeout`](Self::on_timeout).
    pub(crate) const fn timeout_at(&self) -> Option<Instant> {
        self.timeout_at
    }

    /// Counts a peer timeout if its deadline has passed.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if self.timeout_at.take_if(|at| *at <= now).is_some() && !self.waiters.is_empty() {
            self.timeouts += 1;
            self.changed_at = now;
            // The ring may still hold what was sent: a few more frames request an ACK.
            let in_ring = u64::from(self.limit().saturating_sub(self.config.min_frames));
            self.drained = self.drained.max(self.sent.saturating_sub(in_ring));
        }
    }

    fn shrink(&mut self) {
        self.limit = (self.limit / 2).max(self.config.min_frames);
        self.recovery_end = self.sent;
        self.arrived = 0;
        self.is_limited = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(0);

    fn window() -> PeerWindow {
        PeerWindow::new(PeerWindowConfig { initial_frames: 16, min_frames: 4, max_frames: 20 })
    }

    fn fill(window: &mut PeerWindow) -> u64 {
        let mut last = window.sent;
        while window.admits() {
            last = window.on_sent(1, true, 0);
        }
        window.on_blocked(START);
        last
    }

    #[test]
    fn a_response_drains_every_frame_before_it() {
        let mut window = window();
        assert_eq!(fill(&mut window), 16);
        window.on_drained(15);
        assert_eq!(window.sent - window.drained, 1);
        window.on_drained(3);
        assert_eq!(window.sent - window.drained, 1, "an old response takes nothing back");
    }

    #[test]
    fn a_frame_that_was_never_sent_opens_nothing() {
        let mut window = window();
        fill(&mut window);
        window.on_drained(1000);
        assert_eq!((window.sent, window.drained), (16, 16));
        assert_eq!(fill(&mut window), 32);
    }

    #[test]
    fn the_responses_of_a_read_count_before_they_arrive() {
        let mut window = window();
        assert_eq!(window.on_sent(1, true, 15), 16);
        assert!(!window.admits());
    }

    #[test]
    fn a_full_window_always_contains_a_frame_with_ack_req() {
        let mut window = window();
        let asked = (0..16).filter(|_| {
            let requests_ack = window.must_request_ack();
            window.on_sent(1, requests_ack, 0);
            requests_ack
        });
        assert_eq!(asked.count(), 4);
    }

    #[test]
    fn the_window_halves_once_for_a_burst_of_losses_and_never_shuts_for_good() {
        let mut window = window();
        fill(&mut window);
        for _ in 0..100 {
            window.on_loss();
        }
        assert_eq!(window.limit, 8);
        for _ in 0..10 {
            let last = fill(&mut window);
            window.drained = last;
            fill(&mut window);
            window.on_loss();
        }
        assert_eq!(window.limit, 4);
    }

    #[test]
    fn a_window_that_blocked_no_queue_pair_does_not_shrink() {
        let mut window = window();
        window.on_sent(1, true, 0);
        window.on_loss();
        assert_eq!(window.limit, 16);
    }

    #[test]
    fn the_window_grows_while_it_limits_and_frames_arrive() {
        let mut window = window();
        for limit in [17, 18, 19, 20, 20] {
            for _ in 0..GROWTH_WINDOWS {
                let last = fill(&mut window);
                window.on_drained(last);
            }
            assert_eq!(window.limit, limit);
        }
    }

    #[test]
    fn a_peer_timeout_admits_a_few_frames_and_keeps_the_limit() {
        let mut window = window();
        let _ticket = window.waiters.push_back(0);
        let before = fill(&mut window);
        window.on_timeout(window.timeout_at().unwrap());
        assert_eq!(fill(&mut window), before + 4, "its ring may still be full");
        window.on_peer_alive();
        window.on_drained(before + 1);
        assert_eq!(fill(&mut window), before + 1 + 16, "it was busy and lost nothing");
    }

    #[test]
    fn a_segmented_train_counts_as_its_packets_and_leaves_room_for_others() {
        let mut window = window();
        assert_eq!(window.on_sent(10, true, 0), 1);
        assert_eq!(window.max_train_packets(), usize::MAX);
        let feedback = FrameFeedback { is_part_lost: true, ..FrameFeedback::default() };
        window.on_feedback(feedback, START);
        assert_eq!(window.max_train_packets(), 5);
        assert_eq!(window.on_sent(4, true, 0), 5);
        while window.admits() {
            let packets = window.max_train_packets() as u32;
            window.on_sent(packets, true, 0);
        }
        assert!(window.sent - window.drained < 20 + 5, "{window:?}");
        window.on_loss();
        assert_eq!(window.limit(), 20, "the queue pairs' windows shrink");
    }

    #[test]
    fn no_queue_pair_waits_longer_than_a_tenth_of_a_second_for_a_dead_peer() {
        let mut window = window();
        let _ticket = window.waiters.push_back(0);
        let mut now = START;
        for _ in 0..3 {
            while window.admits() {
                window.on_sent(1, true, 0);
            }
            window.on_blocked(now);
            now = window.timeout_at().unwrap();
            window.on_timeout(now);
            assert!(window.admits());
        }
        assert!(now.saturating_since(START) < Duration::from_millis(120));
        for _ in 0..1000 {
            assert!(window.admits());
            window.on_sent(1, true, 0);
        }
        window.on_drained(1);
        assert!(
            window.sent > window.drained,
            "a frame that was given up does not show that the peer is alive"
        );
        window.on_peer_alive();
        assert_eq!(window.sent, window.drained, "what was sent without a response is forgotten");
        let limit = u64::from(window.limit);
        assert_eq!(fill(&mut window), window.drained + limit, "and it is a window again");
    }
}
