//! How many frames may be on their way to one peer, from all queue pairs together.

use core::time::Duration;

use crate::frame_cost::FrameCost;
use crate::line::Line;
use crate::rc::FreightNews;
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
pub(crate) struct Gate {
    config: PeerWindowConfig,
    limit: u32,
    /// Frames sent.
    sent: u64,
    /// The newest of them that has left the peer's queue, and so have all before it.
    gone: u64,
    cost: FrameCost,
    /// Frames in a row of which none asks for an answer.
    unasked: u32,
    /// Queue pairs that wait, each once.
    pub(crate) line: Line,
    /// Frames that arrived since the limit last grew.
    arrived: u64,
    /// Losses until this frame is gone are the same loss.
    shrunk_at: u64,
    /// Somebody had to wait since the limit last changed: only then does the limit matter.
    was_limiting: bool,
    /// How often in a row nothing was heard.
    silences: u32,
    /// When the next silence is noticed.
    silent_at: Option<Instant>,
    /// When something last became known of a frame, or was given up; the beginning, if nothing was.
    changed_at: Instant,
    /// Where in the alarm it is entered.
    pub(crate) alarm_at: Option<Instant>,
}

/// What a queue pair that waits for its turn to send learns of its peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerView {
    /// The queue pair waits at the gate, whose timer will open it.
    pub(crate) is_shut: bool,
    /// When something last became known of any queue pair's frame, or was given up.
    pub(crate) changed_at: Instant,
}

/// How long a peer may say nothing while somebody waits for it, doubled each time: longer than it
/// takes to work off a ring of frames.
const PATIENCE: Duration = Duration::from_millis(16);
/// Silences in a row after which nobody waits any more: a tenth of a second in all.
const MOST_SILENCES: u32 = 3;
/// The limit grows by one frame when so many times itself have arrived: slowly, since a queue does
/// not become longer, and many a loss is noticed late.
const STEP: u64 = 4;

impl Gate {
    pub(crate) fn new(config: PeerWindowConfig) -> Self {
        let min = config.min_frames.max(1);
        let max = config.max_frames.max(min);
        let config = PeerWindowConfig { min_frames: min, max_frames: max, ..config };
        Self {
            config,
            limit: config.initial_frames.clamp(min, max),
            sent: 0,
            gone: 0,
            cost: FrameCost::default(),
            unasked: 0,
            line: Line::default(),
            arrived: 0,
            shrunk_at: 0,
            was_limiting: false,
            silences: 0,
            silent_at: None,
            changed_at: Instant::from_nanos(0),
            alarm_at: None,
        }
    }

    /// Frames that may be on their way. Where trains are cut, these are packets: their losses tell
    /// of the path rather than of the ring, and are the queue pairs' windows' business.
    fn limit(&self) -> u32 {
        if self.cost.is_cut() { self.config.max_frames } else { self.limit }
    }

    /// May a frame leave now?
    pub(crate) fn has_room(&self) -> bool {
        self.sent - self.gone < u64::from(self.limit()) || self.silences >= MOST_SILENCES
    }

    /// May a frame leave for somebody who has not stood in line?
    pub(crate) fn is_open(&self) -> bool {
        self.line.is_empty() && self.has_room()
    }

    /// Must the next frame ask for an answer? Otherwise nobody might learn that there is room.
    pub(crate) fn must_ask(&self) -> bool {
        self.unasked + 1 >= self.limit() / 4
    }

    /// Packets that a train may have. One that the path cuts must not fill the peer's ring.
    pub(crate) fn max_train_packets(&self) -> usize {
        if self.cost.is_cut() { (self.limit() as usize / 4).max(1) } else { usize::MAX }
    }

    /// A train of `packets` packets left that asks for an answer or not, and brings `answers` more
    /// frames with it. Returns the number of the last.
    pub(crate) fn on_sent(&mut self, packets: u32, asks: bool, answers: u32) -> u64 {
        let frames = self.cost.on_sent(packets);
        self.unasked = if asks { 0 } else { self.unasked + frames };
        self.sent += u64::from(frames) + u64::from(answers);
        self.sent
    }

    /// Somebody has to wait.
    pub(crate) fn on_shut(&mut self, now: Instant) {
        self.was_limiting = true;
        self.silent_at.get_or_insert(now + PATIENCE * (1 << self.silences.min(MOST_SILENCES)));
    }

    /// What a queue pair has learned of its frames.
    pub(crate) fn on_news(&mut self, news: FreightNews, now: Instant) {
        self.changed_at = now;
        if news.is_heard {
            self.on_heard();
        }
        if news.is_part_lost {
            self.cost.on_part_lost();
        }
        if let Some(number) = news.gone {
            self.on_gone(number);
        }
        if news.is_lost {
            self.on_loss();
        }
    }

    fn on_heard(&mut self) {
        if self.silences >= MOST_SILENCES {
            // It is back. Of what was sent meanwhile its queue took what it could; to count it
            // would keep everybody waiting for answers that nobody is going to give.
            self.gone = self.sent;
        }
        self.silences = 0;
        self.silent_at = None;
    }

    /// Frame `number` has left the peer's queue: it was answered, or is known to be lost.
    fn on_gone(&mut self, number: u64) {
        let number = number.min(self.sent);
        self.arrived += number.saturating_sub(self.gone);
        self.gone = self.gone.max(number);
        if self.was_limiting && self.arrived >= STEP * u64::from(self.limit) {
            self.was_limiting = false;
            self.arrived = 0;
            self.limit = (self.limit + 1).min(self.config.max_frames);
        }
    }

    /// A frame was lost.
    fn on_loss(&mut self) {
        if self.was_limiting && self.gone >= self.shrunk_at && !self.cost.is_cut() {
            self.shrink();
        }
    }

    /// When something last became known of a frame, or was given up.
    pub(crate) const fn changed_at(&self) -> Instant {
        self.changed_at
    }

    /// When [`on_time`](Self::on_time) wants to be called.
    pub(crate) const fn silent_at(&self) -> Option<Instant> {
        self.silent_at
    }

    /// Looks whether nothing was heard for too long.
    pub(crate) fn on_time(&mut self, now: Instant) {
        if self.silent_at.take_if(|at| *at <= now).is_some() && !self.line.is_empty() {
            self.silences += 1;
            self.changed_at = now;
            // The ring may still hold what was sent: a few more frames ask for an answer.
            let in_ring = u64::from(self.limit().saturating_sub(self.config.min_frames));
            self.gone = self.gone.max(self.sent.saturating_sub(in_ring));
        }
    }

    fn shrink(&mut self) {
        self.limit = (self.limit / 2).max(self.config.min_frames);
        self.shrunk_at = self.sent;
        self.arrived = 0;
        self.was_limiting = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(0);

    fn gate() -> Gate {
        Gate::new(PeerWindowConfig { initial_frames: 16, min_frames: 4, max_frames: 20 })
    }

    fn fill(gate: &mut Gate) -> u64 {
        let mut last = gate.sent;
        while gate.has_room() {
            last = gate.on_sent(1, true, 0);
        }
        gate.on_shut(START);
        last
    }

    #[test]
    fn an_answer_speaks_for_every_frame_before_it() {
        let mut gate = gate();
        assert_eq!(fill(&mut gate), 16);
        gate.on_gone(15);
        assert_eq!(gate.sent - gate.gone, 1);
        gate.on_gone(3);
        assert_eq!(gate.sent - gate.gone, 1, "an old answer takes nothing back");
    }

    #[test]
    fn a_frame_that_was_never_sent_here_opens_nothing() {
        let mut gate = gate();
        fill(&mut gate);
        gate.on_gone(1000);
        assert_eq!((gate.sent, gate.gone), (16, 16));
        assert_eq!(fill(&mut gate), 32);
    }

    #[test]
    fn the_answers_of_a_read_count_before_they_come() {
        let mut gate = gate();
        assert_eq!(gate.on_sent(1, true, 15), 16);
        assert!(!gate.has_room());
    }

    #[test]
    fn a_gate_never_shuts_behind_frames_of_which_none_asks_for_an_answer() {
        let mut gate = gate();
        let asked = (0..16).filter(|_| {
            let asks = gate.must_ask();
            gate.on_sent(1, asks, 0);
            asks
        });
        assert_eq!(asked.count(), 4);
    }

    #[test]
    fn a_gate_halves_once_for_a_burst_of_losses_and_never_shuts_for_good() {
        let mut gate = gate();
        fill(&mut gate);
        for _ in 0..100 {
            gate.on_loss();
        }
        assert_eq!(gate.limit, 8);
        for _ in 0..10 {
            let last = fill(&mut gate);
            gate.gone = last;
            fill(&mut gate);
            gate.on_loss();
        }
        assert_eq!(gate.limit, 4);
    }

    #[test]
    fn a_gate_that_held_nobody_up_is_not_to_blame_for_a_loss() {
        let mut gate = gate();
        gate.on_sent(1, true, 0);
        gate.on_loss();
        assert_eq!(gate.limit, 16);
    }

    #[test]
    fn a_gate_widens_while_frames_arrive_and_it_is_what_limits() {
        let mut gate = gate();
        for limit in [17, 18, 19, 20, 20] {
            for _ in 0..STEP {
                let last = fill(&mut gate);
                gate.on_gone(last);
            }
            assert_eq!(gate.limit, limit);
        }
    }

    #[test]
    fn a_peer_that_is_silent_for_a_while_is_asked_by_a_few_frames_and_keeps_its_limit() {
        let mut gate = gate();
        let _place = gate.line.join(0);
        let before = fill(&mut gate);
        gate.on_time(gate.silent_at().unwrap());
        assert_eq!(fill(&mut gate), before + 4, "its ring may still be full");
        gate.on_heard();
        gate.on_gone(before + 1);
        assert_eq!(fill(&mut gate), before + 1 + 16, "it was busy and lost nothing");
    }

    #[test]
    fn a_train_that_is_cut_counts_as_its_packets_and_leaves_room_for_others() {
        let mut gate = gate();
        assert_eq!(gate.on_sent(10, true, 0), 1);
        assert_eq!(gate.max_train_packets(), usize::MAX);
        let news = FreightNews { is_part_lost: true, ..FreightNews::default() };
        gate.on_news(news, START);
        assert_eq!(gate.max_train_packets(), 5);
        assert_eq!(gate.on_sent(4, true, 0), 5);
        while gate.has_room() {
            let packets = gate.max_train_packets() as u32;
            gate.on_sent(packets, true, 0);
        }
        assert!(gate.sent - gate.gone < 20 + 5, "{gate:?}");
        gate.on_loss();
        assert_eq!(gate.limit(), 20, "the queue pairs' windows shrink");
    }

    #[test]
    fn nobody_waits_longer_than_a_tenth_of_a_second_for_a_silent_peer() {
        let mut gate = gate();
        let _place = gate.line.join(0);
        let mut now = START;
        for _ in 0..3 {
            while gate.has_room() {
                gate.on_sent(1, true, 0);
            }
            gate.on_shut(now);
            now = gate.silent_at().unwrap();
            gate.on_time(now);
            assert!(gate.has_room());
        }
        assert!(now.saturating_since(START) < Duration::from_millis(120));
        for _ in 0..1000 {
            assert!(gate.has_room());
            gate.on_sent(1, true, 0);
        }
        gate.on_gone(1);
        assert!(gate.sent > gate.gone, "to give a frame up is no sign of life");
        gate.on_heard();
        assert_eq!(gate.sent, gate.gone, "what was sent into the silence is forgotten");
        let limit = u64::from(gate.limit);
        assert_eq!(fill(&mut gate), gate.gone + limit, "and it is a gate again");
    }
}
