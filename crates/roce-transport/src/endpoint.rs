//! All queue pairs of a device, and the face that the driver sees.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;

use roce_wire::{Packet, Qpn, Service, Verified};

use crate::context::{Context, DropReason, Outbox};
use crate::peers::Peers;
use crate::rc::{Left, RcQueuePair};
use crate::ready::{ReadyList, Turn};
use crate::timers::Alarm;
use crate::train::TrainWriter;
use crate::{
    ApiMisuse, AsyncEvent, Completion, Counters, CqHandle, EndpointConfig, Instant, Memory,
    ModifyError, Observer, PacketSealer, PathHandle, PostError, QpAttributes, QpInfo, QpInit,
    RecvWork, SendWork,
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
    held: Vec<usize>,
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
    /// It stands in line before that peer's gate.
    is_in_line: bool,
}

/// Queue pairs by service.
#[derive(Debug)]
enum QueuePair {
    Rc(Box<RcQueuePair>),
}

/// What a driver can take in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitLimits {
    /// Packets of one train, at least 1.
    pub max_packets: usize,
}

/// A train of packets of one queue pair, written into the driver's buffer just as
/// [`roce_wire::seal`] wants it behind the headroom: each segment is a packet from its BTH to
/// its last pad byte and 4 bytes of room for its ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The queue pair that sends.
    pub qpn: Qpn,
    /// Its peer.
    pub dest_qpn: Qpn,
    /// The way there.
    pub path: PathHandle,
    /// Bytes of every segment but the last, which may be shorter.
    pub segment_len: usize,
    /// Bytes of all segments together.
    pub len: usize,
    /// How many segments.
    pub packets: usize,
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
            held: Vec::new(),
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
        let slot = Some(Slot { qpn, queue_pair, alarm_at: None, peer: None, is_in_line: false });
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
        let QueuePair::Rc(rc) = &slot.queue_pair;
        let address = rc.path().map(|path| path.remote);
        if slot.peer.map(|(address, _)| address) == address {
            return;
        }
        if let Some((_, peer)) = slot.peer {
            self.peers.leave(peer, index);
            slot.is_in_line = false;
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
        if let Some(mut slot) = self.slots[index].take() {
            self.alarm.forget(index, &mut slot.alarm_at);
            if let Some((_, peer)) = slot.peer {
                self.peers.leave(peer, index);
            }
        }
        self.ready.remove(index);
        self.held.retain(|it| *it != index);
        self.free.push(index);
        true
    }

    /// Posts a request to the send queue.
    ///
    /// # Errors
    /// [`PostError`]; then nothing was posted.
    #[inline]
    pub fn post_send(&mut self, now: Instant, qpn: Qpn, work: SendWork) -> Result<(), PostError> {
        self.with_qp(now, qpn, |queue_pair, cx| match queue_pair {
            QueuePair::Rc(rc) => rc.post_send(work, cx),
        })
        .unwrap_or(Err(PostError::UnknownQp(qpn)))
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

    /// From now on, acknowledgements wait (`true`), or those that waited may leave (`false`).
    ///
    /// For a driver whose application is about to answer what has just arrived: the answer should
    /// not have to wait until an acknowledgement, for which nobody waits, is on its way. Only what
    /// says nothing but "arrived" is held; NAKs and the answers to READs and atomics never are.
    /// The peer takes silence for loss after a while, so release soon: whatever came meanwhile is
    /// then acknowledged by one packet.
    ///
    /// ```
    /// let mut endpoint = roce_transport::Endpoint::new(Default::default());
    /// assert_eq!(endpoint.acks_due(), 0); // nothing has arrived
    /// endpoint.hold_acks(true);
    /// // here the application looks at what has arrived, and answers
    /// endpoint.hold_acks(false);
    /// ```
    pub fn hold_acks(&mut self, hold: bool) {
        self.holds_acks = hold;
        if !hold {
            self.held.drain(..).for_each(|index| self.ready.push(Turn::QueuePair(index)));
        }
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) may have something: if not, there is no
    /// need to ask.
    pub fn may_transmit(&self) -> bool {
        self.goes_on.is_some() || !self.ready.is_empty()
    }

    /// How often an acknowledgement has become due, counted from the beginning: more than before
    /// means that the peer has sent something that asks for one.
    pub fn acks_due(&self) -> u64 {
        self.out.acks_due
    }

    /// Writes the next train that may leave now into `buf`, if there is one.
    ///
    /// `buf` is the driver's own transmit slot behind the headroom, so that a payload is
    /// copied once, from the registered region to where it leaves. Queue pairs take turns,
    /// one train each; those whose peer has as much to take in already as it can hold
    /// ([`PeerConfig`](crate::PeerConfig)) stand in line until it answers.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        memory: &mut impl Memory,
        limits: TransmitLimits,
        buf: &mut [u8],
    ) -> Option<Transmit> {
        self.poll_transmit_sealed(now, memory, limits, buf, &mut ())
    }

    /// As [`poll_transmit`](Self::poll_transmit), and lets `sealer` finish each packet when it is
    /// written.
    pub fn poll_transmit_sealed(
        &mut self,
        now: Instant,
        memory: &mut impl Memory,
        limits: TransmitLimits,
        buf: &mut [u8],
        sealer: &mut dyn PacketSealer,
    ) -> Option<Transmit> {
        let max_packets = limits.max_packets.min(self.config.max_train_packets);
        while let Some(turn) = self.goes_on.take().map(Turn::GoesOn).or_else(|| self.ready.pop()) {
            let Some((index, may_request)) = self.admit(turn, now) else { continue };
            let Some(slot) = self.slots[index].as_mut() else { continue };
            let gate = slot.peer.filter(|_| may_request).map(|(_, peer)| self.peers.gate(peer));
            let qpn = slot.qpn;
            let is_alone = self.ready.is_empty();
            let mut cx = Context { now, qpn, is_alone, config: &self.config, out: &mut self.out };
            let QueuePair::Rc(rc) = &mut slot.queue_pair;
            if let Some((path, dest_qpn)) = rc.way() {
                sealer.begin(qpn, dest_qpn, path);
            }
            let mut train = TrainWriter::new(buf, sealer, max_packets);
            let held_one = rc.transmit(self.holds_acks, gate, memory, &mut train, &mut cx);
            train.finish();
            self.alarm.set(index, &mut slot.alarm_at, rc.poll_timeout());
            if train.is_too_short() {
                self.out.counters.send_err += 1;
            }
            let (len, segment_len, packets) = (train.len(), train.segment_len(), train.packets());
            let Some((path, dest_qpn)) = rc.way().filter(|_| packets > 0) else {
                // Few at a time, and each once, however long they are held.
                if held_one && !self.held.contains(&index) {
                    self.held.push(index);
                }
                continue;
            };
            if may_request && rc.is_unasked() {
                // Were it to wait for its next turn now, it would wait for an answer too, which
                // nobody has been asked for: a turn is a first packet and the train behind it.
                self.goes_on = Some(index);
            } else {
                match rc.has_left(self.holds_acks) {
                    Left::Something => self.ready.push(Turn::QueuePair(index)),
                    Left::HeldAck if !self.held.contains(&index) => self.held.push(index),
                    Left::HeldAck | Left::Nothing => {}
                }
            }
            self.out.counters.sent_pkts += packets as u64;
            self.out.observer.transmitted(now, qpn, packets);
            return Some(Transmit { qpn, dest_qpn, path, segment_len, len, packets });
        }
        None
    }

    /// Which queue pair's turn this is, and whether it may send requests; `None` if nobody's.
    fn admit(&mut self, turn: Turn, now: Instant) -> Option<(usize, bool)> {
        match turn {
            Turn::Line(peer) => {
                let gate = self.peers.gate(peer);
                if !gate.has_room() {
                    self.peers.note_shut(peer, now);
                    return None;
                }
                let first = gate.line.pop_front()?;
                if let Some(slot) = self.slots[first].as_mut() {
                    slot.is_in_line = false;
                }
                if !gate.line.is_empty() {
                    self.ready.push(turn);
                }
                Some((first, true))
            }
            Turn::GoesOn(index) => {
                let slot = self.slots[index].as_mut()?;
                let (_, peer) = slot.peer?;
                let gate = self.peers.gate(peer);
                if !gate.has_room() && !slot.is_in_line {
                    slot.is_in_line = true;
                    gate.line.push_front(index);
                    self.ready.push(Turn::Line(peer));
                    return None;
                }
                Some((index, gate.has_room()))
            }
            Turn::QueuePair(index) => {
                let slot = self.slots[index].as_mut()?;
                let QueuePair::Rc(rc) = &slot.queue_pair;
                let (_, peer) = slot.peer?;
                let gate = self.peers.gate(peer);
                if gate.is_open() {
                    return Some((index, true));
                }
                if rc.has_requests() && !slot.is_in_line {
                    slot.is_in_line = true;
                    gate.line.push_back(index);
                    self.ready.push(Turn::Line(peer));
                }
                rc.has_answers().then_some((index, false))
            }
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

/// Queue pair numbers are given out at random already: spreading them further would be work
/// for nothing.
#[derive(Debug, Default)]
struct QpnHasher(u64);

impl Hasher for QpnHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        // Not used by `Qpn`; right for whatever comes.
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }
    fn write_u32(&mut self, number: u32) {
        // A table takes its place from the low bits and its tag from the high ones.
        self.0 = (self.0.rotate_left(5) ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
