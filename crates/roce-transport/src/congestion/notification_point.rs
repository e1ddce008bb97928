//! The notification point: CNPs for marked packets.

use core::time::Duration;

use crate::Instant;

/// Decides which marked packets are answered by a CNP: at most one in each interval.
///
/// One value serves one queue pair. The first marked packet is answered at once.
///
/// ```
/// use roce_transport::Instant;
/// use roce_transport::congestion::NotificationPoint;
/// use std::time::Duration;
///
/// let interval = Duration::from_micros(50);
/// let mut point = NotificationPoint::default();
/// let now = Instant::from_nanos(0);
/// assert!(point.on_marked(now, interval));
/// assert!(!point.on_marked(now + Duration::from_micros(49), interval));
/// assert!(point.on_marked(now + interval, interval));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotificationPoint {
    /// Earliest time of the next CNP.
    next_at: Instant,
}

impl NotificationPoint {
    /// Notes a marked packet. Returns true if a CNP is to be sent now. `interval` is the shortest time
    /// between two (`np_min_time_between_cnps` of ConnectX cards).
    pub fn on_marked(&mut self, now: Instant, interval: Duration) -> bool {
        //= rule cc-cnp-interval: RoCEv2, clause not known
        //# Marked packets of a queue pair draw at most one CNP in each interval.
        let is_due = now >= self.next_at;
        if is_due {
            self.next_at = now + interval;
        }
        is_due
    }
}
