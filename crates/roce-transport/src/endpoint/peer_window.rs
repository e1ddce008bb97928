//! How many frames may be on their way to one peer, from all queue pairs together.

use core::time::Duration;

use crate::endpoint::frame_cost::FrameCost;
use crate::endpoint::wait_queue::WaitQueue;
use crate::rc::FrameFeedback;
use crate::{Instant, PeerWindowConfig};

/// The way into one peer's receive queue, shared by all queue pairs that send to it.
///
/// Each queue pair has a window of its own, but a peer's receive ring holds so many frames
/// whoever sent them: a thousand queue pairs fill it with two frames each. So their frames are
/// numbered as they leave. A queue lets nobody pass, so an answer to one frame shows that all
/// before it have left the queue too: answers that are lost, and queue pairs that die with
/// frames under way, hold nothing back as long as somebody else is answered. What was sent since is
/// taken to be in the queue still.
///
/// Who finds the gate shut stands in line, and the line is served in its order. A peer that
/// answers nothing at all for a while may have lost what was sent, may have no processor, or may be
/// gone. It is asked: at each timeout a few more frames may leave, which fit into its ring beside
/// those that may still be in it. An answer to one of them shows that the others have left. After
/// the third timeout all frames may leave, until something is heard. So a queue pair that sends to
/// a dead peer learns of it nearly as soon as it would without a gate.
///
/// A packet train counts as one frame, or as its packets where the path cuts it: see
/// [`FrameCost`].
#[derive(Debug)]
pub(crate) struct PeerWindow {
    config: PeerWindowConfig,
    limit: u32,
    /// Frames sent.
    sent: u64,
    /// The newest of them that has left the peer's queue, and so have all before it.
    drained: u64,
    cost: FrameCost,
    /// Frames in a row of which none asks for an answer.
    since_ack_req: u32,
    /// Queue pairs that wait, each once.
    pub(crate) waiters: WaitQueue,
    /// Frames that arrived since the limit last grew.
    arrived: u64,
    /// Losses until this frame is gone are the same loss.
    recovery_end: u64,
    /// Somebody had to wait since the limit last changed: only then does the limit matter.
    is_limited: bool,
    /// How often in a row nothing was heard.
    timeouts: u32,
    /// When the next silence is noticed.
    timeout_at: Option<Instant>,
    /// When something last became known of a frame, or was given up; the beginning, if nothing was.
    changed_at: Instant,
    /// Where in the alarm it is entered.
    pub(crate) timer_at: Option<Instant>,
}

/// What a queue pair that waits for its turn to send learns of its peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerView {
    /// The queue pair waits at the gate, whose timer will open it.
    pub(crate) is_blocked: bool,
    /// When something last became known of any queue pair's frame, or was given up.
    pub(crate) changed_at: Instant,
}

/// How long a peer may say nothing while somebody waits for it, doubled each time: longer than it
/// takes to work off a ring of frames.
const PEER_TIMEOUT: Duration = Duration::from_millis(16);
/// Silences in a row after which nobody waits any more: a tenth of a second in all.
const MAX_PEER_TIMEOUTS: u32 = 3;
/// The limit grows by one frame when so many times itself have arrived: slowly, since a queue does
/// not become longer, and many a loss is noticed late.
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

    /// Frames that may be on their way. Where trains are cut, these are packets: their losses tell
    /// of the path rather than of the ring, and are the queue pairs' windows' business.
    fn limit(&self) -> u32 {
        if self.cost.is_cut() { self.config.max_frames } else { self.limit }
    }

    /// May a frame leave now?
    pub(crate) fn admits(&self) -> bool {
        self.sent - self.drained < u64::from(self.limit()) || self.timeouts >= MAX_PEER_TIMEOUTS
    }

    /// May a frame leave for somebody who has not stood in line?
    pub(crate) fn admits_new(&self) -> bool {
        self.waiters.is_empty() && self.admits()
    }

    /// Must the next frame ask for an answer? Otherwise nobody might learn that there is room.
    pub(crate) fn must_request_ack(&self) -> bool {
        self.since_ack_req + 1 >= self.limit() / 4
    }

    /// Packets that a train may have. One that the path cuts must not fill the peer's ring.
    pub(crate) fn max_train_packets(&self) -> usize {
        if self.cost.is_cut() { (self.limit() as usize / 4).max(1) } else { usize::MAX }
    }

    /// A train of `packets` packets left that asks for an answer or not, and brings `answers` more
    /// frames with it. Returns the number of the last.
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

    /// Somebody has to wait.
    pub(crate) fn on_blocked(&mut self, now: Instant) {
        self.is_limited = true;
        self.timeout_at
            .get_or_insert(now + PEER_TIMEOUT * (1 << self.timeouts.min(MAX_PEER_TIMEOUTS)));
    }

    /// What a queue pair has learned of its frames.
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
            // It is back. Of what was sent meanwhile its queue took what it could; to count it
            // would keep everybody waiting for answers that nobody is going to give.
            self.drained = self.sent;
        }
        self.timeouts = 0;
        self.timeout_at = None;
    }

    /// Frame `number` has left the peer's queue: it was answered, or is known to be lost.
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

    /// When something last became known of a frame, or was given up.
    pub(crate) const fn changed_at(&self) -> Instant {
        self.changed_at
    }

    /// When [`on_time`](Self::on_time) wants to be called.
    pub(crate) const fn timeout_at(&self) -> Option<Instant> {
        self.timeout_at
    }

    /// Looks whether nothing was heard for too long.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if self.timeout_at.take_if(|at| *at <= now).is_some() && !self.waiters.is_empty() {
            self.timeouts += 1;
            self.changed_at = now;
            // The ring may still hold what was sent: a few more frames ask for an answer.
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
    fn an_answer_speaks_for_every_frame_before_it() {
        let mut window = window();
        assert_eq!(fill(&mut window), 16);
        window.on_drained(15);
        assert_eq!(window.sent - window.drained, 1);
        window.on_drained(3);
        assert_eq!(window.sent - window.drained, 1, "an old answer takes nothing back");
    }

    #[test]
    fn a_frame_that_was_never_sent_here_opens_nothing() {
        let mut window = window();
        fill(&mut window);
        window.on_drained(1000);
        assert_eq!((window.sent, window.drained), (16, 16));
        assert_eq!(fill(&mut window), 32);
    }

    #[test]
    fn the_answers_of_a_read_count_before_they_come() {
        let mut window = window();
        assert_eq!(window.on_sent(1, true, 15), 16);
        assert!(!window.admits());
    }

    #[test]
    fn a_gate_never_shuts_behind_frames_of_which_none_asks_for_an_answer() {
        let mut window = window();
        let asked = (0..16).filter(|_| {
            let requests_ack = window.must_request_ack();
            window.on_sent(1, requests_ack, 0);
            requests_ack
        });
        assert_eq!(asked.count(), 4);
    }

    #[test]
    fn a_gate_halves_once_for_a_burst_of_losses_and_never_shuts_for_good() {
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
    fn a_gate_that_held_nobody_up_is_not_to_blame_for_a_loss() {
        let mut window = window();
        window.on_sent(1, true, 0);
        window.on_loss();
        assert_eq!(window.limit, 16);
    }

    #[test]
    fn a_gate_widens_while_frames_arrive_and_it_is_what_limits() {
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
    fn a_peer_that_is_silent_for_a_while_is_asked_by_a_few_frames_and_keeps_its_limit() {
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
    fn a_train_that_is_cut_counts_as_its_packets_and_leaves_room_for_others() {
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
    fn nobody_waits_longer_than_a_tenth_of_a_second_for_a_silent_peer() {
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
        assert!(window.sent > window.drained, "to give a frame up is no sign of life");
        window.on_peer_alive();
        assert_eq!(window.sent, window.drained, "what was sent into the silence is forgotten");
        let limit = u64::from(window.limit);
        assert_eq!(fill(&mut window), window.drained + limit, "and it is a window again");
    }
}
