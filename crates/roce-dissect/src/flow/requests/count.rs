//! The responder's count of messages, which its answers carry as the message sequence number.

use crate::Finding;

/// What is known of the count. It begins with zero where the queue pair does; where the capture
/// began later, the first answers tell, to within what was under way.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageCount {
    /// Messages that were seen to end.
    seen: u32,
    /// What the responder had counted before these.
    before: Option<Span>,
}

/// Numbers of 24 bits in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u32,
    /// How many more.
    more: u32,
}

impl MessageCount {
    /// Every message will be seen: the connection has just been made.
    pub(super) const fn begin(&mut self) {
        *self = Self { seen: 0, before: Some(Span { first: 0, more: 0 }) };
    }

    /// A message ended, or a READ or an atomic was asked for.
    pub(super) const fn add(&mut self) {
        self.seen = (self.seen + 1) & MASK;
    }

    /// Messages seen so far, but for the last few; for [`check`](Self::check).
    pub(super) const fn seen_before(&self, last: u32) -> u32 {
        self.seen.wrapping_sub(last) & MASK
    }

    /// An answer carries `msn`, and was sent when the responder had done with `least` at the least
    /// of the messages seen.
    pub(super) fn check(&mut self, msn: u32, least: u32, findings: &mut Vec<Finding>) {
        let told = Span {
            first: msn.wrapping_sub(self.seen) & MASK,
            more: self.seen.wrapping_sub(least) & MASK,
        };
        let Some(before) = self.before else {
            self.before = Some(told);
            return;
        };
        self.before = before.common(told);
        if self.before.is_none() {
            let first = before.first.wrapping_add(least) & MASK;
            let last = before.last().wrapping_add(self.seen) & MASK;
            findings.push(Finding::MessageCount { msn, first, last });
            // From here on by what this one says.
            self.before = Some(told);
        }
    }
}

impl Span {
    const fn last(self) -> u32 {
        self.first.wrapping_add(self.more) & MASK
    }

    /// What both hold.
    fn common(self, other: Self) -> Option<Self> {
        let behind = signed(other.first.wrapping_sub(self.first));
        let start = behind.max(0);
        let end = (self.more as i32).min(behind + other.more as i32);
        (start <= end).then(|| Self {
            first: self.first.wrapping_add(start as u32) & MASK,
            more: (end - start) as u32,
        })
    }
}

/// The lower 24 bits as a number from -2^23 on.
const fn signed(bits: u32) -> i32 {
    ((bits << 8) as i32) >> 8
}

const MASK: u32 = 0xff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages are seen to end and answers come: (more messages, MSN, how many are done).
    fn found(count: &mut MessageCount, course: &[(u32, u32, u32)]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for &(messages, msn, least) in course {
            for _ in 0..messages {
                count.add();
            }
            count.check(msn, least, &mut findings);
        }
        findings
    }

    #[test]
    fn a_count_that_begins_with_the_connection_is_known_at_once() {
        let mut count = MessageCount::default();
        count.begin();
        assert_eq!(found(&mut count, &[(1, 1, 1), (1, 2, 2), (3, 4, 3), (0, 5, 5)]), []);
        let wrong = Finding::MessageCount { msn: 7, first: 6, last: 6 };
        assert_eq!(found(&mut count, &[(1, 7, 6)]), [wrong]);
    }

    #[test]
    fn a_count_that_is_joined_is_learnt_and_narrowed_down_past_the_last_number() {
        let mut count = MessageCount::default();
        // Four under way, of which two are answered: two to four are done with.
        assert_eq!(found(&mut count, &[(4, 0xff_fffe, 2)]), []);
        // All four are: it was 0xff_fffb before.
        assert_eq!(found(&mut count, &[(0, 0xff_ffff, 4), (3, 2, 7)]), []);
        let wrong = Finding::MessageCount { msn: 2, first: 3, last: 3 };
        assert_eq!(found(&mut count, &[(1, 2, 8)]), [wrong]);
        assert_eq!(found(&mut count, &[(1, 3, 9)]), [], "it is said once");
    }

    #[test]
    fn more_than_was_sent_and_less_than_was_answered_are_both_wrong() {
        for (msn, is_right) in [(2, false), (3, true), (4, true), (5, true), (6, false)] {
            let mut count = MessageCount::default();
            count.begin();
            assert_eq!(found(&mut count, &[(5, msn, 3)]).is_empty(), is_right, "{msn}");
        }
    }
}
