//! What becomes of frames that the kernel does not take.
//!
//! A full transmit queue is back-pressure: frames keep their slots, and are offered again after
//! pauses that double up to [`MAX_PAUSE`]. That ends when the kernel takes a frame, when the
//! interface has no carrier, or when the kernel has taken no frame for [`MAX_STALL`]. In the last
//! two cases refused frames are dropped at once until the kernel takes one.

use std::time::{Duration, Instant};

/// Time without any accepted frame after which frames are dropped.
///
/// A queue that drains, however slowly, takes a frame sooner: a train of 64 KiB needs 52 ms at
/// 10 Mbit/s, and the longest pause of Ethernet's flow control at 1 Gbit/s is 34 ms. The retries of
/// a connection with the default ACK timeout (67 ms, 7 retries) last five times as long, so a
/// longer stall costs retransmissions but no connection.
pub(crate) const MAX_STALL: Duration = Duration::from_millis(100);

/// The pause after the first refusal.
const MIN_PAUSE: Duration = Duration::from_micros(50);
/// The longest pause between two attempts: a transmit queue of 1000 frames needs longer to drain.
const MAX_PAUSE: Duration = Duration::from_millis(1);

/// The time since the kernel last took a frame, while it refuses them.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    refused: Option<Refused>,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    /// When frames are dropped if the kernel takes none.
    gives_up_at: Instant,
    next_attempt: Instant,
    pause: Duration,
}

/// What to do with refused frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// They keep their slots.
    Keep,
    /// They are dropped: the interface has no carrier.
    DropWithoutCarrier,
    /// They are dropped: the kernel has taken none for [`MAX_STALL`].
    DropStalled,
}

impl Stall {
    /// Notes that the kernel took a frame.
    pub(crate) fn on_taken(&mut self) {
        self.refused = None;
    }

    /// Notes that the kernel refused a frame because a queue is full.
    pub(crate) fn on_refused(&mut self, now: Instant, has_carrier: bool) -> Verdict {
        let before = self.refused.unwrap_or(Refused {
            gives_up_at: now + MAX_STALL,
            next_attempt: now,
            pause: MIN_PAUSE / 2,
        });
        if !has_carrier {
            // If the carrier returns, a full queue is back-pressure again.
            self.refused = None;
            return Verdict::DropWithoutCarrier;
        }
        let pause = (2 * before.pause).min(MAX_PAUSE);
        self.refused = Some(Refused { pause, next_attempt: now + pause, ..before });
        if now < before.gives_up_at { Verdict::Keep } else { Verdict::DropStalled }
    }

    /// Returns when to offer kept frames again.
    pub(crate) fn next_attempt(&self) -> Option<Instant> {
        self.refused.map(|refused| refused.next_attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    /// Offers a frame whenever it is due, until `end` or until it is dropped; returns the verdict
    /// and the number of attempts.
    fn offer_until(stall: &mut Stall, start: Instant, end: Instant) -> (Verdict, u32) {
        let (mut now, mut attempts) = (start, 0);
        loop {
            attempts += 1;
            let verdict = stall.on_refused(now, true);
            now = stall.next_attempt().unwrap();
            if verdict != Verdict::Keep || now >= end {
                return (verdict, attempts);
            }
        }
    }

    #[test]
    fn frames_are_dropped_once_the_kernel_has_taken_none_for_the_bound_and_not_before() {
        let (start, mut stall) = (Instant::now(), Stall::default());
        let (verdict, _) = offer_until(&mut stall, start, start + MAX_STALL);
        assert_eq!(verdict, Verdict::Keep);
        let (verdict, attempts) = offer_until(&mut stall, start + MAX_STALL, start + 2 * MAX_STALL);
        assert_eq!((verdict, attempts), (Verdict::DropStalled, 1));
        // Later frames are dropped at once.
        let later = start + 10 * MAX_STALL;
        assert_eq!(stall.on_refused(later, true), Verdict::DropStalled);
        stall.on_taken();
        assert_eq!(stall.on_refused(later, true), Verdict::Keep);
    }

    #[test]
    fn a_queue_that_drains_slowly_never_loses_a_frame() {
        let (mut now, mut stall) = (Instant::now(), Stall::default());
        for _ in 0..1000 {
            let end = now + MAX_STALL - MILLI;
            assert_eq!(offer_until(&mut stall, now, end).0, Verdict::Keep);
            stall.on_taken();
            now = end;
        }
    }

    #[test]
    fn attempts_at_a_stalled_queue_back_off() {
        let (start, mut stall) = (Instant::now(), Stall::default());
        let (_, attempts) = offer_until(&mut stall, start, start + 2 * MAX_STALL);
        assert!((90..=110).contains(&attempts), "{attempts} attempts in {MAX_STALL:?}");
        // The first retry comes soon.
        let mut stall = Stall::default();
        stall.on_refused(start, true);
        assert_eq!(stall.next_attempt(), Some(start + MIN_PAUSE));
    }

    #[test]
    fn without_a_carrier_frames_are_dropped_at_once() {
        let (now, mut stall) = (Instant::now(), Stall::default());
        assert_eq!(stall.on_refused(now, false), Verdict::DropWithoutCarrier);
        assert_eq!(stall.next_attempt(), None);
        // The carrier goes while frames wait.
        assert_eq!(stall.on_refused(now, true), Verdict::Keep);
        assert_eq!(stall.on_refused(now + MILLI, false), Verdict::DropWithoutCarrier);
        // A carrier that comes back meets an empty queue, which may fill anew.
        let late = now + 2 * MAX_STALL;
        assert_eq!(stall.on_refused(late, true), Verdict::Keep);
    }
}
