//! All queue pairs of a device, and the interface of the driver.

mod induced_failure;
mod management;
mod management_queue;
mod multicast;
mod multicast_groups;
mod peers;
mod qpn_hash;
mod queue_pair;
mod run_queue;
mod running_time;
mod scheduler;
mod shared_receives;
mod slot;
mod suspended_queues;
pub(crate) mod timer_queue;
mod transmit;

pub use induced_failure::WorkQueue;
pub use management_queue::{MAX_MANAGEMENT_DATAGRAMS, ManagementDatagram};
pub use multicast_groups::{MAX_GROUP_MEMBERS, MAX_GROUPS};
pub use transmit::{Transmit, TransmitLimits};

use alloc::vec::Vec;
use core::hash::BuildHasherDefault;
use hashbrown::HashMap;

use roce_wire::{Packet, Qpn, Verified};

use self::management_queue::ManagementQueue;
use self::multicast_groups::MulticastGroups;
use self::qpn_hash::QpnHasher;
use self::queue_pair::QueuePair;
use crate::congestion::CongestionConfig;
use crate::context::{Context, DropReason, Outputs};
use crate::endpoint::running_time::RunningTime;
use crate::endpoint::scheduler::Scheduler;
use crate::endpoint::slot::Slot;
use crate::qp::context::QpContext;
use crate::qp::shared_receive_queue::{SharedReceiveQueue, SrqTable};
use crate::{
    ApiMisuse, AsyncEvent, Completion, Counters, CqHandle, Destination, EndpointConfig, InlineData,
    Instant, Memory, ModifyError, Observer, PostError, QpAttributes, QpInfo, QpInit, RecvWr,
    SendWr,
};

/// All queue pairs of one device and process, as pure computation.
///
/// # Driving it
///
/// | kind | name | when |
/// |---|---|---|
/// | input from the network | [`handle_packet`](Self::handle_packet) | a verified packet to an address of the device arrived |
/// | input from the network | [`handle_group_packet`](Self::handle_group_packet) | one to the address of a multicast group arrived |
/// | input from the clock | [`handle_timeout`](Self::handle_timeout) | the instant from [`poll_timeout`](Self::poll_timeout) came; extra calls do no harm |
/// | input from the application | `create_qp`, `modify_qp`, `destroy_qp`, `post_*` | the application calls |
/// | output | `poll_*` | after every input, in the order below, until `None` |
///
/// After each input drain [`poll_transmit`](Self::poll_transmit), then
/// [`poll_completion`](Self::poll_completion), then [`poll_event`](Self::poll_event), then ask
/// [`poll_timeout`](Self::poll_timeout) once. A whole batch of received packets counts as one
/// input: all its ACKs leave as one for each queue pair. Instants must never go backwards. Packets
/// that have arrived are handled before [`handle_timeout`](Self::handle_timeout) is called, or a
/// response that is there already might be missed.
///
/// A receive may complete before its ACK leaves: a driver that ends at a completion drains
/// [`poll_transmit`](Self::poll_transmit) first, or the peer's request fails.
///
/// # Progress
///
/// Every request of a queue pair in RTS ends, also if it can never be sent: because the driver's
/// interface is full, the peer has no credits left, or others are sent first. With the queue
/// pair's ACK timeout T and retry count n:
///
/// - a request that is sent whenever it may be, to a peer that sends no response, ends after
///   T · (n + 1) with [`RetryExceeded`](crate::CompletionStatus::RetryExceeded);
/// - so does one that can never be sent;
/// - one that is sent late gets the time T again for each try, so 2 · T · (n + 1) is the bound;
/// - a response that acknowledges anything, of this request or one before it, starts the time anew;
/// - so does an RNR NAK for the oldest request, and its wait comes on top;
/// - the time in which the peer responds to other queue pairs that are in front of this one, or may
///   have a full ring (0.11 s at most, if it sends no response), comes on top.
///
/// There is no bound where T is [`AckTimeout::NEVER`](crate::AckTimeout::NEVER), and none for RNR
/// NAKs that never end where their number is infinite. In SQD that holds for what was begun.
///
/// # Time
///
/// All this is time in which the driver runs. If it calls more than a millisecond later than
/// [`poll_timeout`](Self::poll_timeout) said, then it did not run: the time since does not count,
/// and half a millisecond passes before any timer fires, in which the driver hands over what has
/// arrived. A driver that is always late ends requests too, after two calls for each deadline.
///
/// ```
/// use roce_transport::{
///     CqHandle, Endpoint, EndpointConfig, Instant, PdHandle, PostError, QpInit, QpState, RecvWr,
///     Service,
/// };
/// use roce_wire::Qpn;
///
/// let mut endpoint = Endpoint::new(EndpointConfig::default());
/// let qpn = Qpn::new(0x11).unwrap();
/// endpoint.create_qp(qpn, QpInit::new(Service::Rc, PdHandle(1), CqHandle(1))).unwrap();
///
/// // Nothing may be posted before the queue pair is brought out of RESET.
/// let refused = endpoint.post_recv(Instant::default(), qpn, RecvWr::new(1, []));
/// assert_eq!(refused, Err(PostError::WrongState { state: QpState::Reset }));
/// assert_eq!(endpoint.poll_timeout(), None);
/// ```
#[derive(Debug)]
pub struct Endpoint<O: Observer = ()> {
    config: EndpointConfig,
    out: Outputs<O>,
    /// A slot whose queue pair is destroyed is used again.
    qps: Vec<Option<Slot>>,
    free: Vec<usize>,
    by_qpn: HashMap<Qpn, usize, BuildHasherDefault<QpnHasher>>,
    /// Latest result of a lookup in `by_qpn`.
    lookup_cache: Option<(Qpn, usize)>,
    scheduler: Scheduler,
    srqs: SrqTable,
    groups: MulticastGroups,
    management: ManagementQueue,
    time: RunningTime,
}

/// A queue pair, with what a call of it needs.
struct Call<'a, O: Observer> {
    index: usize,
    slot: &'a mut Slot,
    scheduler: &'a mut Scheduler,
    srqs: &'a mut SrqTable,
    cx: Context<'a, O>,
}

impl Endpoint {
    /// An endpoint without queue pairs and without an observer.
    pub fn new(config: EndpointConfig) -> Self {
        Self::with_observer(config, ())
    }
}

impl<O: Observer> Endpoint<O> {
    /// An endpoint without queue pairs that reports to `observer` what it does.
    pub fn with_observer(config: EndpointConfig, observer: O) -> Self {
        Self {
            out: Outputs::new(observer, &config),
            config,
            qps: Vec::new(),
            free: Vec::new(),
            by_qpn: HashMap::default(),
            lookup_cache: None,
            scheduler: Scheduler::default(),
            srqs: SrqTable::default(),
            groups: MulticastGroups::default(),
            management: ManagementQueue::default(),
            time: RunningTime::default(),
        }
    }

    /// Returns the configuration of congestion control.
    pub fn congestion(&self) -> &CongestionConfig {
        &self.config.congestion
    }

    /// Changes congestion control. A sender that is limited now stays under its present control until
    /// that limits it no more; one under [`Swift`](crate::congestion::CongestionAlgorithm::Swift)
    /// does until its queue pair is reset.
    pub fn set_congestion(&mut self, config: CongestionConfig) {
        self.config.congestion = config;
    }

    /// Makes a queue pair in state RESET.
    ///
    /// # Errors
    /// [`ApiMisuse`]; then nothing was made.
    pub fn create_qp(&mut self, qpn: Qpn, init: QpInit) -> Result<(), ApiMisuse> {
        if qpn.get() == 0 || qpn == Qpn::MULTICAST {
            return Err(ApiMisuse::ReservedQpn(qpn));
        }
        if self.by_qpn.contains_key(&qpn) || (qpn == Qpn::GSI && self.management.is_open()) {
            return Err(ApiMisuse::QpExists(qpn));
        }
        init.cap.validate()?;
        let receive_pd = match init.srq {
            Some(srq) => self.srqs.get(srq).ok_or(ApiMisuse::UnknownSrq(srq))?.init().pd,
            None => init.pd,
        };
        // Tables of many queue pairs are large; `free` has room for all of them.
        let has_room = self.qps.try_reserve(1).is_ok()
            && self.by_qpn.try_reserve(1).is_ok()
            && self.free.try_reserve(self.qps.len() + 1 - self.free.len()).is_ok();
        if !has_room {
            return Err(ApiMisuse::OutOfMemory);
        }
        let queue_pair = QueuePair::new(QpContext::new(qpn, init, receive_pd), &self.config)?;
        if let Some(srq) = init.srq {
            self.srqs.add_user(srq);
        }
        let slot = Some(Slot {
            qpn,
            queue_pair,
            srq: init.srq,
            timer_at: None,
            peer: None,
            wait_ticket: None,
        });
        let index = match self.free.pop() {
            Some(index) => {
                self.qps[index] = slot;
                index
            }
            None => {
                self.qps.push(slot);
                self.qps.len() - 1
            }
        };
        self.by_qpn.insert(qpn, index);
        Ok(())
    }

    /// Sets attributes and changes the state, as the standard's table allows.
    ///
    /// # Errors
    /// [`ModifyError`]; then the queue pair is as it was.
    pub fn modify_qp(
        &mut self,
        now: Instant,
        qpn: Qpn,
        attributes: &QpAttributes,
    ) -> Result<(), ModifyError> {
        let modified = self.with_qp(now, qpn, |queue_pair, cx| queue_pair.modify(attributes, cx));
        if let Some(index) = self.index_of(qpn)
            && let Some(slot) = self.qps[index].as_mut()
        {
            self.scheduler.update_peer(slot, self.config.peer_window);
        }
        modified.unwrap_or(Err(ModifyError::UnknownQp(qpn)))
    }

    /// Returns the attributes and state of a queue pair; `None` if there is none of this number.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpInfo> {
        let slot = self.qps.get(*self.by_qpn.get(&qpn)?)?.as_ref()?;
        Some(slot.queue_pair.info())
    }

    /// Returns the rate in bits per second to which congestion control limits a queue pair as of its
    /// last call; `None` if it does not limit the rate, or there is no such queue pair.
    pub fn rate_limit(&self, qpn: Qpn) -> Option<u64> {
        self.qps.get(*self.by_qpn.get(&qpn)?)?.as_ref()?.queue_pair.rc()?.rate_limit()
    }

    /// Removes a queue pair without completing what is posted; false if there is none of this
    /// number. Completions that it has generated remain to be polled.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> bool {
        let Some(index) = self.by_qpn.remove(&qpn) else { return false };
        self.lookup_cache = None;
        self.groups.remove(qpn);
        if let Some(mut slot) = self.qps[index].take() {
            if let Some(rc) = slot.queue_pair.rc_mut() {
                self.out.owed_acks.extend(rc.take_owed_ack());
                rc.drop_kept(&mut self.out.reorder_budget);
            }
            self.scheduler.remove(index, &mut slot);
            if let Some(srq) = slot.srq {
                self.srqs.remove_user(srq);
            }
        }
        self.free.push(index);
        true
    }

    /// Posts a request to the send queue.
    ///
    /// # Errors
    /// [`PostError`]; then nothing was posted.
    #[inline]
    pub fn post_send(&mut self, now: Instant, qpn: Qpn, wr: SendWr) -> Result<(), PostError> {
        // No timer is set before its turn comes or `handle_timeout` is called.
        let Some(mut call) = self.call(now, qpn) else { return Err(PostError::UnknownQp(qpn)) };
        call.slot.queue_pair.post_send(wr, &mut call.cx)?;
        call.scheduler.on_posted(call.index);
        Ok(())
    }

    /// Posts a datagram to the send queue of a UD queue pair.
    ///
    /// # Errors
    /// [`PostError`]; then nothing was posted.
    #[inline]
    pub fn post_send_to(
        &mut self,
        now: Instant,
        qpn: Qpn,
        wr: SendWr,
        to: Destination,
    ) -> Result<(), PostError> {
        let Some(mut call) = self.call(now, qpn) else { return Err(PostError::UnknownQp(qpn)) };
        call.slot.queue_pair.post_send_to(wr, to, &mut call.cx)?;
        call.scheduler.on_posted(call.index);
        Ok(())
    }

    /// Checks that a request could be posted to the send queue behind `ahead` others. A datagram has a
    /// destination.
    ///
    /// # Errors
    /// That of [`post_send`](Self::post_send) or [`post_send_to`](Self::post_send_to).
    pub fn check_send(
        &self,
        qpn: Qpn,
        wr: &SendWr,
        to: Option<&Destination>,
        ahead: usize,
    ) -> Result<(), PostError> {
        let slot = self.by_qpn.get(&qpn).and_then(|index| self.qps.get(*index)?.as_ref());
        slot.ok_or(PostError::UnknownQp(qpn))?.queue_pair.check_send(wr, to, ahead)
    }

    /// Returns empty inline data for a request of this queue pair, with the memory of a completed one
    /// if there is some: long inline data need an allocation otherwise.
    pub fn take_inline_buffer(&mut self, qpn: Qpn) -> InlineData {
        let Some(index) = self.index_of(qpn) else { return InlineData::default() };
        let slot = self.qps[index].as_mut();
        slot.map_or_else(InlineData::default, |slot| slot.queue_pair.take_inline_buffer())
    }

    /// Returns true if this queue pair has sent requests that are not acknowledged yet, and may
    /// send more. Without acknowledgements none are known to have arrived: it is true in RTS and SQD.
    #[inline]
    pub fn has_outstanding(&mut self, qpn: Qpn) -> bool {
        let Some(index) = self.index_of(qpn) else { return false };
        self.qps[index].as_ref().is_some_and(|slot| slot.queue_pair.has_outstanding())
    }

    /// Returns true if requests of this queue pair wait for its window or for that of its peer.
    #[inline]
    pub fn has_unsent(&mut self, qpn: Qpn) -> bool {
        let Some(index) = self.index_of(qpn) else { return false };
        self.qps[index].as_ref().is_some_and(|slot| slot.queue_pair.demand().requests)
    }

    /// Posts a request to the receive queue.
    ///
    /// # Errors
    /// [`PostError`]; then nothing was posted.
    pub fn post_recv(&mut self, now: Instant, qpn: Qpn, wr: RecvWr) -> Result<(), PostError> {
        // Nothing leaves because of it, and no timer changes.
        let Some(mut call) = self.call(now, qpn) else { return Err(PostError::UnknownQp(qpn)) };
        call.slot.queue_pair.post_recv(wr, &mut call.cx)
    }

    /// Handles a packet from the network.
    ///
    /// It is checked in this order, and dropped under a counter of its own where it fails: number of
    /// the queue pair, service, state, partition, addresses. The queue pair does the rest.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        packet: &Packet<'_, Verified>,
        memory: &mut impl Memory,
    ) {
        self.handle_packet_for(packet.bth().dest_qp(), now, packet, memory);
    }

    /// Handles a packet to the address of a multicast group: passes it to the
    /// [members](Self::has_members), whose checks are those of [`handle_packet`](Self::handle_packet).
    //= rule ud-multicast: InfiniBand, clause not known; rxe_recv.c: rxe_rcv_mcast_pkt
    //# A packet to the multicast number goes to each queue pair that is attached to its group. Each
    //# checks it by its own attributes, and takes a receive of its own.
    pub fn handle_group_packet(
        &mut self,
        now: Instant,
        packet: &Packet<'_, Verified>,
        memory: &mut impl Memory,
    ) {
        let (qpn, group) = (packet.bth().dest_qp(), packet.destination());
        if qpn != Qpn::MULTICAST || self.groups.members(group).is_empty() {
            let time = self.advance(now);
            let mut cx = Context::new(now, time, qpn, &self.config, &mut self.out);
            return cx.dropped(packet.bth().psn(), DropReason::UnknownQp);
        }
        // No packet changes the members.
        for index in 0..self.groups.members(group).len() {
            if let Some(member) = self.groups.members(group).get(index).copied() {
                self.handle_packet_for(member, now, packet, memory);
            }
        }
    }

    /// Passes a packet to the queue pair `qpn`.
    fn handle_packet_for(
        &mut self,
        qpn: Qpn,
        now: Instant,
        packet: &Packet<'_, Verified>,
        memory: &mut impl Memory,
    ) {
        let time = self.advance(now);
        let Some(Call { index, slot, scheduler, srqs, mut cx }) = self.call(now, qpn) else {
            return self.handle_without_queue_pair(qpn, now, packet);
        };
        slot.queue_pair.handle_packet(packet, srqs, memory, &mut cx);
        if let Some(srq) = slot.srq
            && srqs.get_mut(srq).is_some_and(SharedReceiveQueue::take_limit_reached)
        {
            cx.raise(AsyncEvent::SrqLimitReached { srq });
        }
        scheduler.on_input(index, slot, cx.feedback, time);
        scheduler.debug_assert_timed(slot);
    }

    /// Handles a packet to a number that no queue pair has.
    #[cold]
    fn handle_without_queue_pair(&mut self, qpn: Qpn, now: Instant, packet: &Packet<'_, Verified>) {
        let (psn, time) = (packet.bth().psn(), self.advance(now));
        let kept = match qpn == Qpn::GSI && self.management.is_open() {
            true => self.management.push(packet),
            false => Err(DropReason::UnknownQp),
        };
        let mut cx = Context::new(now, time, qpn, &self.config, &mut self.out);
        match kept {
            Ok(()) => {
                cx.counters().rcvd_pkts += 1;
                cx.out.observer.packet_accepted(now, qpn, psn);
            }
            Err(cause) => cx.dropped(psn, cause),
        }
    }

    /// Fires the timers that are due at `now`. Packets that have arrived are handled first, or a
    /// response that is there already might be missed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let time = self.advance(now);
        if self.out.reorder_budget.take_check(time) {
            let budget = &mut self.out.reorder_budget;
            let reliable =
                self.qps.iter_mut().flatten().filter_map(|slot| slot.queue_pair.rc_mut());
            reliable.for_each(|rc| rc.drop_idle(budget));
        }
        self.scheduler.handle_timeout(&mut self.qps, time);
        while let Some((index, peer)) = self.scheduler.take_due(&mut self.qps, time) {
            let Some(qpn) = self.qps[index].as_ref().map(|slot| slot.qpn) else { continue };
            let taken_at = self.scheduler.taken_at(index);
            self.with_qp(now, qpn, |queue_pair, cx| queue_pair.handle_timeout(peer, taken_at, cx));
        }
    }

    /// Returns the driver's running time at its `now`.
    #[inline]
    fn advance(&mut self, now: Instant) -> Instant {
        let Self { time, scheduler, .. } = self;
        time.advance(now, || scheduler.earliest())
    }

    /// A completion queue overflowed: its queue pairs go to ERROR.
    pub fn handle_cq_overflow(&mut self, now: Instant, cq: CqHandle) {
        let event = AsyncEvent::CqError { cq };
        // What the flush completes overflows it again.
        if !self.out.events.contains(&event) {
            self.out.events.push_back(event);
        }
        let uses_it = |slot: &&Slot| {
            let init = slot.queue_pair.init();
            init.send_cq == cq || init.recv_cq == cq
        };
        let hit: Vec<Qpn> =
            self.qps.iter().flatten().filter(uses_it).map(|slot| slot.qpn).collect();
        for qpn in hit {
            self.with_qp(now, qpn, |queue_pair, cx| queue_pair.handle_failure(cx));
        }
    }

    /// Takes the next completion and the queue that it belongs to.
    pub fn poll_completion(&mut self) -> Option<(CqHandle, Completion)> {
        self.out.completions.pop_front()
    }

    /// Returns true if [`poll_completion`](Self::poll_completion) would return a completion.
    pub fn has_completions(&self) -> bool {
        !self.out.completions.is_empty()
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.out.events.pop_front()
    }

    /// Returns true if an event waits to be taken.
    pub fn has_events(&self) -> bool {
        !self.out.events.is_empty()
    }

    /// Returns the instant by which to call [`handle_timeout`](Self::handle_timeout). It may be too
    /// early: a deadline that moves away is checked when the old one comes. It is now if a request
    /// was posted and not sent, since the interface is full: from the call on a timer runs.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let at = self.scheduler.poll_timeout(self.time.latest());
        let at = at.into_iter().chain(self.out.reorder_budget.check_at()).min();
        at.map(|at| self.time.to_driver(at))
    }

    /// Returns the bytes that packets behind a missing one hold, at most
    /// [`max_reorder_bytes`](EndpointConfig::max_reorder_bytes).
    pub fn reorder_bytes(&self) -> usize {
        self.out.reorder_budget.used()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.out.counters
    }

    /// The observer.
    pub fn observer(&self) -> &O {
        &self.out.observer
    }

    /// The observer.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.out.observer
    }

    /// Calls a queue pair with an input after which it may transmit or need another timer; `None`
    /// if there is none of this number.
    fn with_qp<T>(
        &mut self,
        now: Instant,
        qpn: Qpn,
        input: impl FnOnce(&mut QueuePair, &mut Context<'_, O>) -> T,
    ) -> Option<T> {
        let time = self.advance(now);
        let Call { index, slot, scheduler, mut cx, .. } = self.call(now, qpn)?;
        let result = input(&mut slot.queue_pair, &mut cx);
        scheduler.on_input(index, slot, cx.feedback, time);
        scheduler.debug_assert_timed(slot);
        Some(result)
    }

    /// The queue pair of this number, and the context of a call at `now`.
    #[inline]
    fn call(&mut self, now: Instant, qpn: Qpn) -> Option<Call<'_, O>> {
        let index = self.index_of(qpn)?;
        let Self { config, out, qps, scheduler, srqs, time, .. } = self;
        let cx = Context::new(now, time.latest(), qpn, config, out);
        Some(Call { index, slot: qps[index].as_mut()?, scheduler, srqs, cx })
    }

    /// The slot of a queue pair; mostly that of the latest lookup.
    #[inline]
    fn index_of(&mut self, qpn: Qpn) -> Option<usize> {
        match self.lookup_cache {
            Some((last, index)) if last == qpn => Some(index),
            _ => {
                let index = *self.by_qpn.get(&qpn)?;
                self.lookup_cache = Some((qpn, index));
                Some(index)
            }
        }
    }
}
