//! Check of the message sequence number (MSN), the responder's count of completed messages.

use crate::Finding;

/// Range of the responder's count. It begins at zero with the queue pair; if the capture began
/// later, the first responses bound it.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageCount {
    /// Number of captured messages that ended.
    seen: u32,
    /// Responder's count before these.
    before: Option<Span>,
}

/// A range of 24-bit numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u32,
    /// Further numbers after `first`.
    more: u32,
}

impl MessageCount {
    /// Starts at zero, for a new connection.
    pub(super) const fn begin(&mut self) {
        *self = Self { seen: 0, before: Some(Span { first: 0, more: 0 }) };
    }

    /// Counts a message that ended, or a READ or atomic request.
    pub(super) const fn add(&mut self) {
        self.seen = (self.seen + 1) & MASK;
    }

    /// Returns the number of messages without the last `last`, for [`check`](Self::check).
    pub(super) const fn seen_before(&self, last: u32) -> u32 {
        self.seen.wrapping_sub(last) & MASK
    }

    /// Checks the `msn` of a response. The responder had completed at least `least` of the
    /// captured messages.
    //= also rc-msn
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
            // Continue from this value.
            self.before = Some(told);
        }
    }
}

impl Span {
    const fn last(self) -> u32 {
        self.first.wrapping_add(self.more) & MASK
    }

    /// Returns the intersection.
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

/// Sign-extends 24 bits.
const fn signed(bits: u32) -> i32 {
    ((bits << 8) as i32) >> 8
}

const MASK: u32 = 0xff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    /// Findings of a sequence of responses: (messages since the last, MSN, minimum completed).
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
    fn the_count_of_a_new_connection_is_exact() {
        let mut count = MessageCount::default();
        count.begin();
        assert_eq!(found(&mut count, &[(1, 1, 1), (1, 2, 2), (3, 4, 3), (0, 5, 5)]), []);
        let wrong = Finding::MessageCount { msn: 7, first: 6, last: 6 };
        assert_eq!(found(&mut count, &[(1, 7, 6)]), [wrong]);
    }

    #[test]
    fn the_count_of_a_joined_connection_narrows_with_each_response_and_wraps() {
        let mut count = MessageCount::default();
        // Four messages, two with a response: two to four are complete.
        assert_eq!(found(&mut count, &[(4, 0xff_fffe, 2)]), []);
        // All four are complete, so the count was 0xff_fffb before.
        assert_eq!(found(&mut count, &[(0, 0xff_ffff, 4), (3, 2, 7)]), []);
        let wrong = Finding::MessageCount { msn: 2, first: 3, last: 3 };
        assert_eq!(found(&mut count, &[(1, 2, 8)]), [wrong]);
        assert_eq!(found(&mut count, &[(1, 3, 9)]), [], "reported once");
    }

    #[test]
    fn a_count_above_the_sent_or_below_the_completed_messages_is_wrong() {
        for (msn, is_right) in [(2, false), (3, true), (4, true), (5, true), (6, false)] {
            let mut count = MessageCount::default();
            count.begin();
            assert_eq!(found(&mut count, &[(5, msn, 3)]).is_empty(), is_right, "{msn}");
        }
    }
}
