//! Which frames of a queue pair are on their way, and what is known of them.

use std::collections::VecDeque;

use crate::RetransmitCause;

/// The frames that carry a queue pair's requests, by the numbers that the peer's
/// [`Gate`](crate::gate::Gate) gave them.
#[derive(Debug, Default)]
pub(crate) struct Freight {
    /// In the order of sending.
    frames: VecDeque<Frame>,
    /// Frames of answers that the train being written asks for.
    answers: u32,
    news: FreightNews,
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
pub(crate) struct FreightNews {
    /// The newest frame that is known to have left the peer's queue.
    pub(crate) gone: Option<u64>,
    /// The peer has said something.
    pub(crate) is_heard: bool,
    /// One was lost.
    pub(crate) is_lost: bool,
    /// The peer has the first packets of one, and not the next.
    pub(crate) is_part_lost: bool,
}

impl Freight {
    /// The train being written asks for `len` bytes.
    pub(crate) fn expect(&mut self, len: u64) {
        self.answers += 1 + (len / ANSWER_FRAME) as u32; // a READ asks for few at a time
    }

    /// Frames of answers that the train just written asks for.
    pub(crate) fn take_answers(&mut self) -> u32 {
        core::mem::take(&mut self.answers)
    }

    /// Frame `number` left, with the sequence numbers from `start` up to `end`.
    pub(crate) fn on_sent(&mut self, number: u64, start: u64, end: u64) {
        self.frames.push_back(Frame { number, start, end });
    }

    /// Everything before sequence number `to` is answered.
    pub(crate) fn on_answered(&mut self, to: u64) {
        self.news.is_heard = true;
        while let Some(frame) = self.frames.pop_front_if(|frame| frame.end <= to) {
            self.news.gone = Some(frame.number);
        }
    }

    /// A frame was lost.
    pub(crate) fn on_loss(&mut self) {
        self.news.is_lost = true;
    }

    /// Everything unanswered is sent again, from sequence number `oldest` on.
    pub(crate) fn on_back(&mut self, why: RetransmitCause, oldest: u64) {
        let is_told = !matches!(why, RetransmitCause::ProbeTimeout | RetransmitCause::TailProbe);
        // If the peer has seen what is behind the oldest packet, or has not answered it for so
        // long, then its frame is not in the peer's queue.
        if let Some(frame) = self.frames.front().filter(|_| is_told) {
            self.news.gone = Some(frame.number);
            self.news.is_part_lost |= why == RetransmitCause::SequenceNak && frame.start < oldest;
        }
        // Of a whole frame that is missing the peer tells when it has taken the next one.
        if let Some(next) = self.frames.get(1).filter(|_| why == RetransmitCause::SequenceNak) {
            self.news.gone = Some(next.number);
        }
        if is_told {
            self.frames.clear();
        }
        // Otherwise they may still be in the peer's queue, and what is answered next is them, rather
        // than what is sent again behind them.
        self.news.is_heard |= is_told && why != RetransmitCause::AckTimeout;
        self.news.is_lost |= is_told && why != RetransmitCause::RnrTimeout;
    }

    /// What the gate has not been told yet.
    pub(crate) fn take_news(&mut self) -> Option<FreightNews> {
        if self.news == FreightNews::default() {
            return None;
        }
        Some(core::mem::take(&mut self.news))
    }
}

/// Bytes of answers in a frame, about.
const ANSWER_FRAME: u64 = 60 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_gone_when_all_of_it_is_answered() {
        let mut freight = Freight::default();
        freight.on_sent(7, 0, 10);
        freight.on_sent(9, 10, 20);
        // A part of it is a sign of life.
        freight.on_answered(9);
        let heard = FreightNews { is_heard: true, ..FreightNews::default() };
        let news = heard;
        assert_eq!(freight.take_news(), Some(news));
        freight.on_answered(15);
        let news = FreightNews { gone: Some(7), ..heard };
        assert_eq!(freight.take_news(), Some(news));
        assert_eq!(freight.take_news(), None);
    }

    #[test]
    fn a_loss_that_the_peer_tells_of_shows_that_the_frame_is_not_in_its_queue() {
        for (why, gone, is_heard, is_lost) in [
            (RetransmitCause::SequenceNak, Some(7), true, true),
            (RetransmitCause::RnrTimeout, Some(7), true, false),
            (RetransmitCause::AckTimeout, Some(7), false, true),
            (RetransmitCause::ProbeTimeout, None, false, false),
        ] {
            let mut freight = Freight::default();
            freight.on_sent(7, 0, 10);
            freight.on_back(why, 0);
            let news = freight.take_news().unwrap_or_default();
            assert_eq!(news, FreightNews { gone, is_heard, is_lost, is_part_lost: false });
        }
    }

    #[test]
    fn an_answer_after_a_probe_timeout_is_that_to_the_frames_sent_first() {
        let mut freight = Freight::default();
        freight.on_sent(7, 0, 10);
        freight.on_sent(8, 10, 20);
        freight.on_back(RetransmitCause::ProbeTimeout, 0);
        freight.on_sent(30, 0, 4);
        freight.on_answered(10);
        assert_eq!(freight.take_news().unwrap().gone, Some(7));
        freight.on_answered(20);
        assert_eq!(freight.take_news().unwrap().gone, Some(30));
    }

    #[test]
    fn a_train_whose_first_packets_arrived_without_the_next_was_cut() {
        for (missing, why, is_part_lost) in [
            (0, RetransmitCause::SequenceNak, false),
            (3, RetransmitCause::SequenceNak, true),
            (3, RetransmitCause::AckTimeout, false),
            (3, RetransmitCause::ImpliedNak, false),
            (10, RetransmitCause::SequenceNak, false),
        ] {
            let mut freight = Freight::default();
            freight.on_sent(7, 0, 10);
            freight.on_sent(9, 10, 20);
            freight.on_answered(missing);
            freight.on_back(why, missing);
            let news = freight.take_news().unwrap_or_default();
            assert_eq!(news.is_part_lost, is_part_lost, "{missing}, {why}");
        }
    }
}
