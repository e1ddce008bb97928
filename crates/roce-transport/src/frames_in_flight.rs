//! Frames of a queue pair that are in flight to its peer.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::RetransmitCause;

/// The frames that carry a queue pair's requests, by the numbers that the
/// [`PeerWindow`](crate::peer_window::PeerWindow) gave them.
#[derive(Debug, Default)]
pub(crate) struct FramesInFlight {
    /// In the order of sending.
    frames: VecDeque<Frame>,
    /// Number of the last repair, and the first sequence number behind it. Apart, since most queue pairs
    /// never have one.
    repair: Option<Box<(u64, u64)>>,
    /// Response frames that the train being written requests.
    response_frames: u32,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    number: u64,
    /// First sequence number in the frame.
    start: u64,
    /// First sequence number behind the frame.
    end: u64,
}

/// What a call of a queue pair says of frames in flight to the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameFeedback {
    /// Newest frame that is known to have left the peer's receive ring.
    pub(crate) drained: Option<u64>,
    /// The peer has responded.
    pub(crate) is_alive: bool,
    /// A frame was lost.
    pub(crate) is_lost: bool,
    /// The peer has the first packets of a frame, and not the next one.
    pub(crate) is_part_lost: bool,
}

/// Bytes of responses in a frame, about.
const RESPONSE_FRAME_LEN: u64 = 60 << 10;

impl FramesInFlight {
    /// Counts the frames of the responses to a READ request of `len` bytes, which is in the train that is
    /// being written.
    pub(crate) fn expect_response_frames(&mut self, len: u64) {
        self.response_frames += 1 + (len / RESPONSE_FRAME_LEN) as u32; // a READ request is short
    }

    /// Takes the number of response frames that the train just written requests.
    pub(crate) fn take_response_frames(&mut self) -> u32 {
        core::mem::take(&mut self.response_frames)
    }

    /// Frame `number` left, with the sequence numbers from `start` up to `end`.
    pub(crate) fn on_sent(&mut self, number: u64, start: u64, end: u64) {
        self.frames.push_back(Frame { number, start, end });
    }

    /// Everything before sequence number `to` is acknowledged.
    pub(crate) fn on_acknowledged(&mut self, to: u64, feedback: &mut FrameFeedback) {
        feedback.is_alive = true;
        if self.repair.is_some() {
            self.settle_repair(to, feedback);
        }
        while let Some(frame) = self.frames.pop_front_if(|frame| frame.end <= to) {
            feedback.drained = Some(frame.number);
        }
    }

    /// As [`on_acknowledged`](Self::on_acknowledged), of the last repair.
    #[cold]
    fn settle_repair(&mut self, to: u64, feedback: &mut FrameFeedback) {
        if let Some((number, _)) = self.repair.take_if(|repair| repair.1 <= to).map(|it| *it) {
            // All frames sent before it have left the ring too, though not all are acknowledged.
            self.frames.retain(|frame| frame.number > number);
            feedback.drained = Some(number);
        }
    }

    /// Frame `number` left, a part of a repair.
    pub(crate) fn on_repair_sent(&mut self, number: u64, end: u64) {
        self.repair = Some(Box::new((number, end)));
    }

    /// The peer has the packet before `end`, though others before it are missing.
    pub(crate) fn on_reported(&self, end: u64, feedback: &mut FrameFeedback) {
        feedback.is_alive = true;
        let newest = self.frames.partition_point(|frame| frame.start < end).checked_sub(1);
        if let Some(frame) = newest.and_then(|newest| self.frames.get(newest)) {
            feedback.drained = feedback.drained.max(Some(frame.number));
        }
    }

    /// The peer reports that packet `unacked` is missing, and keeps those behind it.
    pub(crate) fn on_repair(&mut self, unacked: u64, feedback: &mut FrameFeedback) {
        self.note_gap(unacked, feedback);
        feedback.is_alive = true;
        feedback.is_lost = true;
    }

    /// The peer reports a gap at `unacked`: the frame has left its ring, and so has the next one if
    /// that is how the peer knows.
    fn note_gap(&self, unacked: u64, feedback: &mut FrameFeedback) {
        if let Some(frame) = self.frames.front() {
            feedback.drained = Some(frame.number).max(feedback.drained);
            feedback.is_part_lost |= frame.start < unacked;
        }
        if let Some(next) = self.frames.get(1) {
            feedback.drained = Some(next.number).max(feedback.drained);
        }
    }

    /// Everything from sequence number `unacked` on is sent again.
    pub(crate) fn on_retransmit(
        &mut self,
        cause: RetransmitCause,
        unacked: u64,
        feedback: &mut FrameFeedback,
    ) {
        if let Some((number, _)) = self.repair.take().map(|it| *it) {
            // The peer has reported a gap, and would have responded to the repair: it is lost, and
            // what was sent before it has left the ring.
            let last = self.frames.back().map_or(number, |it| it.number);
            feedback.drained = Some(last.max(number));
            self.frames.clear();
        }
        if matches!(cause, RetransmitCause::ProbeTimeout | RetransmitCause::TailProbe) {
            // The frames may still be in the peer's ring. The next ACK is for them, rather than for
            // what is sent again behind them.
            return;
        }
        // The peer has seen what is behind the oldest packet, or has not acknowledged it for so
        // long: its frame is not in the peer's ring.
        if let Some(frame) = self.frames.front() {
            feedback.drained = Some(frame.number);
            feedback.is_part_lost |= cause == RetransmitCause::SequenceNak && frame.start < unacked;
        }
        // The peer reports the loss of a whole frame when it has received the next one.
        if let Some(next) = self.frames.get(1).filter(|_| cause == RetransmitCause::SequenceNak) {
            feedback.drained = Some(next.number);
        }
        self.frames.clear();
        feedback.is_alive |= cause != RetransmitCause::AckTimeout;
        feedback.is_lost |= cause != RetransmitCause::RnrTimeout;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acknowledged(frames: &mut FramesInFlight, to: u64) -> FrameFeedback {
        let mut feedback = FrameFeedback::default();
        frames.on_acknowledged(to, &mut feedback);
        feedback
    }

    fn retransmitted(
        frames: &mut FramesInFlight,
        cause: RetransmitCause,
        to: u64,
    ) -> FrameFeedback {
        let mut feedback = FrameFeedback::default();
        frames.on_retransmit(cause, to, &mut feedback);
        feedback
    }

    #[test]
    fn a_frame_is_drained_when_all_of_it_is_acknowledged() {
        let mut frames = FramesInFlight::default();
        frames.on_sent(7, 0, 10);
        frames.on_sent(9, 10, 20);
        let alive = FrameFeedback { is_alive: true, ..FrameFeedback::default() };
        assert_eq!(acknowledged(&mut frames, 9), alive);
        assert_eq!(acknowledged(&mut frames, 15), FrameFeedback { drained: Some(7), ..alive });
    }

    #[test]
    fn a_loss_that_the_peer_reports_shows_that_the_frame_is_not_in_its_ring() {
        for (cause, drained, is_alive, is_lost) in [
            (RetransmitCause::SequenceNak, Some(7), true, true),
            (RetransmitCause::RnrTimeout, Some(7), true, false),
            (RetransmitCause::AckTimeout, Some(7), false, true),
            (RetransmitCause::ProbeTimeout, None, false, false),
        ] {
            let mut frames = FramesInFlight::default();
            frames.on_sent(7, 0, 10);
            let feedback = retransmitted(&mut frames, cause, 0);
            assert_eq!(feedback, FrameFeedback { drained, is_alive, is_lost, is_part_lost: false });
        }
    }

    #[test]
    fn an_ack_after_a_probe_timeout_is_for_the_frames_sent_first() {
        let mut frames = FramesInFlight::default();
        frames.on_sent(7, 0, 10);
        frames.on_sent(8, 10, 20);
        retransmitted(&mut frames, RetransmitCause::ProbeTimeout, 0);
        frames.on_sent(30, 0, 4);
        assert_eq!(acknowledged(&mut frames, 10).drained, Some(7));
        assert_eq!(acknowledged(&mut frames, 20).drained, Some(30));
    }

    #[test]
    fn a_train_whose_first_packets_arrived_without_the_next_was_segmented() {
        for (missing, cause, is_part_lost) in [
            (0, RetransmitCause::SequenceNak, false),
            (3, RetransmitCause::SequenceNak, true),
            (3, RetransmitCause::AckTimeout, false),
            (3, RetransmitCause::ImpliedNak, false),
            (10, RetransmitCause::SequenceNak, false),
        ] {
            let mut frames = FramesInFlight::default();
            frames.on_sent(7, 0, 10);
            frames.on_sent(9, 10, 20);
            acknowledged(&mut frames, missing);
            let feedback = retransmitted(&mut frames, cause, missing);
            assert_eq!(feedback.is_part_lost, is_part_lost, "{missing}, {cause}");
        }
    }
}
