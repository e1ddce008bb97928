//! What keeps a host's driver from its work.

use std::time::Duration;

use roce_fabric::Instant;
use roce_transport::{PacketSealer, PathHandle, TransmitQueue};
use roce_wire::{PayloadCrc, Qpn};

/// When a host's driver runs, and what its interface does with frames. By default it always runs, and
/// its interface sends everything.
///
/// ```
/// use std::time::Duration;
/// use roce_simnet::{Driver, World, WorldConfig};
///
/// let mut world = World::new(&["alice", "bob"], WorldConfig::default());
/// world.hosts[0].driver.stopped_until = world.now() + Duration::from_millis(5);
/// world.hosts[1].driver.full_until = Driver::FOR_EVER;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// It does not run before.
    pub stopped_until: Instant,
    /// It runs for the second span in each of the first.
    pub starved: Option<(Duration, Duration)>,
    /// Its interface takes no frames before.
    pub full_until: Instant,
    /// Its interface takes one train although it is full.
    pub takes_one: bool,
    /// Its transmit queue, [`QUEUE`](Self::QUEUE), is suspended before.
    pub suspended_until: Instant,
    /// Its interface loses all frames before.
    pub no_carrier_until: Instant,
    /// It delays ACKs until then.
    pub holds_acks_until: Instant,
}

impl Driver {
    /// A time that never comes.
    pub const FOR_EVER: Instant = Instant::from_nanos(u64::MAX);
    /// The transmit queue that all packets of a host leave through.
    pub const QUEUE: TransmitQueue = TransmitQueue(0);

    /// Returns how long it runs of the time between two instants.
    pub fn running_between(&self, from: Instant, to: Instant) -> Duration {
        let from = from.max(self.stopped_until);
        let Some((period, run)) = self.starved else { return to.saturating_since(from) };
        let (period, run) = (period.as_nanos() as u64, run.as_nanos() as u64);
        // The time that it has run since the beginning.
        let until = |at: Instant| at.as_nanos() / period * run + (at.as_nanos() % period).min(run);
        Duration::from_nanos(until(to).saturating_sub(until(from)))
    }

    /// Returns true if it runs now.
    pub(crate) fn runs(&self, now: Instant) -> bool {
        self.next_run(now) == now
    }

    /// Returns when it runs next, now or later.
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

    /// Returns when it has something to do, with this timer of the engine, as far as the network does
    /// not tell.
    pub(crate) fn wakes_at(&self, now: Instant, timer: Option<Instant>) -> Option<Instant> {
        // Something may have arrived while it did not run.
        let states =
            [self.next_run(now), self.suspended_until, self.full_until, self.holds_acks_until];
        let later = states.into_iter().filter(|at| *at > now);
        let timer = timer.map(|at| self.next_run(at.max(now)));
        later.chain(timer).filter(|at| *at < Self::FOR_EVER).min()
    }
}

/// Leaves packets as they are, and tells their transmit queue.
pub(crate) struct OneQueue;

impl PacketSealer for OneQueue {
    fn begin(&mut self, _: Qpn, _: Qpn, _: PathHandle) {}

    fn seal(&mut self, _: &mut [u8], _: Option<PayloadCrc>) {}

    fn transmit_queue(&self, _: Qpn, _: PathHandle, _: Option<u8>) -> Option<TransmitQueue> {
        Some(Driver::QUEUE)
    }
}
