//! Polls that are but a glance.

use std::time::Duration;

use roce_transport::Instant;

/// Glances between two whole rounds.
const MAX_QUICK_POLLS: u32 = 15;
/// The longest that a poll takes, with what is done between two, of a program that does nothing
/// else.
const MAX_TIGHT_POLL: Duration = Duration::from_nanos(500);

/// The outcome of a quick poll.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QuickPoll {
    /// A full round is due.
    FullRoundDue,
    /// There is no work.
    Idle,
    /// A round has work. `last_now` was read so recently that it serves for this round too.
    Ready { last_now: Instant },
}

/// How many polls in a row may be but a glance: is there a frame?
///
/// A whole round reads the clock, fires timers, and looks after acknowledgements that are held: a
/// frame that arrives meanwhile waits. A program
/// that polls in a tight loop loses nothing if that is done with every sixteenth poll. One that
/// polls now and then gets a whole round each time.
#[derive(Debug, Default)]
pub(crate) struct QuickPollBudget {
    left: u32,
    allowed: u32,
    last: Instant,
}

impl QuickPollBudget {
    /// Whether this poll may be one.
    pub(crate) fn take(&mut self) -> bool {
        let may = self.left > 0;
        self.left -= u32::from(may);
        may
    }

    /// A whole round begins at `now`. One that follows a glance has the time of an earlier round:
    /// it allows no more glances, or nobody would read the clock while frames keep coming.
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

    /// Polls with so long between two, and counts the whole rounds.
    fn rounds(pause: Duration, polls: u32) -> u32 {
        let (mut quick_polls, mut now, mut rounds) =
            (QuickPollBudget::default(), Instant::default(), 0);
        for _ in 0..polls {
            now = now + pause;
            if !quick_polls.take() {
                quick_polls.on_round(now);
                rounds += 1;
            }
        }
        rounds
    }

    #[test]
    fn however_many_glances_find_something_the_clock_is_read_again() {
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
    fn a_tight_loop_gets_a_whole_round_with_every_sixteenth_poll() {
        let expected = 1600 / (MAX_QUICK_POLLS + 1);
        assert!(rounds(Duration::from_nanos(50), 1600).abs_diff(expected) <= 1);
    }

    #[test]
    fn who_polls_now_and_then_gets_a_whole_round_each_time() {
        assert_eq!(rounds(Duration::from_micros(1), 1000), 1000);
    }

    #[test]
    fn who_becomes_slow_has_no_more_than_one_run_of_glances() {
        let (mut quick_polls, mut now) = (QuickPollBudget::default(), Instant::from_nanos(1));
        quick_polls.on_round(now);
        assert_eq!(quick_polls.left, MAX_QUICK_POLLS);
        let mut glanced = 0;
        for _ in 0..100 {
            now = now + Duration::from_millis(1);
            match quick_polls.take() {
                true => glanced += 1,
                false => quick_polls.on_round(now),
            }
        }
        assert_eq!(glanced, MAX_QUICK_POLLS);
    }
}
