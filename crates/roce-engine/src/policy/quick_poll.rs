//! Quick polls: tests for work between two full rounds.

use std::time::Duration;

use roce_transport::Instant;

/// Most quick polls between two full rounds.
const MAX_QUICK_POLLS: u32 = 15;
/// Longest time from one poll to the next of a program that only polls.
const MAX_TIGHT_POLL: Duration = Duration::from_nanos(500);

/// The outcome of a quick poll.
#[derive(Clone, Copy, Debug)]
pub enum QuickPoll {
    /// A full round is due.
    FullRoundDue,
    /// There is no work.
    Idle,
    /// A round has work. The last time was read so recently that it serves for this round too.
    Ready {
        /// Time of the last round or post.
        last_now: Instant,
    },
}

/// Limits the consecutive polls that only test for work.
///
/// A full round reads the clock, fires timers and handles delayed ACKs, while a frame that arrives
/// waits. A program that polls in a tight loop loses nothing if every sixteenth poll is a full
/// round. A program that polls now and then gets a full round each time.
#[derive(Debug, Default)]
pub(crate) struct QuickPollBudget {
    left: u32,
    allowed: u32,
    last: Instant,
}

impl QuickPollBudget {
    /// Returns true if this poll may be a quick one, and counts it.
    #[inline]
    pub(crate) fn take(&mut self) -> bool {
        let may = self.left > 0;
        self.left -= u32::from(may);
        may
    }

    /// Notes a full round at `now`. A round that follows a quick poll has the time of an earlier
    /// round and allows no more of them, or the clock would not be read while frames keep coming.
    #[inline]
    pub(crate) fn on_round(&mut self, now: Instant) {
        if now == self.last {
            return;
        }
        let is_tight = now.saturating_since(self.last) < MAX_TIGHT_POLL * (self.allowed + 1);
        self.last = now;
        self.allowed = if is_tight { MAX_QUICK_POLLS } else { 0 };
        self.left = self.allowed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls with `pause` between two polls, and counts the full rounds.
    fn rounds(pause: Duration, polls: u32) -> u32 {
        let (mut quick_polls, mut now, mut rounds) =
            (QuickPollBudget::default(), Instant::default(), 0);
        for _ in 0..polls {
            now += pause;
            if !quick_polls.take() {
                quick_polls.on_round(now);
                rounds += 1;
            }
        }
        rounds
    }

    #[test]
    fn the_clock_is_read_again_however_many_quick_polls_find_work() {
        let mut quick_polls = QuickPollBudget::default();
        let now = Instant::from_nanos(1);
        quick_polls.on_round(now);
        let mut seen = 0;
        while quick_polls.take() {
            quick_polls.on_round(now);
            seen += 1;
            assert!(seen <= MAX_QUICK_POLLS);
        }
        assert_eq!(seen, MAX_QUICK_POLLS);
    }

    #[test]
    fn a_tight_loop_gets_a_full_round_with_every_sixteenth_poll() {
        let expected = 1600 / (MAX_QUICK_POLLS + 1);
        assert!(rounds(Duration::from_nanos(50), 1600).abs_diff(expected) <= 1);
    }

    #[test]
    fn a_program_that_polls_now_and_then_gets_a_full_round_each_time() {
        assert_eq!(rounds(Duration::from_micros(1), 1000), 1000);
    }

    #[test]
    fn a_program_that_becomes_slow_gets_only_the_quick_polls_it_has_left() {
        let (mut quick_polls, mut now) = (QuickPollBudget::default(), Instant::from_nanos(1));
        quick_polls.on_round(now);
        assert_eq!(quick_polls.left, MAX_QUICK_POLLS);
        let mut glanced = 0;
        for _ in 0..100 {
            now += Duration::from_millis(1);
            match quick_polls.take() {
                true => glanced += 1,
                false => quick_polls.on_round(now),
            }
        }
        assert_eq!(glanced, MAX_QUICK_POLLS);
    }
}
