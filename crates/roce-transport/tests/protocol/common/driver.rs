//! What keeps a node's driver from its work.

use std::time::Duration;

use roce_transport::Instant;

use super::world::Node;

/// When a driver runs, and what its interface does with frames. By default it always runs, and its
/// interface sends everything.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Driver {
    /// It does not run before.
    pub(crate) stopped_until: Instant,
    /// It runs for the second span in each of the first.
    pub(crate) starved: Option<(Duration, Duration)>,
    /// Its interface takes no frames before.
    pub(crate) full_until: Instant,
    /// Its interface takes one frame although it is full.
    pub(crate) takes_one: bool,
    /// Its transmit queue is suspended before.
    pub(crate) suspended_until: Instant,
    /// Its interface loses all frames before.
    pub(crate) no_carrier_until: Instant,
    /// It holds ACKs back until then.
    pub(crate) holds_acks_until: Instant,
}

/// Later than anything that happens.
pub(crate) const FOR_EVER: Instant = Instant::from_nanos(u64::MAX);

impl Driver {
    /// Whether it runs now.
    pub(crate) fn runs(&self, now: Instant) -> bool {
        self.next_run(now) == now
    }

    /// When it runs next, now or later.
    fn next_run(&self, now: Instant) -> Instant {
        let now = now.max(self.stopped_until);
        let Some((period, run)) = self.starved else { return now };
        let period = period.as_nanos() as u64;
        let into = now.as_nanos() % period;
        if into < run.as_nanos() as u64 {
            return now;
        }
        Instant::from_nanos(now.as_nanos() - into + period)
    }

    /// Whether its interface takes frames.
    pub(crate) fn takes_frames(&self, now: Instant) -> bool {
        now >= self.full_until
    }

    /// Whether frames that its interface takes get anywhere.
    pub(crate) fn has_carrier(&self, now: Instant) -> bool {
        now >= self.no_carrier_until
    }

    /// How long it runs of the time between two instants.
    pub(crate) fn running_between(&self, from: Instant, to: Instant) -> Duration {
        let from = from.max(self.stopped_until);
        let Some((period, run)) = self.starved else { return to.saturating_since(from) };
        let (period, run) = (period.as_nanos() as u64, run.as_nanos() as u64);
        // What it has run since the beginning.
        let until = |at: Instant| at.as_nanos() / period * run + (at.as_nanos() % period).min(run);
        Duration::from_nanos(until(to).saturating_sub(until(from)))
    }

    /// When it has something to do, as far as the network does not tell.
    pub(crate) fn wakes_at(&self, now: Instant, node: &Node) -> Option<Instant> {
        let next = self.next_run(now);
        // Something may have arrived meanwhile.
        let later = |at: Instant| Some(at).filter(|at| *at > now && *at < FOR_EVER);
        let (has_room, releases) = (later(self.full_until), later(self.holds_acks_until));
        let (resumed, unsuspended) = (later(next), later(self.suspended_until));
        let timer = node.endpoint.poll_timeout().map(|at| self.next_run(at.max(now)));
        let all = [resumed, unsuspended, has_room, releases, timer];
        all.into_iter().flatten().filter(|at| *at < FOR_EVER).min()
    }
}
