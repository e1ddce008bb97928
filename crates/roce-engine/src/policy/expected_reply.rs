//! Guesses whether the program replies to a message that the driver thread has received.

/// Consecutive replies, at first, after which another is expected.
const MIN_REQUIRED_REPLIES: u32 = 4;
/// Most such replies: an omission delays one ACK by 50 µs, and on a busy machine a reply is late now
/// and then.
const MAX_REQUIRED_REPLIES: u32 = 64;

/// Counts the messages that the program has answered by a post.
///
/// A program that waits for a message by reading its memory, as `ib_write_lat` does, calls nothing
/// meanwhile, so the driver thread receives the message. If the program has answered the last ones,
/// the ACK waits for the reply and leaves behind it: a peer that waits for both in turn finds the
/// reply when its request completes, and polls for both alike. If the ACK left first, each end would
/// read its memory while the reply is under way, and every message would wait for a driver thread.
#[derive(Debug)]
pub(super) struct ExpectedReply {
    /// A message has come that the program has not answered.
    is_open: bool,
    /// Consecutive messages that were answered.
    replies: u32,
    /// Replies after which another is expected.
    required: u32,
}

impl Default for ExpectedReply {
    fn default() -> Self {
        Self { is_open: false, replies: 0, required: MIN_REQUIRED_REPLIES }
    }
}

impl ExpectedReply {
    /// Returns true if the program is expected to answer the next message.
    #[inline]
    pub(super) fn is_expected(&self) -> bool {
        !self.is_open && self.replies >= self.required
    }

    /// Notes a message. Returns true if the program is expected to answer it.
    pub(super) fn on_arrival(&mut self) -> bool {
        let is_expected = self.is_expected();
        if std::mem::replace(&mut self.is_open, true) {
            self.replies = 0;
        }
        is_expected
    }

    /// Notes a post.
    #[inline]
    pub(super) fn on_send(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.replies = self.replies.saturating_add(1);
            if self.replies / 64 >= self.required {
                // So many replies make up for an earlier omission.
                self.required = (self.required / 2).max(MIN_REQUIRED_REPLIES);
                self.replies = self.required;
            }
        }
    }

    /// Notes that an expected reply did not come in time.
    pub(super) fn on_omission(&mut self) {
        self.is_open = false;
        self.replies = 0;
        self.required = (2 * self.required).min(MAX_REQUIRED_REPLIES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_answers_is_expected_to_answer_again_until_it_omits_one() {
        let mut expected = ExpectedReply::default();
        for _ in 0..MIN_REQUIRED_REPLIES {
            assert!(!expected.on_arrival());
            expected.on_send();
        }
        assert!(expected.on_arrival());
        assert!(!expected.on_arrival(), "the last one is not answered");
        expected.on_send();
        assert!(!expected.on_arrival());
    }

    #[test]
    fn a_program_that_only_receives_is_never_expected_to_answer() {
        let mut expected = ExpectedReply::default();
        assert!((0..1000).all(|_| !expected.on_arrival()));
    }

    #[test]
    fn each_omission_doubles_the_replies_that_are_required() {
        let mut expected = ExpectedReply::default();
        let mut until_expected = || {
            let mut count = 0;
            while !expected.on_arrival() {
                expected.on_send();
                count += 1;
            }
            expected.on_omission();
            count
        };
        let counts: Vec<u32> = (0..4).map(|_| until_expected()).collect();
        assert_eq!(counts, [4, 8, 16, 32]);
    }
}
