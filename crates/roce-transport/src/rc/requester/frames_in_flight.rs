//! Which frames of a queue pair are on their way, and what is known of them.

use std::collections::VecDeque;

use crate::RetransmitCause;

/// The frames that carry a queue pair's requests, by the numbers that the peer's
/// [`Gate`](crate::gate::Gate) gave them.
#[derive(Debug, Default)]
pub(crate) struct FramesInFlight {
    /// In the order of sending.
    frames: VecDeque<Frame>,
    /// Frames of answers that the train being written asks for.
    response_frames: u32,
    feedback: FrameFeedback,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    number: u64,
    /// The first sequence number in it.
    start: u64,
    /// The first sequence number behind it.
    end: u64,
}

/// What the gate has to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameFeedback {
    /// The newest frame that is known to have left the peer's queue.
    pub(crate) drained: Option<u64>,
    /// The peer has said something.
    pub(crate) is_alive: bool,
    /// One was lost.
    pub(crate) is_lost: bool,
    /// The peer has the first packets of one, and not the next.
    pub(crate) is_part_lost: bool,
}

impl FramesInFlight {
    /// The train being written asks for `len` bytes.
    pub(crate) fn expect_response_frames(&mut self, len: u64) {
        self.response_frames += 1 + (len / RESPONSE_FRAME_LEN) as u32; // a READ asks for few at a time
    }

    /// Frames of answers that the train just written asks for.
    pub(crate) fn take_response_frames(&mut self) -> u32 {
        core::mem::take(&mut self.response_frames)
    }

    /// Frame `number` left, with the sequence numbers from `start` up to `end`.
    pub(crate) fn on_sent(&mut self, number: u64, start: u64, end: u64) {
        self.frames.push_back(Frame { number, start, end });
    }

    /// Everything before sequence number `to` is answered.
    pub(crate) fn on_acknowledged(&mut self, to: u64) {
        self.feedback.is_alive = true;
        while let Some(frame) = self.frames.pop_front_if(|frame| frame.end <= to) {
            self.feedback.drained = Some(frame.number);
        }
    }

    /// A frame was lost.
    pub(crate) fn on_loss(&mut self) {
        self.feedback.is_lost = true;
    }

    /// Everything unanswered is sent again, from sequence number `oldest` on.
    pub(crate) fn on_retransmit(&mut self, cause: RetransmitCause, unacked: u64) {
        let is_told = !matches!(cause, RetransmitCause::ProbeTimeout | RetransmitCause::TailProbe);
        // If the peer has seen what is behind the oldest packet, or has not answered it for so
        // long, then its frame is not in the peer's queue.
        if let Some(frame) = self.frames.front().filter(|_| is_told) {
            self.feedback.drained = Some(frame.number);
            self.feedback.is_part_lost |=
                cause == RetransmitCause::SequenceNak && frame.start < unacked;
        }
        // Of a whole frame that is missing the peer tells when it has taken the next one.
        if let Some(next) = self.frames.get(1).filter(|_| cause == RetransmitCause::SequenceNak) {
            self.feedback.drained = Some(next.number);
        }
        if is_told {
            self.frames.clear();
        }
        // Otherwise they may still be in the peer's queue, and what is answered next is them, rather
        // than what is sent again behind them.
        self.feedback.is_alive |= is_told && cause != RetransmitCause::AckTimeout;
        self.feedback.is_lost |= is_told && cause != RetransmitCause::RnrTimeout;
    }

    /// What the gate has not been told yet.
    pub(crate) fn take_feedback(&mut self) -> Option<FrameFeedback> {
        if self.feedback == FrameFeedback::default() {
            return None;
        }
        Some(core::mem::take(&mut self.feedback))
    }
}

/// Bytes of answers in a frame, about.
const RESPONSE_FRAME_LEN: u64 = 60 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_gone_when_all_of_it_is_answered() {
        let mut frames = FramesInFlight::default();
        frames.on_sent(7, 0, 10);
        frames.on_sent(9, 10, 20);
        // A part of it is a sign of life.
        frames.on_acknowledged(9);
        let heard = FrameFeedback { is_alive: true, ..FrameFeedback::default() };
        let feedback = heard;
        assert_eq!(frames.take_feedback(), Some(feedback));
        frames.on_acknowledged(15);
        let feedback = FrameFeedback { drained: Some(7), ..heard };
        assert_eq!(frames.take_feedback(), Some(feedback));
        assert_eq!(frames.take_feedback(), None);
    }

    #[test]
    fn a_loss_that_the_peer_tells_of_shows_that_the_frame_is_not_in_its_queue() {
        for (cause, drained, is_alive, is_lost) in [
            (RetransmitCause::SequenceNak, Some(7), true, true),
            (RetransmitCause::RnrTimeout, Some(7), true, false),
            (RetransmitCause::AckTimeout, Some(7), false, true),
            (RetransmitCause::ProbeTimeout, None, false, false),
        ] {
            let mut frames = FramesInFlight::default();
            frames.on_sent(7, 0, 10);
            frames.on_retransmit(cause, 0);
            let feedback = frames.take_feedback().unwrap_or_default();
            assert_eq!(feedback, FrameFeedback { drained, is_alive, is_lost, is_part_lost: false });
        }
    }

    #[test]
    fn an_answer_after_a_probe_timeout_is_that_to_the_frames_sent_first() {
        let mut frames = FramesInFlight::default();
        frames.on_sent(7, 0, 10);
        frames.on_sent(8, 10, 20);
        frames.on_retransmit(RetransmitCause::ProbeTimeout, 0);
        frames.on_sent(30, 0, 4);
        frames.on_acknowledged(10);
        assert_eq!(frames.take_feedback().unwrap().drained, Some(7));
        frames.on_acknowledged(20);
        assert_eq!(frames.take_feedback().unwrap().drained, Some(30));
    }

    #[test]
    fn a_train_whose_first_packets_arrived_without_the_next_was_cut() {
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
            frames.on_acknowledged(missing);
            frames.on_retransmit(cause, missing);
            let feedback = frames.take_feedback().unwrap_or_default();
            assert_eq!(feedback.is_part_lost, is_part_lost, "{missing}, {cause}");
        }
    }
}
