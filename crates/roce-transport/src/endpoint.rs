//! All queue pairs of a device, and the face that the driver sees.

mod numbers;
mod transmit;

pub use transmit::{Transmit, TransmitLimits};

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::net::IpAddr;

use roce_wire::{Packet, Qpn, Service, Verified};

use self::numbers::QpnHasher;
use crate::context::{Context, DropReason, Outbox};
use crate::line;
use crate::peers::Peers;
use crate::rc::RcQueuePair;
use crate::ready::{ReadyList, Turn};
use crate::suspended::SuspendedQueues;
use crate::timers::Alarm;
use crate::{
    ApiMisuse, AsyncEvent, Completion, Counters, CqHandle, EndpointConfig, Instant, Memory,
    ModifyError, Observer, PostError, QpAttributes, QpInfo, QpInit, RecvWork, SendWork,
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
/// backwards.
///
/// ```
/// use roce_transport::{
///     Capacities, CqHandle, Endpoint, EndpointConfig, Instant, PdHandle, PostError, QpInit,
///     QpState, RecvWork, Service,
/// };
/// use roce_wire::Qpn;
///
/// let mut endpoint = Endpoint::new(EndpointConfig::default());
/// let qpn = Qpn::new(0x11).unwrap();
/// let init = QpInit {
///     pd: PdHandle(1),
///     send_cq: CqHandle(1),
///     recv_cq: CqHandle(1),
///     capacities: Capacities::default(),
///     signal_all: true,
///     service: Service::Rc,
/// };
/// endpoint.create_qp(qpn, init).unwrap();
///
/// // Nothing may be posted before the queue pair is brought out of RESET.
/// let refused = endpoint.post_recv(Instant::default(), qpn, RecvWork::new(1, []));
/// assert_eq!(refused, Err(PostError::WrongState { state: QpState::Reset }));
/// assert_eq!(endpoint.poll_timeout(), None);
/// ```
#[derive(Debug)]
pub struct Endpoint<O: Observer = ()> {
    config: EndpointConfig,
    out: Outbox<O>,
    /// Places of queue pairs; a place whose queue pair is destroyed is used again.
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    numbers: HashMap<Qpn, usize, BuildHasherDefault<QpnHasher>>,
    /// What was found there last.
    last_found: Option<(Qpn, usize)>,
    ready: ReadyList,
    /// Whose turn is not over.
    goes_on: Option<usize>,
    /// Acknowledgements are held back.
    holds_acks: bool,
    /// Who owes one that was.
    held: ReadyList,
    suspended: SuspendedQueues,
    alarm: Alarm,
    peers: Peers,
}

/// A queue pair in its place.
#[derive(Debug)]
struct Slot {
    qpn: Qpn,
    queue_pair: QueuePair,
    /// Where in the alarm it is entered.
    alarm_at: Option<Instant>,
    /// Whom it sends to, once it has a path.
    peer: Option<(IpAddr, usize)>,
    /// Where it stands in line before that peer's gate, if it does.
    in_line: Option<line::Place>,
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
            out: Outbox::new(observer),
            slots: Vec::new(),
            free: Vec::new(),
            numbers: HashMap::default(),
            last_found: None,
            ready: ReadyList::default(),
            goes_on: None,
            holds_acks: false,
            held: ReadyList::default(),
            suspended: SuspendedQueues::default(),
            alarm: Alarm::default(),
            peers: Peers::default(),
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
        if self.numbers.contains_key(&qpn) {
            return Err(ApiMisuse::QpExists(qpn));
        }
        init.capacities.judge()?;
        let queue_pair = match init.service {
            Service::Rc => QueuePair::Rc(Box::new(RcQueuePair::new(qpn, init, &self.config))),
            other => return Err(ApiMisuse::ServiceNotSupported(other)),
        };
        let slot = Some(Slot { qpn, queue_pair, alarm_at: None, peer: None, in_line: None });
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.numbers.insert(qpn, index);
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
        self.find_peer(qpn);
        modified.unwrap_or(Err(ModifyError::UnknownQp(qpn)))
    }

    /// The queue pair may have got another path.
    fn find_peer(&mut self, qpn: Qpn) {
        let Some(&index) = self.numbers.get(&qpn) else { return };
        let Some(slot) = self.slots[index].as_mut() else { return };
        let QueuePair::Rc(rc) = &mut slot.queue_pair;
        let address = rc.path().map(|path| path.remote);
        if slot.peer.map(|(address, _)| address) == address {
            return;
        }
        if let Some((_, peer)) = slot.peer {
            self.peers.leave(peer, slot.in_line.take());
            rc.forget_freight();
        }
        slot.peer = address.map(|it| (it, self.peers.join(it, self.config.peer)));
    }

    /// What a queue pair tells about itself; `None` if there is none of this number.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpInfo> {
        let slot = self.slots.get(*self.numbers.get(&qpn)?)?.as_ref()?;
        match &slot.queue_pair {
            QueuePair::Rc(rc) => Some(rc.info()),
        }
    }

    /// Removes a queue pair without completing what is posted; false if there is none of this
    /// number. Completions that it has made already are still to be polled.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> bool {
        let Some(index) = self.numbers.remove(&qpn) else { return false };
        self.last_found = None;
        self.goes_on.take_if(|it| *it == index);
        if let Some(mut slot) = self.slots[index].take() {
            self.alarm.forget(index, &mut slot.alarm_at);
            if let Some((_, peer)) = slot.peer {
                self.peers.leave(peer, slot.in_line);
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
    pub fn post_send(&mut self, now: Instant, qpn: Qpn, work: SendWork) -> Result<(), PostError> {
        // It waits for its turn; no timer is set before that comes. Written out, since through
        // closures the request would be moved more often.
        let Some(index) = self.index_of(qpn) else { return Err(PostError::UnknownQp(qpn)) };
        let Some(slot) = self.slots[index].as_mut() else { return Err(PostError::UnknownQp(qpn)) };
        let (config, out) = (&self.config, &mut self.out);
        let mut cx = Context { now, qpn, is_alone: false, config, out };
        let QueuePair::Rc(rc) = &mut slot.queue_pair;
        rc.post_send(work, &mut cx)?;
        self.ready.push(Turn::QueuePair(index));
        Ok(())
    }

    /// Posts a request to the receive queue.
    ///
    /// # Errors
    /// [`PostError`]; then nothing was posted.
    pub fn post_recv(&mut self, now: Instant, qpn: Qpn, work: RecvWork) -> Result<(), PostError> {
        // Nothing leaves because of it, and no timer changes.
        let posted = self.find(now, qpn, |queue_pair, cx| match queue_pair {
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
        let service = bth.opcode.shape().service;
        let handled =
            self.with_qp(now, bth.dest_qp, |queue_pair, cx| match (queue_pair, service) {
                (QueuePair::Rc(rc), Service::Rc) => rc.handle_packet(packet, memory, cx),
                (_, Service::Cnp) => cx.dropped(bth.psn, DropReason::Congestion),
                _ => cx.dropped(bth.psn, DropReason::WrongService),
            });
        if handled.is_none() {
            let Self { config, out, .. } = self;
            let mut cx = Context { now, qpn: bth.dest_qp, is_alone: false, config, out };
            cx.dropped(bth.psn, DropReason::UnknownQp);
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(peer) = self.peers.take_due(now) {
            self.ready.push(Turn::Line(peer));
        }
        while let Some(index) = self.alarm.take_due(now) {
            let Some(slot) = self.slots[index].as_mut() else { continue };
            slot.alarm_at = None;
            let qpn = slot.qpn;
            self.with_qp(now, qpn, |queue_pair, cx| match queue_pair {
                QueuePair::Rc(rc) => rc.handle_timeout(cx),
            });
        }
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
            self.slots.iter().flatten().filter(uses_it).map(|slot| slot.qpn).collect();
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
    /// comes.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.alarm.earliest().into_iter().chain(self.peers.earliest()).min()
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
        let (index, result) = self.find(now, qpn, work)?;
        if let Some(slot) = self.slots[index].as_mut() {
            let QueuePair::Rc(rc) = &mut slot.queue_pair;
            self.alarm.set(index, &mut slot.alarm_at, rc.poll_timeout());
            if let (Some(news), Some((_, peer))) = (rc.take_news(), slot.peer) {
                let gate = self.peers.gate(peer);
                gate.on_news(news);
                if !gate.line.is_empty() {
                    self.ready.push(Turn::Line(peer));
                }
            }
        }
        self.ready.push(Turn::QueuePair(index));
        Some(result)
    }

    /// Does something to a queue pair, and says what its place is.
    fn find<T>(
        &mut self,
        now: Instant,
        qpn: Qpn,
        work: impl FnOnce(&mut QueuePair, &mut Context<'_, O>) -> T,
    ) -> Option<(usize, T)> {
        let index = self.index_of(qpn)?;
        let slot = self.slots[index].as_mut()?;
        let (config, out) = (&self.config, &mut self.out);
        let mut cx = Context { now, qpn, is_alone: false, config, out };
        Some((index, work(&mut slot.queue_pair, &mut cx)))
    }

    /// The place of a queue pair. Mostly it is the one that was asked for last.
    #[inline]
    fn index_of(&mut self, qpn: Qpn) -> Option<usize> {
        match self.last_found {
            Some((last, index)) if last == qpn => Some(index),
            _ => {
                let index = *self.numbers.get(&qpn)?;
                self.last_found = Some((qpn, index));
                Some(index)
            }
        }
    }
}
