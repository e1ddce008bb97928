//! Datagrams that may be for another agent: how many are passed on, and those that wait for their turn.

use std::collections::VecDeque;

use roce_wire::Instant;

use crate::addresses::DatagramAddresses;
use crate::limits::{MAX_STRAYS_AT_ONCE, MAX_STRAYS_HELD, STRAY_INTERVAL};
use crate::outputs::Bytes;

/// A datagram that no connection and no listener of an agent takes, and that may be for another agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrayDatagram {
    /// Addresses of this host and of the peer.
    pub addresses: DatagramAddresses,
    /// Payload.
    pub datagram: Bytes,
}

/// What becomes of a stray.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is passed on now.
    Now,
    /// [`Strays::next_due`] returns it.
    Later,
    /// Too many wait.
    Never,
}

/// Strays that wait, and the limit on those that are passed on to be answered: some at once, and one for each
/// [`STRAY_INTERVAL`].
///
/// For each of them the host looks for another process that takes it, and perhaps sends an answer. Without a
/// limit a flood would take the processor from the host's connections. A stray beyond the limit waits, since
/// the program that asks would repeat it seconds later if it were lost: one that asks again as soon as it is
/// refused exceeds the limit by itself.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    /// Time at which as many are admitted at once again as ever.
    recovered: Instant,
    /// At most [`MAX_STRAYS_HELD`].
    held: VecDeque<StrayDatagram>,
}

impl Strays {
    /// Returns true if something may be answered that does not wait.
    pub(crate) fn admits(&mut self, now: Instant) -> bool {
        if self.next_admission() > now {
            return false;
        }
        self.recovered = self.recovered.max(now) + STRAY_INTERVAL;
        true
    }

    /// Time from which another stray passes.
    fn next_admission(&self) -> Instant {
        self.recovered - STRAY_INTERVAL * (MAX_STRAYS_AT_ONCE - 1)
    }

    /// Decides about a stray, and keeps it if it has to wait. Those before it have their turn first.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        addresses: DatagramAddresses,
        datagram: &[u8],
    ) -> Turn {
        if self.held.is_empty() && self.admits(now) {
            return Turn::Now;
        }
        match datagram.try_into() {
            Ok(datagram) if self.held.len() < MAX_STRAYS_HELD => {
                self.held.push_back(StrayDatagram { addresses, datagram: Box::new(datagram) });
                Turn::Later
            }
            _ => Turn::Never,
        }
    }

    /// Returns the next one that has waited, if its turn has come.
    pub(crate) fn next_due(&mut self, now: Instant) -> Option<StrayDatagram> {
        if self.held.is_empty() || !self.admits(now) {
            return None;
        }
        self.held.pop_front()
    }

    /// Returns when the next one's turn comes.
    pub(crate) fn next_turn(&self) -> Option<Instant> {
        (!self.held.is_empty()).then(|| self.next_admission())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const AT_ONCE: usize = MAX_STRAYS_AT_ONCE as usize;

    fn take(strays: &mut Strays, now: Instant) -> Turn {
        let addresses =
            DatagramAddresses { local: [10, 0, 0, 1].into(), remote: [10, 0, 0, 2].into() };
        strays.take(now, addresses, &[0; 256])
    }

    fn admitted(strays: &mut Strays, now: Instant, count: usize) -> usize {
        (0..count).filter(|_| strays.admits(now)).count()
    }

    fn due(strays: &mut Strays, now: Instant) -> usize {
        std::iter::from_fn(|| strays.next_due(now)).count()
    }

    #[test]
    fn a_flood_passes_at_the_rate_of_the_limit() {
        let mut strays = Strays::default();
        // Ten seconds with 20 000 a second.
        let (mut passed, mut waited) = (0, 0);
        for tick in 0..10_000 {
            let now = Instant::START + Duration::from_millis(1000 + tick);
            waited += due(&mut strays, now);
            passed += (0..20).filter(|_| take(&mut strays, now) == Turn::Now).count();
        }
        assert_eq!(passed + waited, 10_000 + AT_ONCE - 1);
        assert!(passed < 2 * AT_ONCE, "{passed} did not wait behind others");
    }

    #[test]
    fn strays_below_the_limit_all_pass_and_a_pause_is_not_saved_up() {
        let mut strays = Strays::default();
        for tick in 0..5000 {
            assert!(strays.admits(Instant::START + Duration::from_millis(tick)), "at {tick} ms");
        }
        let much_later = Instant::START + Duration::from_secs(1000);
        assert_eq!(admitted(&mut strays, much_later, 3 * AT_ONCE), AT_ONCE);
        assert!(!strays.admits(much_later + STRAY_INTERVAL - Duration::from_nanos(1)));
        assert!(strays.admits(much_later + STRAY_INTERVAL));
        assert!(!strays.admits(much_later + STRAY_INTERVAL));
    }

    #[test]
    fn one_that_asks_again_as_soon_as_it_is_answered_waits_for_one_interval_at_most() {
        let mut strays = Strays::default();
        let mut now = Instant::START;
        for _ in 0..1000 {
            match take(&mut strays, now) {
                Turn::Now => assert_eq!(strays.next_turn(), None),
                Turn::Later => {
                    let turn = strays.next_turn().expect("one waits");
                    assert!(turn > now && turn - now <= STRAY_INTERVAL);
                    now = turn;
                    assert_eq!(due(&mut strays, now), 1);
                }
                Turn::Never => panic!("lost at {now:?}"),
            }
            now += Duration::from_micros(100);
        }
    }

    #[test]
    fn what_waits_is_bounded_and_has_its_turn_in_the_order_of_arrival() {
        let mut strays = Strays::default();
        let turns: Vec<_> = (0..3 * AT_ONCE).map(|_| take(&mut strays, Instant::START)).collect();
        let count = |turn| turns.iter().filter(|it| **it == turn).count();
        assert_eq!([Turn::Now, Turn::Later].map(count), [AT_ONCE, MAX_STRAYS_HELD]);
        // The limit has room for one, which is the first of those that wait.
        assert_eq!(take(&mut strays, Instant::START + STRAY_INTERVAL), Turn::Never);
        assert_eq!(due(&mut strays, Instant::START + STRAY_INTERVAL), 1);
        assert_eq!(take(&mut strays, Instant::START + STRAY_INTERVAL), Turn::Later);
        assert_eq!(due(&mut strays, Instant::START + Duration::from_secs(10)), MAX_STRAYS_HELD);
    }
}
