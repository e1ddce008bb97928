//! All queue pairs of a device, and the face that the driver sees.

mod frame_cost;
pub(crate) mod peer_window;
mod peers;
mod qpn_hash;
mod run_queue;
mod running_time;
mod suspended_queues;
pub(crate) mod timer_queue;
mod transmit;
mod wait_queue;

pub use transmit::{Transmit, TransmitLimits};

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::net::IpAddr;

use roce_wire::{Packet, Qpn, Service, Verified};

use self::qpn_hash::QpnHasher;
use crate::context::{Context, DropReason, Outputs};
use crate::endpoint::peers::PeerTable;
use crate::endpoint::run_queue::{RunQueue, Runnable};
use crate::endpoint::running_time::RunningTime;
use crate::endpoint::suspended_queues::SuspendedQueues;
use crate::endpoint::timer_queue::TimerQueue;
use crate::rc::RcQueuePair;
use crate::{
    ApiMisuse, AsyncEvent, Completion, Counters, CqHandle, EndpointConfig, Instant, Memory,
    ModifyError, Observer, PostError, QpAttributes, QpInfo, QpInit, RecvWr, SendWr,
};

/// All queue pairs of one device and process, as pure computation.
///
/// # Driving it
///
/// | kind | name | when |
/// |---|---|---|
/// | input from the network | [`handle_packet`](Self::handle_packet) | a verified packet arrived |
/// | input from the clock | [`handle_timeout`](Self::handle_timeout) | the instant from [`poll_timeout`](Self::poll_timeout) came; extra calls do no harm |
/// | input from the application | `create_qp`, `modify_qp`, `destroy_qp`, `post_*` | it asks for something |
/// | output | `poll_*` | after every input, in the order below, until `None` |
///
/// After each input drain [`poll_transmit`](Self::poll_transmit), then
/// [`poll_completion`](Self::poll_completion), then [`poll_event`](Self::poll_event), then ask
/// [`poll_timeout`](Self::poll_timeout) once. A whole batch of received packets counts as one
/// input: all its acknowledgements leave as one for each queue pair. Instants must never go
/// backwards. What has arrived is handed over before [`handle_timeout`](Self::handle_timeout) is
/// called, or an answer that is there already might be missed.
///
/// # Progress
///
/// Every request of a queue pair in RTS ends, also if nothing can ever be sent: because the driver's
/// interface takes nothing, the peer has no credits left, or others are sent first. With the queue
/// pair's ACK timeout T and retry count n:
///
/// - a request that is sent whenever it may be, to a peer that says nothing, ends after T · (n + 1)
///   with [`RetryExceeded`](crate::CompletionStatus::RetryExceeded);
/// - so does one that can never be sent;
/// - one that is sent late gets the time T again for each try, so 2 · T · (n + 1) is the bound;
/// - an answer that settles anything, of this request or one before it, begins anew;
/// - the waits that the peer asks for in RNR NAKs, and the time in which the peer answers other
///   queue pairs that are in front of this one or is waited for because its ring may be full (0.11 s
///   at most, if it says nothing), come on top.
///
/// There is no bound where T is [`AckTimeout::NEVER`](crate::AckTimeout::NEVER), and none for RNR
/// NAKs that never end where their number is infinite. In SQD that holds for what was begun.
///
/// # Time
///
/// All this is time in which the driver runs. If it calls more than a millisecond later than
/// [`poll_timeout`](Self::poll_timeout) asked for, then it did not run: the time since does not
/// count, and half a millisecond passes before any timer fires, in which the driver hands over what
/// has arrived. A driver that is always late ends requests too, after two calls for each deadline.
///
/// ```
/// use roce_transport::{
///     QpCap, CqHandle, Endpoint, EndpointConfig, Instant, PdHandle, PostError, QpInit,
///     QpState, RecvWr, Service,
/// };
/// use roce_wire::Qpn;
///
/// let mut endpoint = Endpoint::new(EndpointConfig::default());
/// let qpn = Qpn::new(0x11).unwrap();
/// let init = QpInit {
///     pd: PdHandle(1),
///     send_cq: CqHandle(1),
///     recv_cq: CqHandle(1),
///     cap: QpCap::default(),
///     signal_all: true,
///     service: Service::Rc,
/// };
/// endpoint.create_qp(qpn, init).unwrap();
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
    /// Places of queue pairs; a place whose queue pair is destroyed is used again.
    qps: Vec<Option<Slot>>,
    free: Vec<usize>,
    by_qpn: HashMap<Qpn, usize, BuildHasherDefault<QpnHasher>>,
    /// What was found there last.
    lookup_cache: Option<(Qpn, usize)>,
    run_queue: RunQueue,
    /// Every queue pair in `ready` that has requests has been given a timer. One that was posted to
    /// has not: the time of a post may be an old one, and mostly the request leaves at once.
    is_run_queue_timed: bool,
    /// Whose turn is not over.
    current: Option<usize>,
    /// Acknowledgements are held back.
    delay_acks: bool,
    /// Who owes one that was.
    delayed_acks: RunQueue,
    suspended: SuspendedQueues,
    timers: TimerQueue,
    peers: PeerTable,
    time: RunningTime,
}

/// A queue pair in its place.
#[derive(Debug)]
struct Slot {
    qpn: Qpn,
    queue_pair: QueuePair,
    /// Where in the alarm it is entered.
    timer_at: Option<Instant>,
    /// Whom it sends to, once it has a path.
    peer: Option<(IpAddr, usize)>,
    /// Where it stands in line before that peer's gate, if it does.
    wait_ticket: Option<wait_queue::Ticket>,
}

/// Queue pairs by service.
#[derive(Debug)]
enum QueuePair {
    Rc(Box<RcQueuePair>),
}

impl Endpoint {
    /// An endpoint without queue pairs that nobody observes.
    pub fn new(config: EndpointConfig) -> Self {
        Self::with_observer(config, ())
    }
}

impl<O: Observer> Endpoint<O> {
    /// An endpoint without queue pairs that tells `observer` what it does.
    pub fn with_observer(config: EndpointConfig, observer: O) -> Self {
        Self {
            config,
            out: Outputs::new(observer),
            qps: Vec::new(),
            free: Vec::new(),
            by_qpn: HashMap::default(),
            lookup_cache: None,
            run_queue: RunQueue::default(),
            is_run_queue_timed: true,
            current: None,
            delay_acks: false,
            delayed_acks: RunQueue::default(),
            suspended: SuspendedQueues::default(),
            timers: TimerQueue::default(),
            peers: PeerTable::default(),
            time: RunningTime::default(),
        }
    }

    /// Makes a queue pair in state RESET.
    ///
    /// # Errors
    /// [`ApiMisuse`]; then nothing was made.
    pub fn create_qp(&mut self, qpn: Qpn, init: QpInit) -> Result<(), ApiMisuse> {
        if qpn.get() == 0 || qpn == Qpn::MULTICAST {
            return Err(ApiMisuse::ReservedQpn(qpn));
        }
        if self.by_qpn.contains_key(&qpn) {
            return Err(ApiMisuse::QpExists(qpn));
        }
        init.cap.validate()?;
        let queue_pair = match init.service {
            Service::Rc => QueuePair::Rc(Box::new(RcQueuePair::new(qpn, init, &self.config))),
            other => return Err(ApiMisuse::ServiceNotSupported(other)),
        };
        let slot = Some(Slot { qpn, queue_pair, timer_at: None, peer: None, wait_ticket: None });
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

    /// Sets attributes and goes to another state, as the standard's table allows.
    ///
    /// # Errors
    /// [`ModifyError`]; then the queue pair is as it was.
    pub fn modify_qp(
        &mut self,
        now: Instant,
        qpn: Qpn,
        asked: &QpAttributes,
    ) -> Result<(), ModifyError> {
        let modified = self.with_qp(now, qpn, |queue_pair, cx| match queue_pair {
            QueuePair::Rc(rc) => rc.modify(asked, cx),
        });
        self.update_peer(qpn);
        modified.unwrap_or(Err(ModifyError::UnknownQp(qpn)))
    }

    /// The queue pair may have got another path.
    fn update_peer(&mut self, qpn: Qpn) {
        let Some(&index) = self.by_qpn.get(&qpn) else { return };
        let Some(slot) = self.qps[index].as_mut() else { return };
        let QueuePair::Rc(rc) = &mut slot.queue_pair;
        let address = rc.path().map(|path| path.remote);
        if slot.peer.map(|(address, _)| address) == address {
            return;
        }
        if let Some((_, peer)) = slot.peer {
            self.peers.release(peer, slot.wait_ticket.take());
            rc.reset_frames();
        }
        slot.peer = address.map(|it| (it, self.peers.acquire(it, self.config.peer_window)));
    }

    /// What a queue pair tells about itself; `None` if there is none of this number.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpInfo> {
        let slot = self.qps.get(*self.by_qpn.get(&qpn)?)?.as_ref()?;
        match &slot.queue_pair {
            QueuePair::Rc(rc) => Some(rc.info()),
        }
    }

    /// Removes a queue pair without completing what is posted; false if there is none of this
    /// number. Completions that it has made already are still to be polled.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> bool {
        let Some(index) = self.by_qpn.remove(&qpn) else { return false };
        self.lookup_cache = None;
        self.current.take_if(|it| *it == index);
        if let Some(mut slot) = self.qps[index].take() {
            let QueuePair::Rc(rc) = &mut slot.queue_pair;
            self.out.owed_acks.extend(rc.take_owed_ack());
            self.timers.forget(index, &mut slot.timer_at);
            if let Some((_, peer)) = slot.peer {
                self.peers.release(peer, slot.wait_ticket);
            }
        }
        // A turn that it had is over before it has begun, or is whose place this becomes.
        self.free.push(index);
        true
    }

    /// Posts a request to the send queue.
    ///
    /// # Errors
    /// [`PostError`]; then nothing was posted.
    #[inline]
    pub fn post_send(&mut self, now: Instant, qpn: Qpn, work: SendWr) -> Result<(), PostError> {
        // It waits for its turn; no timer is set before that comes, or `handle_timeout` does.
        // Written out, since through closures the request would be moved more often.
        let Some(index) = self.index_of(qpn) else { return Err(PostError::UnknownQp(qpn)) };
        let Some(slot) = self.qps[index].as_mut() else { return Err(PostError::UnknownQp(qpn)) };
        let (config, out) = (&self.config, &mut self.out);
        let time = self.time.latest();
        let mut cx = Context { now, time, qpn, is_alone: false, config, out };
        let QueuePair::Rc(rc) = &mut slot.queue_pair;
        rc.post_send(work, &mut cx)?;
        self.run_queue.push(Runnable::QueuePair(index));
        self.is_run_queue_timed = false;
        Ok(())
    }

    /// Returns true if this queue pair has sent requests that are not acknowledged yet, and may
    /// send more.
    #[inline]
    pub fn has_outstanding(&mut self, qpn: Qpn) -> bool {
        let Some(index) = self.index_of(qpn) else { return false };
        self.qps[index].as_ref().is_some_and(|slot| {
            let QueuePair::Rc(rc) = &slot.queue_pair;
            rc.has_outstanding()
        })
    }

    /// Returns true if requests of this queue pair wait for its window or for that of its peer.
    #[inline]
    pub fn has_unsent(&mut self, qpn: Qpn) -> bool {
        let Some(index) = self.index_of(qpn) else { return false };
        self.qps[index].as_ref().is_some_and(|slot| {
            let QueuePair::Rc(rc) = &slot.queue_pair;
            rc.has_requests()
        })
    }

    /// Posts a request to the receive queue.
    ///
    /// # Errors
    /// [`PostError`]; then nothing was posted.
    pub fn post_recv(&mut self, now: Instant, qpn: Qpn, work: RecvWr) -> Result<(), PostError> {
        // Nothing leaves because of it, and no timer changes.
        let posted = self.lookup(now, qpn, |queue_pair, cx| match queue_pair {
            QueuePair::Rc(rc) => rc.post_recv(work, cx),
        });
        posted.map_or(Err(PostError::UnknownQp(qpn)), |(_, result)| result)
    }

    /// Takes a packet in.
    ///
    /// It is looked at in this order, and dropped under a counter of its own where it fails:
    /// number of the queue pair, service, state, partition, addresses. What follows is the
    /// queue pair's business.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        packet: &Packet<'_, Verified>,
        memory: &mut impl Memory,
    ) {
        let bth = packet.headers().bth;
        let service = bth.opcode.info().service;
        let handled =
            self.with_qp(now, bth.dest_qp, |queue_pair, cx| match (queue_pair, service) {
                (QueuePair::Rc(rc), Service::Rc) => rc.handle_packet(packet, memory, cx),
                (_, Service::Cnp) => cx.dropped(bth.psn, DropReason::Congestion),
                _ => cx.dropped(bth.psn, DropReason::WrongService),
            });
        if handled.is_none() {
            let Self { config, out, time, .. } = self;
            let (time, qpn) = (time.latest(), bth.dest_qp);
            let mut cx = Context { now, time, qpn, is_alone: false, config, out };
            cx.dropped(bth.psn, DropReason::UnknownQp);
        }
    }

    /// Does what is due at `now`. Packets that have arrived are handed over first, or an answer
    /// that is there already might be missed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let time = self.advance(now);
        self.time_run_queue(time);
        while let Some(peer) = self.peers.take_due(time) {
            self.run_queue.push(Runnable::PeerWaiters(peer));
        }
        while let Some(index) = self.timers.take_due(time) {
            let Some(slot) = self.qps[index].as_mut() else { continue };
            slot.timer_at = None;
            let qpn = slot.qpn;
            let peer = slot.peer.map(|(_, peer)| self.peers.view(peer, slot.wait_ticket, time));
            self.with_qp(now, qpn, |queue_pair, cx| match queue_pair {
                QueuePair::Rc(rc) => rc.handle_timeout(peer.unwrap_or_default(), cx),
            });
        }
    }

    /// The driver's running time at its `now`.
    #[inline]
    fn advance(&mut self, now: Instant) -> Instant {
        let Self { time, timers, peers, .. } = self;
        time.advance(now, || earlier(timers.earliest(), peers.earliest()))
    }

    /// Gives a timer to each queue pair that has requests and has not had its turn.
    fn time_run_queue(&mut self, time: Instant) {
        if core::mem::replace(&mut self.is_run_queue_timed, true) {
            return;
        }
        for index in self.run_queue.queue_pairs() {
            let Some(slot) = self.qps[index].as_mut() else { continue };
            let QueuePair::Rc(rc) = &mut slot.queue_pair;
            rc.keep_timed(time);
            self.timers.set(index, &mut slot.timer_at, rc.poll_timeout());
            self.debug_assert_timed(index);
        }
    }

    /// Checks that a timer ends the requests of the queue pair in this slot.
    #[inline]
    fn debug_assert_timed(&self, index: usize) {
        if !cfg!(debug_assertions) {
            return;
        }
        let Some(slot) = self.qps[index].as_ref().filter(|_| self.is_run_queue_timed) else {
            return;
        };
        let QueuePair::Rc(rc) = &slot.queue_pair;
        let is_entered = match (slot.timer_at, rc.poll_timeout()) {
            (Some(entered), Some(wanted)) => entered <= wanted,
            (_, wanted) => wanted.is_none(),
        };
        assert!(is_entered && rc.is_timed(), "no timer ends the requests of {slot:?}");
    }

    /// A completion queue overflowed: its queue pairs go to ERROR.
    pub fn handle_cq_overflow(&mut self, now: Instant, cq: CqHandle) {
        let event = AsyncEvent::CqError { cq };
        // What the flush completes overflows it again.
        if !self.out.events.contains(&event) {
            self.out.events.push_back(event);
        }
        let uses_it = |slot: &&Slot| match &slot.queue_pair {
            QueuePair::Rc(rc) => rc.init().send_cq == cq || rc.init().recv_cq == cq,
        };
        let hit: Vec<Qpn> =
            self.qps.iter().flatten().filter(uses_it).map(|slot| slot.qpn).collect();
        for qpn in hit {
            self.with_qp(now, qpn, |queue_pair, cx| match queue_pair {
                QueuePair::Rc(rc) => rc.handle_failure(cx),
            });
        }
    }

    /// The next completion and the queue that it belongs to.
    pub fn poll_completion(&mut self) -> Option<(CqHandle, Completion)> {
        self.out.completions.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.out.events.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) at the latest. It may turn out
    /// that nothing was due: a deadline that moves away is looked at again when the old one
    /// comes. A driver that cannot send what was posted, since the interface takes nothing, is asked
    /// to call at once: from then on a timer runs.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let is_untimed = !self.is_run_queue_timed && !self.run_queue.is_empty();
        let at = if is_untimed {
            Some(self.time.latest())
        } else {
            earlier(self.timers.earliest(), self.peers.earliest())
        };
        at.map(|at| self.time.to_driver(at))
    }

    /// How often what happened.
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

    /// Does something to a queue pair, and sees to it that it is heard and woken afterwards;
    /// `None` if there is none of this number.
    fn with_qp<T>(
        &mut self,
        now: Instant,
        qpn: Qpn,
        work: impl FnOnce(&mut QueuePair, &mut Context<'_, O>) -> T,
    ) -> Option<T> {
        let time = self.advance(now);
        let (index, result) = self.lookup(now, qpn, work)?;
        if let Some(slot) = self.qps[index].as_mut() {
            let QueuePair::Rc(rc) = &mut slot.queue_pair;
            self.timers.set(index, &mut slot.timer_at, rc.poll_timeout());
            if let (Some(feedback), Some((_, peer))) = (rc.take_feedback(), slot.peer) {
                let peer_window = self.peers.window(peer);
                peer_window.on_feedback(feedback, time);
                if !peer_window.waiters.is_empty() {
                    self.run_queue.push(Runnable::PeerWaiters(peer));
                }
            }
        }
        self.run_queue.push(Runnable::QueuePair(index));
        self.debug_assert_timed(index);
        Some(result)
    }

    /// Does something to a queue pair, and says what its place is.
    fn lookup<T>(
        &mut self,
        now: Instant,
        qpn: Qpn,
        work: impl FnOnce(&mut QueuePair, &mut Context<'_, O>) -> T,
    ) -> Option<(usize, T)> {
        let index = self.index_of(qpn)?;
        let slot = self.qps[index].as_mut()?;
        let (config, out) = (&self.config, &mut self.out);
        let time = self.time.latest();
        let mut cx = Context { now, time, qpn, is_alone: false, config, out };
        Some((index, work(&mut slot.queue_pair, &mut cx)))
    }

    /// The place of a queue pair. Mostly it is the one that was asked for last.
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

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
