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

mod device_error;
mod frame_sealer;
mod induced_faults;
mod link_pauses;
mod management;
mod management_calls;
mod posting;
mod receive;
mod source_ports;
mod transmit;
mod transmit_queues;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use roce_io::FrameDevice;
use roce_transport::{Completion, CqHandle, Endpoint, Instant};
use roce_wire::{Qpn, Sealing};

use self::induced_faults::{RAISED_EVENTS, inject};
use self::link_pauses::LinkPauses;
use self::management::{Management, ManagementParts};
pub use self::management::{ManagementDestination, ManagementPort};
pub use self::posting::{Departure, Posted};
use self::source_ports::SourcePorts;
use self::transmit::MIN_HEADROOM;
use self::transmit_queues::LocalFrame;
use crate::consumer::{CallFault, Consumer, Pushed};
use crate::datagram_paths::DatagramPaths;
use crate::gid_table::GidTable;
use crate::key_hasher::KeyHasher;
use crate::memory_table::MemoryTable;
use crate::own_numbers::OwnNumbers;
use crate::path_table::PathTable;
use crate::policy::{Arrivals, Cause, DoorbellCoalescing, Holds, QuickPoll, RoundPolicy};

/// The engine of a device.
pub struct Engine<C: Consumer> {
    /// The queue pairs.
    endpoint: Endpoint<C::Observer>,
    /// Registered memory.
    memory: MemoryTable<C::Region>,
    /// The paths to peers.
    paths: PathTable,
    /// The addresses of the device.
    gids: GidTable,
    /// What completions and events go to.
    consumer: C,
    numbers: OwnNumbers,
    /// The paths of posted datagrams, by the number of their queue pair.
    datagram_paths: HashMap<u32, DatagramPaths, BuildHasherDefault<KeyHasher>>,
    /// Counters of drops outside the endpoint, and of faults of calls and completions, by name.
    drops: BTreeMap<&'static str, u64>,
    wire: Box<dyn FrameDevice>,
    lo: Option<Box<dyn FrameDevice>>,
    loopback: Option<Box<dyn FrameDevice>>,
    /// Frames from this engine to itself.
    loopback_queue: VecDeque<LocalFrame>,
    /// Frames for other processes of this host.
    lo_queue: VecDeque<LocalFrame>,
    /// Queue pairs that send through the interface wait until it has sent what it took. It may do
    /// that while frames are received, so its state before a round does not show it.
    is_wire_suspended: bool,
    /// Classes that the other end of the link has paused.
    pauses: LinkPauses,
    /// Buffer in which frames for this host are built while the interface is full.
    scratch: Vec<u8>,
    /// The ICRC covers the source port, so it is chosen here.
    source_ports: SourcePorts,
    /// State of the ICRC over the headers of the last train.
    sealing: Option<Sealing>,
    /// Offset of the last frame's transport header: the best guess for the next one.
    headroom: usize,
    policy: RoundPolicy,
    /// A completion that waits for a message of the peer, and its queue.
    held: Option<(CqHandle, Completion)>,
    /// Time of the last round or post.
    last_now: Instant,
    /// Rounds since the last that received from `lo`.
    rounds_without_lo: u32,
    /// Connection management, once the owner wants it.
    management: Option<Box<Management>>,
}

/// The outcome of a round.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundOutcome {
    /// Frames received.
    pub received: usize,
    /// Frames sent.
    pub sent: usize,
    /// Completions and events delivered.
    pub delivered: usize,
    /// A channel was notified.
    pub notified: bool,
    /// A completion that bypassed the polled queue, which holds none: the message takes two locks less.
    pub completion: Option<Completion>,
}

impl RoundOutcome {
    /// Returns true if the round had work: then another one is likely to have some too.
    pub fn did_work(self) -> bool {
        self.received + self.sent + self.delivered > 0
    }
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
        &self.memory
    }

    /// As [`memory`](Self::memory), to change.
    pub fn memory_mut(&mut self) -> &mut MemoryTable<C::Region> {
        &mut self.memory
    }

    /// Returns the paths to peers.
    pub fn paths(&self) -> &PathTable {
        &self.paths
    }

    /// As [`paths`](Self::paths), to change.
    pub fn paths_mut(&mut self) -> &mut PathTable {
        &mut self.paths
    }

    /// Returns the addresses of the device.
    pub fn gids(&self) -> &GidTable {
        &self.gids
    }

    /// As [`gids`](Self::gids), to change.
    pub fn gids_mut(&mut self) -> &mut GidTable {
        &mut self.gids
    }

    /// Returns what completions and events go to.
    pub fn consumer(&self) -> &C {
        &self.consumer
    }

    /// As [`consumer`](Self::consumer), to change.
    pub fn consumer_mut(&mut self) -> &mut C {
        &mut self.consumer
    }

    /// Returns all counters by name: those of the transport, of drops outside it, and of the
    /// interface and `lo` together.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all: Vec<_> = self.endpoint.counters().iter().collect();
        all.push(("coalesced_doorbells", self.policy.doorbells.coalesced()));
        all.extend(self.pauses.counters());
        all.extend(self.management.iter().flat_map(|it| it.agent.counters().iter()));
        all.extend(self.drops.iter().map(|(name, count)| (*name, *count)));
        let first_of_devices = all.len();
        for device in self.devices() {
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
        for event in fault.events {
            self.endpoint.raise(now, event);
            self.count_fault(RAISED_EVENTS);
        }
        let Some((failure, counter)) = fault.failure else { return Ok(()) };
        self.count_fault(counter);
        Err(failure)
    }

    /// Removes a queue pair: see [`Endpoint::destroy_qp`]. Windows that it has bound are bound no more, and the
    /// paths of its datagrams lose a user.
    pub fn destroy_qp(&mut self, queue_pair: Qpn) {
        self.endpoint.destroy_qp(queue_pair);
        self.memory.unbind_windows_of(queue_pair);
        if let Some(mut users) = self.datagram_paths.remove(&queue_pair.get()) {
            users.release(&mut self.paths);
        }
    }

    /// Counts a fault under a name, among the counters.
    pub fn count_fault(&mut self, counter: &'static str) {
        *self.drops.entry(counter).or_default() += 1;
    }

    /// Records the packets that faults hold back, before the devices are closed.
    pub fn abandon_held(&mut self) {
        let of_this_host = self.lo.iter_mut().chain(&mut self.loopback);
        std::iter::once(&mut self.wire)
            .chain(of_this_host)
            .for_each(|device| device.abandon_held());
    }

    fn devices(&self) -> impl Iterator<Item = &dyn FrameDevice> {
        let of_this_host = self.lo.iter().chain(&self.loopback);
        std::iter::once(&self.wire).chain(of_this_host).map(|device| &**device)
    }

    /// Makes an engine without memory and paths.
    pub fn new(parts: EngineParts<C>) -> Self {
        let EngineParts { endpoint, wire, lo, loopback, gids, consumer, source_ports } = parts;
        Self {
            endpoint,
            memory: MemoryTable::default(),
            paths: PathTable::default(),
            gids,
            consumer,
            numbers: OwnNumbers::default(),
            datagram_paths: HashMap::default(),
            drops: BTreeMap::new(),
            wire,
            lo,
            loopback,
            loopback_queue: VecDeque::new(),
            lo_queue: VecDeque::new(),
            is_wire_suspended: false,
            pauses: LinkPauses::default(),
            scratch: Vec::new(),
            source_ports: SourcePorts::new(source_ports),
            sealing: None,
            headroom: MIN_HEADROOM,
            policy: RoundPolicy::default(),
            held: None,
            last_now: Instant::default(),
            rounds_without_lo: 0,
            management: None,
        }
    }

    /// Sets the rate of the link in bits per second, from which the durations of pauses follow; `None`
    /// ignores pauses.
    pub fn set_link_rate(&mut self, bits_per_sec: Option<u64>) {
        self.pauses.set_rate(bits_per_sec);
    }

    /// Returns when a pause of the link ends, if there is one.
    pub fn pause_end(&self) -> Option<Instant> {
        self.pauses.next_end()
    }

    /// Runs one bounded round, as the module's documentation describes. `poller` is the completion queue
    /// that is polled, if one is.
    #[inline]
    pub fn run(&mut self, now: Instant, cause: Cause, poller: Option<&C::Queue>) -> RoundOutcome {
        if self.policy.begin(now, cause, || self.consumer.may_mistake_reports()) {
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

    /// Tests for work if this poll may be a quick one; see `RoundPolicy`.
    #[inline]
    pub fn quick_poll(&mut self) -> QuickPoll {
        if self.held.is_some() || !self.policy.takes_quick_poll() {
            return QuickPoll::FullRoundDue;
        }
        if self.wire.may_receive()
            || self.lo.as_ref().is_some_and(|lo| lo.may_receive())
            || self.loopback.is_some()
            || self.endpoint.has_pending_transmit()
            || self.has_backlog()
        {
            // Whether the program polls at this moment decides about a hold.
            return match self.policy.silent_reply.may_hold() {
                true => QuickPoll::FullRoundDue,
                false => QuickPoll::Ready { last_now: self.last_now },
            };
        }
        self.policy.on_quick_poll();
        QuickPoll::Idle
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
        let has_work = self.endpoint.has_pending_transmit() || self.has_backlog();
        let sent = if has_work { self.transmit(now) } else { 0 };
        if received + sent > 0 {
            self.publish_counters();
        }
        RoundOutcome { received, sent, ..self.deliver_to_poller(poller, now, cause) }
    }

    /// Publishes the counters, where every round does: before completions are delivered, after which
    /// the process may end.
    fn publish_counters(&self) {
        self.consumer.publish_counters(|| self.counters());
    }

    /// Delivers completions and events to their queues.
    pub fn deliver(&mut self, now: Instant) {
        self.deliver_to_poller(None, now, Cause::Call);
    }

    /// As [`deliver`](Self::deliver), and keeps the first completion that may bypass the polled queue.
    /// The only one may be held, and is then delivered by a later round.
    fn deliver_to_poller(
        &mut self,
        poller: Option<&C::Queue>,
        now: Instant,
        cause: Cause,
    ) -> RoundOutcome {
        let mut round = RoundOutcome::default();
        let is_held = self.held.is_some();
        while let Some((handle, mut completion)) =
            self.held.take().or_else(|| self.endpoint.poll_completion())
        {
            if round.delivered == 0 && (is_held || self.policy.silent_reply.is_habit_known()) {
                if self.stays_held(handle, &completion, poller, now, cause) {
                    self.held = Some((handle, completion));
                    break;
                }
                self.policy.silent_reply.on_released();
            }
            if let Some(fault) = self.consumer.fault_of(handle, &completion) {
                inject(&mut self.endpoint, &mut self.drops, now, fault, &mut completion);
            }
            self.policy.silent_reply.on_delivered(completion.qpn);
            round.delivered += 1;
            if round.completion.is_none()
                && poller.is_some_and(|queue| C::can_bypass(queue, handle))
            {
                poller.into_iter().for_each(|queue| C::on_bypass(queue, &completion));
                round.completion = Some(completion);
                continue;
            }
            let pushed = match self.consumer.push(handle, completion, now) {
                Pushed::Full => self.push_to_full(handle, completion, now),
                pushed => pushed,
            };
            round.notified |= pushed == Pushed::Notified;
        }
        while let Some(event) = self.endpoint.poll_event() {
            round.delivered += 1;
            self.consumer.push_event(event);
        }
        round
    }

    /// Lets a completion take the place of the oldest one of a full queue that ignores overruns; it is lost, and the
    /// queue pairs end, where the queue does not.
    #[cold]
    #[inline(never)]
    fn push_to_full(&mut self, handle: CqHandle, completion: Completion, now: Instant) -> Pushed {
        // Again where another engine has taken the place.
        while self.consumer.drop_oldest(handle) {
            *self.drops.entry("overwritten_completions").or_default() += 1;
            let pushed = self.consumer.push(handle, completion, now);
            if pushed != Pushed::Full {
                return pushed;
            }
        }
        self.consumer.on_lost(handle, &completion);
        self.endpoint.handle_cq_overflow(now, handle);
        Pushed::Full
    }

    /// Decides whether a completion is held, or goes on to be.
    fn stays_held(
        &mut self,
        handle: CqHandle,
        completion: &Completion,
        poller: Option<&C::Queue>,
        now: Instant,
        cause: Cause,
    ) -> bool {
        let is_awaited = match cause {
            Cause::Poll => {
                poller.is_some_and(|queue| !C::has_channel(queue) && C::can_bypass(queue, handle))
            }
            // It runs beside the program, and shows nothing of it.
            Cause::DriverThread => self.policy.silent_reply.due().is_some(),
            _ => false,
        };
        is_awaited
            && !self.endpoint.has_completions()
            && self.policy.silent_reply.holds(now, completion)
    }

    /// Returns connection management, if there is any, and the parts that it needs.
    fn management_parts(&mut self) -> (Option<&mut Management>, ManagementParts<'_, C::Observer>) {
        let parts = ManagementParts {
            endpoint: &mut self.endpoint,
            paths: &self.paths,
            wire: &mut *self.wire,
            has_lo: self.lo.is_some(),
            lo_queue: &mut self.lo_queue,
            drops: &mut self.drops,
            source_ports: &self.source_ports,
        };
        (self.management.as_deref_mut(), parts)
    }

    /// Returns true if frames wait to be sent.
    fn has_backlog(&self) -> bool {
        let unsent = self.wire.has_unsent() || self.lo.as_ref().is_some_and(|lo| lo.has_unsent());
        unsent || self.is_wire_suspended || self.has_local_backlog()
    }

    fn has_local_backlog(&self) -> bool {
        !self.loopback_queue.is_empty() || !self.lo_queue.is_empty()
    }

    /// Returns true if another round has work now, which neither a descriptor nor a timer shows.
    /// Frames for a full interface are no such work; see [`device_timeout`](Self::device_timeout).
    pub fn is_unfinished(&self) -> bool {
        self.endpoint.has_pending_transmit()
            || self.endpoint.has_completions()
            || self.endpoint.has_events()
            || self.has_local_backlog()
            || self.management.as_ref().is_some_and(|it| it.needs_round())
    }

    /// Returns when the devices need a call although no descriptor is readable.
    pub fn device_timeout(&self) -> Option<std::time::Instant> {
        self.devices().filter_map(FrameDevice::wake_at).min()
    }

    /// Notes the queue pair numbers of this process, and sets the packet filters of both devices to
    /// them.
    ///
    /// # Errors
    /// The kernel's error; the previous filter stays in force.
    pub fn set_numbers(&mut self, numbers: OwnNumbers) -> io::Result<()> {
        self.numbers = numbers;
        let filter = self.numbers.filter();
        self.wire.set_filter(&filter)?;
        self.lo.as_mut().map_or(Ok(()), |lo| lo.set_filter(&filter))
    }

    /// Sets the MTU of the interface in bytes.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.wire.set_mtu(mtu);
    }

    /// Sets the addresses of the interface.
    pub fn set_addresses(&mut self, addresses: &[IpAddr]) {
        self.wire.set_addresses(addresses);
    }

    /// Returns the descriptors that are readable when frames have arrived.
    pub fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        let of_lo = self.lo.iter().flat_map(|lo| lo.wait_fds());
        self.wire.wait_fds().into_iter().chain(of_lo).collect()
    }
}

impl<C: Consumer> std::fmt::Debug for Engine<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("gids", &self.gids).finish_non_exhaustive()
    }
}

impl<C: Consumer> std::fmt::Debug for EngineParts<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineParts").field("gids", &self.gids).finish_non_exhaustive()
    }
}
