//! The packet path of one device: receives frames, drives the endpoint, sends frames.
//!
//! The caller runs rounds. A round is bounded, so that no thread holds the owner's lock for long:
//!
//! 1. receive at most `RECEIVE_BUDGET` frames; every packet of every frame is parsed, its ICRC
//!    checked, and passed to the endpoint (`receive.rs`);
//! 2. fire timers; the agent of connection management takes the datagrams of the batch (`management.rs`);
//! 3. send the packets of the endpoint, among them one ACK of the whole batch for each queue pair
//!    (`transmit.rs`);
//! 4. deliver completions and events.

mod delivery;
mod devices;
mod drops;
mod frame_sealer;
mod induced_faults;
mod link_pauses;
mod management;
mod management_calls;
mod posting;
mod receive;
mod round_outcome;
mod source_ports;
mod tables;
mod transmit;
mod transmit_batch;
mod transmit_queues;

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use roce_io::FrameDevice;
use roce_transport::{Endpoint, Instant};
use roce_wire::Qpn;

use self::delivery::Delivery;
use self::devices::Devices;
use self::drops::Drops;
use self::frame_sealer::Framing;
use self::induced_faults::raise;
use self::management::{Management, ManagementParts};
pub use self::management::{ManagementDestination, ManagementPort};
pub use self::posting::{Departure, Posted};
pub use self::round_outcome::RoundOutcome;
use self::tables::Tables;
use crate::consumer::{CallFault, Consumer};
use crate::gid_table::GidTable;
use crate::memory_table::MemoryTable;
use crate::own_numbers::OwnNumbers;
use crate::path_table::PathTable;
use crate::policy::{Arrivals, Cause, DoorbellCoalescing, Holds, RoundPolicy};

/// The engine of a device.
pub struct Engine<C: Consumer> {
    /// The queue pairs.
    endpoint: Endpoint<C::Observer>,
    tables: Tables<C::Region>,
    devices: Devices,
    framing: Framing,
    policy: RoundPolicy,
    delivery: Delivery<C>,
    drops: Drops,
    /// Connection management, once the owner wants it.
    management: Option<Box<Management>>,
    /// Time of the last round or post.
    last_now: Instant,
}

/// What an engine is made of.
pub struct EngineParts<C: Consumer> {
    /// The queue pairs: none as yet.
    pub endpoint: Endpoint<C::Observer>,
    /// The interface.
    pub wire: Box<dyn FrameDevice>,
    /// `lo`, for other processes of this host; `None` where it cannot be opened.
    pub lo: Option<Box<dyn FrameDevice>>,
    /// What frames from this engine to itself pass, where packets are recorded or meet faults. Else
    /// `None`, and they go straight from their queue to the endpoint.
    pub loopback: Option<Box<dyn FrameDevice>>,
    /// The addresses of the interface.
    pub gids: GidTable,
    /// What completions and events go to.
    pub consumer: C,
    /// UDP source ports of the frames that its devices can send; empty: they can send all.
    pub source_ports: Vec<u16>,
}

impl<C: Consumer> Engine<C> {
    /// Returns the queue pairs.
    #[inline]
    pub fn endpoint(&self) -> &Endpoint<C::Observer> {
        &self.endpoint
    }

    /// As [`endpoint`](Self::endpoint), to change. A round must follow whatever makes them send.
    #[inline]
    pub fn endpoint_mut(&mut self) -> &mut Endpoint<C::Observer> {
        &mut self.endpoint
    }

    /// Returns registered memory.
    pub fn memory(&self) -> &MemoryTable<C::Region> {
        &self.tables.memory
    }

    /// As [`memory`](Self::memory), to change.
    pub fn memory_mut(&mut self) -> &mut MemoryTable<C::Region> {
        &mut self.tables.memory
    }

    /// Returns the paths to peers.
    pub fn paths(&self) -> &PathTable {
        &self.tables.paths
    }

    /// As [`paths`](Self::paths), to change.
    pub fn paths_mut(&mut self) -> &mut PathTable {
        &mut self.tables.paths
    }

    /// Returns the addresses of the device.
    pub fn gids(&self) -> &GidTable {
        &self.tables.gids
    }

    /// As [`gids`](Self::gids), to change.
    pub fn gids_mut(&mut self) -> &mut GidTable {
        &mut self.tables.gids
    }

    /// Returns what completions and events go to.
    pub fn consumer(&self) -> &C {
        &self.delivery.consumer
    }

    /// As [`consumer`](Self::consumer), to change.
    pub fn consumer_mut(&mut self) -> &mut C {
        &mut self.delivery.consumer
    }

    /// Returns all counters by name: those of the transport, of drops outside it, and of the
    /// interface and `lo` together.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all: Vec<_> = self.endpoint.counters().iter().collect();
        all.push(("coalesced_doorbells", self.policy.doorbells.coalesced()));
        all.extend(self.devices.pauses.counters());
        all.extend(self.management.iter().flat_map(|it| it.agent.counters().iter()));
        all.extend(self.drops.iter());
        let first_of_devices = all.len();
        for device in self.devices.iter() {
            for (name, count) in device.counters() {
                // The devices count the same.
                match all[first_of_devices..].iter_mut().find(|(known, _)| *known == name) {
                    Some((_, total)) => *total += count,
                    None => all.push((name, count)),
                }
            }
        }
        all
    }

    /// Lets a call meet a fault. Its events have their consequences, see [`Endpoint::raise`], and are delivered
    /// with the next completions.
    ///
    /// # Errors
    /// The failure of the call.
    #[cold]
    pub fn meet_fault<E>(&mut self, now: Instant, fault: CallFault<E>) -> Result<(), E> {
        raise(&mut self.endpoint, &mut self.drops, now, fault.events);
        let Some((failure, counter)) = fault.failure else { return Ok(()) };
        self.drops.count(counter);
        Err(failure)
    }

    /// Removes a queue pair: see [`Endpoint::destroy_qp`]. Windows that it has bound are bound no more, and the
    /// paths of its datagrams lose a user.
    pub fn destroy_qp(&mut self, queue_pair: Qpn) {
        self.endpoint.destroy_qp(queue_pair);
        self.tables.forget(queue_pair);
    }

    /// Counts a call of the program, or a fault of one, under a name among the counters.
    pub fn count_call(&mut self, counter: &'static str) {
        self.drops.count(counter);
    }

    /// Records the packets that faults hold back, before the devices are closed.
    pub fn abandon_held(&mut self) {
        self.devices.iter_mut().for_each(|device| device.abandon_held());
    }

    /// Makes an engine without memory and paths.
    pub fn new(parts: EngineParts<C>) -> Self {
        let EngineParts { endpoint, wire, lo, loopback, gids, consumer, source_ports } = parts;
        Self {
            endpoint,
            tables: Tables::new(gids),
            devices: Devices::new(wire, lo, loopback),
            framing: Framing::new(source_ports),
            policy: RoundPolicy::default(),
            delivery: Delivery::new(consumer),
            drops: Drops::default(),
            management: None,
            last_now: Instant::default(),
        }
    }

    /// Sets the rate of the link in bits per second, from which the durations of pauses follow; `None`
    /// ignores pauses.
    pub fn set_link_rate(&mut self, bits_per_sec: Option<u64>) {
        self.devices.pauses.set_rate(bits_per_sec);
    }

    /// Returns when a pause of the link ends, if there is one.
    pub fn pause_end(&self) -> Option<Instant> {
        self.devices.pauses.next_end()
    }

    /// Runs one bounded round, as the module's documentation describes. `poller` is the completion queue
    /// that is polled, if one is.
    #[inline]
    pub fn run(&mut self, now: Instant, cause: Cause, poller: Option<&C::Queue>) -> RoundOutcome {
        if self.policy.begin(now, cause, || self.delivery.consumer.may_mistake_reports()) {
            self.endpoint.delay_acks(false);
        }
        if !cause.receives() {
            self.set_now(now);
            let is_holding = self.policy.doorbells.is_holding();
            let outcome = self.transmit_and_deliver(now, cause, 0, poller);
            if cause == Cause::Flush && is_holding && self.is_unfinished() {
                // Held posts of many queue pairs are more frames than one round sends.
                self.transmit_and_deliver(now, cause, 0, poller);
            }
            return outcome;
        }
        let due = self.endpoint.acks_scheduled();
        let reported = self.endpoint.counters().rdma_recvs;
        let received = self.receive_batch(now);
        let arrivals = Arrivals {
            frames: received,
            messages: self.endpoint.acks_scheduled().wrapping_sub(due) as usize,
            are_silent: self.endpoint.counters().rdma_recvs == reported,
            queue_pair: self.endpoint.latest_queue_pair(),
            poller_may_sleep: poller.is_some_and(C::has_channel),
        };
        match self.policy.decide(now, cause, arrivals) {
            Holds::AsBefore => {}
            Holds::Nothing => self.endpoint.delay_acks(false),
            Holds::Acks => self.endpoint.delay_acks(true),
            Holds::All => {
                self.endpoint.delay_acks(true);
                self.publish_counters();
                return RoundOutcome { received, ..self.deliver_to_poller(poller, now, cause) };
            }
        }
        self.transmit_and_deliver(now, cause, received, poller)
    }

    /// Notes that the application posts to the send queue of `queue_pair`, perhaps as a reply to the
    /// peer.
    pub fn on_send(&mut self, queue_pair: Qpn) {
        self.policy.on_send(queue_pair);
    }

    /// Returns which posted requests wait for the next one.
    #[inline]
    pub fn doorbells(&self) -> &DoorbellCoalescing {
        &self.policy.doorbells
    }

    /// Returns the time of the last round or post.
    pub fn last_now(&self) -> Instant {
        self.last_now
    }

    /// Sets the time of the next step. It is read under the engine's lock, so it never goes backwards.
    pub fn set_now(&mut self, now: Instant) {
        debug_assert!(now >= self.last_now, "time went back from {:?} to {now:?}", self.last_now);
        self.last_now = now;
    }

    /// Returns the time at which delayed ACKs or a held completion are due, if there are any.
    pub fn held_due(&self) -> Option<Instant> {
        let acks = self.policy.acks_due(self.last_now);
        acks.into_iter().chain(self.completion_due()).min()
    }

    /// Returns the time at which a held completion is due, if there is one: the next poll from then on
    /// returns it.
    pub fn completion_due(&self) -> Option<Instant> {
        self.policy.silent_reply.due()
    }

    fn transmit_and_deliver(
        &mut self,
        now: Instant,
        cause: Cause,
        received: usize,
        poller: Option<&C::Queue>,
    ) -> RoundOutcome {
        self.policy.doorbells.on_transmit();
        let has_work = self.endpoint.has_pending_transmit() || self.devices.has_backlog();
        let sent = if has_work { self.transmit(now) } else { 0 };
        if received + sent > 0 {
            self.publish_counters();
        }
        RoundOutcome { received, sent, ..self.deliver_to_poller(poller, now, cause) }
    }

    /// Publishes the counters, where every round does: before completions are delivered, after which
    /// the process may end.
    fn publish_counters(&self) {
        self.delivery.consumer.publish_counters(|| self.counters());
    }

    /// Delivers completions and events to their queues.
    pub fn deliver(&mut self, now: Instant) {
        self.deliver_to_poller(None, now, Cause::Call);
    }

    fn deliver_to_poller(
        &mut self,
        poller: Option<&C::Queue>,
        now: Instant,
        cause: Cause,
    ) -> RoundOutcome {
        let Self { delivery, endpoint, policy, drops, .. } = self;
        delivery.deliver(endpoint, &mut policy.silent_reply, drops, poller, now, cause)
    }

    /// Returns connection management, if there is any, and the parts that it needs.
    fn management_parts(&mut self) -> (Option<&mut Management>, ManagementParts<'_, C::Observer>) {
        let parts = ManagementParts {
            endpoint: &mut self.endpoint,
            paths: &self.tables.paths,
            devices: &mut self.devices,
            drops: &mut self.drops,
            source_ports: &self.framing.source_ports,
        };
        (self.management.as_deref_mut(), parts)
    }

    /// Returns true if another round has work now, which neither a descriptor nor a timer shows.
    /// Frames for a full interface are no such work; see [`device_timeout`](Self::device_timeout).
    pub fn is_unfinished(&self) -> bool {
        self.endpoint.has_pending_transmit()
            || self.endpoint.has_completions()
            || self.endpoint.has_events()
            || self.devices.has_local_backlog()
            || self.management.as_ref().is_some_and(|it| it.needs_round())
    }

    /// Returns when the devices need a call although no descriptor is readable.
    pub fn device_timeout(&self) -> Option<std::time::Instant> {
        self.devices.iter().filter_map(FrameDevice::wake_at).min()
    }

    /// Notes the queue pair numbers of this process, and sets the packet filters of both devices to
    /// them.
    ///
    /// # Errors
    /// The kernel's error; the previous filter stays in force.
    pub fn set_numbers(&mut self, numbers: OwnNumbers) -> io::Result<()> {
        let filter = numbers.filter();
        self.tables.numbers = numbers;
        self.devices.wire.set_filter(&filter)?;
        self.devices.lo.as_mut().map_or(Ok(()), |lo| lo.set_filter(&filter))
    }

    /// Sets the MTU of the interface in bytes.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.devices.wire.set_mtu(mtu);
    }

    /// Sets the addresses of the interface.
    pub fn set_addresses(&mut self, addresses: &[IpAddr]) {
        self.devices.wire.set_addresses(addresses);
    }

    /// Returns the descriptors that are readable when frames have arrived.
    pub fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        let of_lo = self.devices.lo.iter().flat_map(|lo| lo.wait_fds());
        self.devices.wire.wait_fds().into_iter().chain(of_lo).collect()
    }
}

impl<C: Consumer> std::fmt::Debug for Engine<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("gids", &self.tables.gids).finish_non_exhaustive()
    }
}

impl<C: Consumer> std::fmt::Debug for EngineParts<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineParts").field("gids", &self.gids).finish_non_exhaustive()
    }
}
