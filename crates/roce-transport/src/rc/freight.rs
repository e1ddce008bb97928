//! Which frames of a queue pair are on their way, and what is known of them.

use std::collections::VecDeque;

use crate::GoBack;

/// The frames that carry a queue pair's requests, by the numbers that the peer's
/// [`Gate`](crate::gate::Gate) gave them.
#[derive(Debug, Default)]
pub(crate) struct Freight {
    /// Each frame's number and the first sequence number behind it, in the order of sending.
    frames: VecDeque<(u64, u64)>,
    /// Frames of answers that the train being written asks for.
    answers: u32,
    news: FreightNews,
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

    /// Frame `number` left, with everything up to sequence number `end`.
    pub(crate) fn on_sent(&mut self, number: u64, end: u64) {
        self.frames.push_back((number, end));
    }

    /// Everything before sequence number `to` is answered.
    pub(crate) fn on_answered(&mut self, to: u64) {
        self.news.is_heard = true;
        while let Some((number, _)) = self.frames.pop_front_if(|(_, end)| *end <= to) {
            self.news.gone = Some(number);
        }
    }

    /// A frame was lost.
    pub(crate) fn on_loss(&mut self) {
        self.news.is_lost = true;
    }

    /// Everything unanswered is sent again.
    pub(crate) fn on_back(&mut self, why: GoBack) {
        let is_told = !matches!(why, GoBack::Quiet | GoBack::Probe);
        // If the peer has seen what is behind the oldest packet, or has not answered it for so
        // long, then its frame is not in the peer's queue.
        if let Some((number, _)) = self.frames.front().filter(|_| is_told) {
            self.news.gone = Some(*number);
        }
        self.frames.clear();
        self.news.is_heard |= is_told && why != GoBack::Timeout;
        self.news.is_lost |= is_told && why != GoBack::RnrNak;
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
        freight.on_sent(7, 10);
        freight.on_sent(9, 20);
        // A part of it is a sign of life.
        freight.on_answered(9);
        let news = FreightNews { gone: None, is_heard: true, is_lost: false };
        assert_eq!(freight.take_news(), Some(news));
        freight.on_answered(15);
        let news = FreightNews { gone: Some(7), is_heard: true, is_lost: false };
        assert_eq!(freight.take_news(), Some(news));
        assert_eq!(freight.take_news(), None);
    }

    #[test]
    fn a_loss_that_the_peer_tells_of_shows_that_the_frame_is_not_in_its_queue() {
        for (why, gone, is_heard, is_lost) in [
            (GoBack::SequenceNak, Some(7), true, true),
            (GoBack::RnrNak, Some(7), true, false),
            (GoBack::Timeout, Some(7), false, true),
            (GoBack::Quiet, None, false, false),
        ] {
            let mut freight = Freight::default();
            freight.on_sent(7, 10);
            freight.on_back(why);
            let news = freight.take_news().unwrap_or_default();
            assert_eq!(news, FreightNews { gone, is_heard, is_lost });
        }
    }
}
