//! One of two connected engines: its memory, its queue pairs, and the expected results.

use core::net::{IpAddr, Ipv4Addr};

use std::collections::BTreeSet;

use roce_wire::{GRH_LEN, PathMtu, Psn, Qpn, RnrTimer, Service};

use super::memory::Guarded;
use super::workload::{Kind, MAX_INLINE, MAX_ORDERS, SHARED, SLOT, WorkItem};
use super::wr_tracker::WrTracker;
use crate::{
    AccessFlags, AckTimeout, Completion, CompletionOperation, CompletionStatus, CqHandle,
    Destination, Endpoint, EndpointConfig, Instant, PathAttributes, PathHandle, PdHandle,
    QpAttributes, QpCap, QpInfo, QpInit, QpState, RecvWr, RemoteAddr, SendOperation, SendWr,
    SgList, Sge, SrqHandle, SrqInit,
};

/// What both ends agree upon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) service: Service,
    /// The queue pairs of a side share their receives.
    pub(super) is_shared: bool,
    pub(super) mtu: PathMtu,
    pub(super) first_psn: [Psn; 2],
    pub(super) ack_timeout: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry: u8,
    pub(super) rnr_timer: RnrTimer,
    pub(super) max_rd_atomic: u8,
    pub(super) signal_all: bool,
    /// Queue pairs of each side.
    pub(super) connections: usize,
}

/// One engine with its application.
pub(super) struct Side {
    index: usize,
    pub(super) endpoint: Endpoint,
    memory: Guarded,
    pub(super) path: PathAttributes,
    service: Service,
    mtu: PathMtu,
    /// The shared receive queue, and what was posted to it and has not completed.
    srq: Option<(SrqHandle, BTreeSet<u64>)>,
    /// Of each connection.
    ledgers: Vec<WrTracker>,
    signal_all: bool,
    /// Of each connection the peer's orders that use up a receive, and how many of them have been
    /// received.
    incoming: Vec<(Vec<usize>, usize)>,
    /// The shared bytes as they were last seen.
    shared: Vec<u8>,
    /// How the first request of each connection ended that failed.
    pub(super) failures: Vec<Option<CompletionStatus>>,
    succeeded: Vec<bool>,
}

/// The queue pair of a connection: the same at both ends.
fn qpn(connection: usize) -> Qpn {
    // Datagrams to number 1 have rules of their own.
    Qpn::new(2 + connection as u32).expect("a small number")
}

const PD: PdHandle = PdHandle(1);
/// The Q_Key of every datagram.
const Q_KEY: u32 = 0x1111_1111;

/// Regions by index; each order has a slot of its own in most.
const SOURCE: usize = 0;
const TARGET: usize = 1;
const RECEIVES: usize = 2;
const RESULTS: usize = 3;
const WORDS: usize = 4;
const WRITTEN_OVER: usize = 5;
const TAGS: usize = 6;
/// The region that order 0 closes, if it is a SEND with invalidate.
const DOOMED: usize = 7;

/// Bytes of the words of a connection: one that is added to, and one that is swapped.
const WORD_PAIR: usize = 16;

/// Where in the source region the bytes of an order start: not where another's do.
const fn skew(number: usize) -> usize {
    number * 7
}

/// Bytes that do not repeat themselves.
fn source_byte(side: usize, at: usize) -> u8 {
    ((at * at).wrapping_mul(0x9e37_79b1) >> 7) as u8 ^ side as u8 ^ at as u8
}

impl Side {
    pub(super) fn new(
        index: usize,
        link: &Link,
        config: EndpointConfig,
        orders: &[WorkItem],
    ) -> Self {
        let address = |index: usize| IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1 + index as u8));
        let (local, remote) = (address(index), address(1 - index));
        let path = PathAttributes { handle: PathHandle(5), local, remote, max_rate: None };
        let incoming = |connection| {
            let theirs = orders.iter().enumerate().filter(|(_, it)| it.side != index);
            let theirs = theirs.filter(|(_, it)| it.connection == connection);
            let taking = theirs.filter(|(_, it)| it.kind.takes_receive());
            (taking.map(|(number, _)| number).collect(), 0)
        };
        let mut side = Self {
            index,
            endpoint: Endpoint::new(config),
            memory: memory(index, orders.len(), link.connections),
            path,
            service: link.service,
            mtu: link.mtu,
            srq: None,
            ledgers: (0..link.connections).map(|_| WrTracker::default()).collect(),
            signal_all: link.signal_all,
            incoming: (0..link.connections).map(incoming).collect(),
            shared: vec![0; SHARED * link.connections],
            failures: vec![None; link.connections],
            succeeded: vec![false; orders.len()],
        };
        if link.is_shared {
            let init = SrqInit { pd: PD, max_wr: MAX_ORDERS as u32, max_sge: 2 };
            let srq = side.endpoint.create_srq(init).expect("a small queue");
            side.srq = Some((srq, BTreeSet::new()));
        }
        (0..link.connections).for_each(|connection| side.bring_up(connection, link));
        side
    }

    /// One call into the engine.
    pub(super) fn call<T>(&mut self, call: impl FnOnce(&mut Endpoint, &mut Guarded) -> T) -> T {
        self.memory.calls += 1;
        call(&mut self.endpoint, &mut self.memory)
    }

    pub(super) fn states(&self) -> impl Iterator<Item = QpState> {
        (0..self.ledgers.len()).map(|connection| self.info(connection).state)
    }

    pub(super) fn judge_ledgers(&self) {
        for (connection, tracker) in self.ledgers.iter().enumerate() {
            tracker.validate(&self.info(connection));
        }
    }

    fn info(&self, connection: usize) -> QpInfo {
        self.endpoint.query_qp(qpn(connection)).expect("it is never destroyed")
    }

    /// Posts the receive for an order of the peer's.
    pub(super) fn post_receive(&mut self, now: Instant, number: usize, order: &WorkItem) {
        let qpn = qpn(order.connection);
        let half = SLOT / 2;
        let pieces = [0, half].map(|at| self.piece(RECEIVES, number * SLOT + at, half));
        let work = RecvWr::new(number as u64, pieces);
        if let Some((srq, posted)) = &mut self.srq {
            let srq = *srq;
            posted.insert(number as u64);
            let post = |endpoint: &mut Endpoint| endpoint.post_srq_recv(now, srq, work);
            return self.call(|endpoint, _| post(endpoint)).expect("there is room");
        }
        self.call(|endpoint, _| endpoint.post_recv(now, qpn, work)).expect("there is room");
        self.ledgers[order.connection].posted_receive(number as u64);
    }

    /// Posts an order of our own.
    pub(super) fn post_send(&mut self, now: Instant, number: usize, order: &WorkItem) {
        let mut work = self.request(number, order);
        work.fence = order.is_fenced;
        work.signaled = !order.is_silent;
        work.defer_ack = order.is_lazy;
        let is_signaled = work.signaled || self.signal_all;
        let qpn = qpn(order.connection);
        let to = Destination { path: self.path, mtu: self.mtu, qpn, q_key: Q_KEY };
        let is_datagram = self.service == Service::Ud;
        let post = |endpoint: &mut Endpoint| match is_datagram {
            true => endpoint.post_send_to(now, qpn, work, to),
            false => endpoint.post_send(now, qpn, work),
        };
        self.call(|endpoint, _| post(endpoint)).expect("there is room");
        self.ledgers[order.connection].posted_send(number as u64, is_signaled);
    }

    fn request(&self, number: usize, order: &WorkItem) -> SendWr {
        // The peer's regions are made as ours.
        let remote = |region: usize, at: usize| {
            let Sge { lkey: key, addr: address, .. } = self.piece(region, at, 0);
            RemoteAddr { addr: address, rkey: key }
        };
        let slot = number * SLOT;
        let [words, written_over] = [WORD_PAIR, SHARED].map(|it| it * order.connection);
        let immediate = Some([number as u8; 4]);
        let to_target = remote(TARGET, slot);
        let operation = match order.kind {
            Kind::Send => SendOperation::send(),
            Kind::SendImmediate => SendOperation::Send { immediate, invalidate: None },
            Kind::SendInvalidate => {
                let key = self.piece(DOOMED + number, 0, 0).lkey;
                SendOperation::Send { immediate: None, invalidate: Some(key) }
            }
            Kind::Write => SendOperation::write(to_target),
            Kind::WriteImmediate => SendOperation::Write { remote: to_target, immediate },
            Kind::WriteShared => SendOperation::write(remote(WRITTEN_OVER, written_over)),
            Kind::Read => SendOperation::read(remote(SOURCE, skew(number))),
            Kind::FetchAdd => {
                SendOperation::FetchAdd { remote: remote(WORDS, words), add: added(number) }
            }
            Kind::CompareSwap => SendOperation::CompareSwap {
                remote: remote(WORDS, words + 8),
                compare: 0,
                swap: number as u64 + 1,
            },
        };
        let (region, at) = match order.kind {
            Kind::Read | Kind::FetchAdd | Kind::CompareSwap => (RESULTS, slot),
            Kind::WriteShared => (TAGS, number * SHARED),
            _ => (SOURCE, skew(number)),
        };
        if order.is_inline {
            let bytes = self.memory.regions[region].bytes[at..at + order.len].to_vec();
            return SendWr::inline(number as u64, operation, bytes);
        }
        let first = if order.is_in_pieces { order.len / 3 } else { order.len };
        let pieces = [(0, first), (first, order.len - first)]
            .map(|(skip, len)| self.piece(region, at + skip, len));
        let pieces = if order.is_in_pieces { &pieces[..] } else { &pieces[..1] };
        SendWr::new(number as u64, operation, SgList::from(pieces))
    }

    /// Work ended: if well, it has come to what it should.
    pub(super) fn completed(&mut self, completion: &Completion, peer: &Self, orders: &[WorkItem]) {
        let number = completion.wr_id as usize;
        let order = &orders[number];
        let is_receive = order.side != self.index;
        let is_connection = |connection: &usize| completion.qpn == qpn(*connection);
        let connection = (0..self.ledgers.len()).find(is_connection).expect("a queue pair of ours");
        match &mut self.srq {
            Some((_, posted)) if is_receive => {
                assert!(posted.remove(&completion.wr_id), "not posted: {completion:?}");
            }
            _ => {
                assert_eq!(connection, order.connection);
                self.ledgers[connection].completed(completion, self.service);
            }
        }
        match completion.status {
            CompletionStatus::Success => {}
            CompletionStatus::WorkRequestFlushed
            | CompletionStatus::RetryExceeded
            | CompletionStatus::RnrRetryExceeded
                if self.service == Service::Rc =>
            {
                self.failures[connection].get_or_insert(completion.status);
                return;
            }
            _ => panic!("between two that mean well: {completion:?}, {order:?}"),
        }
        if is_receive {
            self.has_received(connection, completion, peer, orders);
        } else {
            self.succeeded[number] = true;
            if self.service == Service::Rc {
                self.judge_send(number, peer, orders);
            }
        }
    }

    /// Returns the order of the peer's that a receive has received: the next one of a reliable
    /// connection, a later one of an unreliable connection, any datagram.
    fn find_received(
        &self,
        connection: usize,
        completion: &Completion,
        peer: &Self,
        orders: &[WorkItem],
    ) -> usize {
        let (incoming, received) = &self.incoming[connection];
        if self.service == Service::Rc {
            return *received;
        }
        let first = if self.service == Service::Uc { *received } else { 0 };
        let is_like = |position: &usize| {
            let number = incoming[*position];
            let order = &orders[number];
            let len = self.header_len(order) + order.len;
            let operation = match order.kind {
                Kind::WriteImmediate => CompletionOperation::RecvWithImmediate,
                _ => CompletionOperation::Recv,
            };
            let has_immediate = matches!(order.kind, Kind::SendImmediate | Kind::WriteImmediate);
            completion.byte_len as usize == len
                && completion.operation == operation
                && completion.immediate == has_immediate.then_some([number as u8; 4])
                && (!order.kind.is_send() || {
                    let slot = completion.wr_id as usize * SLOT + self.header_len(order);
                    let bytes = &self.memory.regions[RECEIVES].bytes[slot..][..order.len];
                    bytes == peer.sent(number, order.len)
                })
        };
        let found = (first..incoming.len()).find(is_like);
        found.unwrap_or_else(|| panic!("no peer sent what came, or it came again: {completion:?}"))
    }

    /// Bytes in front of a message in its receive.
    fn header_len(&self, order: &WorkItem) -> usize {
        if self.service == Service::Ud && order.kind.is_send() { GRH_LEN } else { 0 }
    }

    /// Nothing was lost, and every receive was posted in time.
    pub(super) fn judge_all_received(&self) {
        for (incoming, received) in &self.incoming {
            assert_eq!(*received, incoming.len(), "a message was lost on the way");
        }
    }

    fn has_received(
        &mut self,
        connection: usize,
        completion: &Completion,
        peer: &Self,
        orders: &[WorkItem],
    ) {
        let position = self.find_received(connection, completion, peer, orders);
        let (incoming, received) = &mut self.incoming[connection];
        let number = incoming[position];
        // Datagrams come in any order, and again.
        *received = if self.service == Service::Ud { *received + 1 } else { position + 1 };
        let order = &orders[number];
        let slot = completion.wr_id as usize;
        if self.service == Service::Rc && self.srq.is_none() {
            assert_eq!(slot, number, "the receive was posted for this one");
        }
        assert_eq!(completion.byte_len as usize, self.header_len(order) + order.len);
        let is_datagram = self.service == Service::Ud;
        assert_eq!(completion.source_qpn, is_datagram.then(|| qpn(connection)));
        let (operation, immediate) = match order.kind {
            Kind::WriteImmediate => (CompletionOperation::RecvWithImmediate, true),
            Kind::SendImmediate => (CompletionOperation::Recv, true),
            _ => (CompletionOperation::Recv, false),
        };
        assert_eq!(completion.operation, operation);
        assert_eq!(completion.immediate, immediate.then_some([number as u8; 4]));
        let is_invalidating = order.kind == Kind::SendInvalidate;
        assert_eq!(completion.invalidated_key.is_some(), is_invalidating);
        assert_eq!(self.memory.regions[DOOMED + number].is_alive, !is_invalidating);
        let data = peer.sent(number, order.len);
        if !order.kind.is_send() {
            self.assert_slot(TARGET, number, data, true);
        } else if self.service == Service::Rc {
            self.assert_slot(RECEIVES, slot, data, true);
        }
    }

    /// A request of ours succeeded, so the peer has executed it.
    fn judge_send(&self, number: usize, peer: &Self, orders: &[WorkItem]) {
        let order = &orders[number];
        let earlier = |kind| {
            let mine = orders[..number].iter().enumerate();
            let mine = mine.filter(move |(_, it)| it.side == self.index && it.kind == kind);
            mine.filter(move |(_, it)| it.connection == order.connection)
        };
        match order.kind {
            Kind::Write | Kind::WriteImmediate => {
                peer.assert_slot(TARGET, number, self.sent(number, order.len), true);
            }
            Kind::WriteShared => {
                let bytes = &peer.memory.regions[WRITTEN_OVER].bytes;
                let bytes = &bytes[order.connection * SHARED..][..order.len];
                assert!(bytes.iter().all(|it| usize::from(*it) > number), "{number}: {bytes:?}");
            }
            Kind::Read => self.assert_slot(RESULTS, number, peer.sent(number, order.len), true),
            Kind::FetchAdd => {
                let before: u64 = earlier(order.kind).map(|(number, _)| added(number)).sum();
                assert_eq!(self.result(number), before, "each is added once");
            }
            Kind::CompareSwap => {
                let winner = earlier(order.kind).next().map_or(0, |(number, _)| number as u64 + 1);
                assert_eq!(self.result(number), winner, "the first swap wins, once");
            }
            Kind::Send | Kind::SendImmediate | Kind::SendInvalidate => {}
        }
        if order.kind.takes_receive() {
            let (incoming, received) = &peer.incoming[order.connection];
            assert!(incoming[..*received].contains(&number), "{order:?} never came");
        }
    }

    /// Nothing is in flight: checks that every request is complete, or failed without harm.
    pub(super) fn judge_end(&self, peer: &Self, orders: &[WorkItem]) {
        let mine = || orders.iter().enumerate().filter(|(_, it)| it.side == self.index);
        for connection in 0..self.ledgers.len() {
            let info = self.info(connection);
            assert_eq!(info.sends_outstanding, 0, "{info:?}");
            if info.state == QpState::ReadyToSend {
                let here = mine().filter(|(_, it)| it.connection == connection);
                let here = here.filter(|_| self.service == Service::Rc);
                here.for_each(|(number, _)| self.judge_send(number, peer, orders));
            } else {
                assert_eq!(info.state, QpState::Error);
            }
            self.judge_word(connection, orders);
        }
        if let Some((srq, posted)) = &self.srq {
            let info = self.endpoint.query_srq(*srq).expect("it is never destroyed");
            // The rest of a message that holds one may never come, but a datagram is whole.
            let max_held = if self.service == Service::Ud { 0 } else { self.ledgers.len() };
            let held = posted.len() - info.posted as usize;
            assert!(held <= max_held, "{held} receives are lost");
        }
        let is_slot_known = self.service == Service::Rc && self.srq.is_none();
        for (number, order) in mine() {
            let data = self.sent(number, order.len);
            match order.kind {
                Kind::Write | Kind::WriteImmediate => peer.assert_slot(TARGET, number, data, false),
                _ if order.kind.is_send() && is_slot_known => {
                    peer.assert_slot(RECEIVES, number, data, false);
                }
                Kind::Read => {
                    let data = peer.sent(number, order.len);
                    self.assert_slot(RESULTS, number, data, false);
                }
                _ => {}
            }
        }
    }

    /// What the peer's FETCH ADDs have made of the word they share.
    fn judge_word(&self, connection: usize, orders: &[WorkItem]) {
        let word = self.word(WORDS, connection * WORD_PAIR);
        let theirs = orders.iter().enumerate().filter(|(_, it)| it.side != self.index);
        let theirs = theirs.filter(|(_, it)| it.connection == connection);
        let mut sum = 0;
        let mut sums = vec![0];
        for (number, _) in theirs.filter(|(_, it)| it.kind == Kind::FetchAdd) {
            sum += added(number);
            sums.push(sum);
        }
        assert!(sums.contains(&word), "{word:#x} is no sum of the first of {sums:x?}");
    }

    /// Bytes that are written over by one request after the other never go back.
    pub(super) fn look_at_shared(&mut self) {
        let now = &self.memory.regions[WRITTEN_OVER].bytes;
        if *now == self.shared {
            return;
        }
        assert!(now.iter().zip(&self.shared).all(|(now, before)| now >= before), "it came again");
        self.shared.copy_from_slice(now);
    }

    /// The bytes that order `number` sends or, of the peer, reads.
    fn sent(&self, number: usize, len: usize) -> &[u8] {
        &self.memory.regions[SOURCE].bytes[skew(number)..][..len]
    }

    /// The slot holds `data` and nothing else; or, if it need not be whole, nothing but parts
    /// of it.
    fn assert_slot(&self, region: usize, number: usize, data: &[u8], is_whole: bool) {
        let slot = &self.memory.regions[region].bytes[number * SLOT..][..SLOT];
        let (inside, outside) = slot.split_at(data.len());
        // Whole slices at once: a step for each byte is what a fuzzer counts, and slow.
        assert!(*outside == [0; SLOT][..outside.len()], "order {number} wrote too much");
        if inside == data {
            return;
        }
        let is_right = |(is, should): (&u8, &u8)| is == should || (!is_whole && *is == 0);
        assert!(inside.iter().zip(data).all(is_right), "order {number} brought wrong bytes");
    }

    fn result(&self, number: usize) -> u64 {
        self.word(RESULTS, number * SLOT)
    }

    fn word(&self, region: usize, at: usize) -> u64 {
        let bytes = &self.memory.regions[region].bytes[at..];
        u64::from_ne_bytes(*bytes.first_chunk().expect("a word"))
    }

    fn piece(&self, region: usize, at: usize, len: usize) -> Sge {
        let region = &self.memory.regions[region];
        Sge { lkey: region.key, addr: region.addr + at as u64, len: len as u32 }
    }

    fn bring_up(&mut self, connection: usize, link: &Link) {
        let qpn = qpn(connection);
        let init = QpInit {
            pd: PD,
            send_cq: CqHandle(1),
            recv_cq: CqHandle(2),
            cap: QpCap {
                max_send_wr: MAX_ORDERS as u32,
                max_recv_wr: MAX_ORDERS as u32,
                max_inline: MAX_INLINE as u32,
                ..QpCap::default()
            },
            signal_all: link.signal_all,
            service: link.service,
            srq: self.srq.as_ref().map(|(srq, _)| *srq),
            numbers: Default::default(),
        };
        self.endpoint.create_qp(qpn, init).expect("a free number");
        for asked in self.steps(qpn, link) {
            let done = self.endpoint.modify_qp(Instant::default(), qpn, &asked);
            done.expect("a queue pair can be brought up");
        }
    }

    fn steps(&self, qpn: Qpn, link: &Link) -> [QpAttributes; 3] {
        let (own_psn, psn) = (link.first_psn[self.index], link.first_psn[1 - self.index]);
        let steps = [
            QpAttributes { q_key: Some(Q_KEY), ..QpAttributes::init(AccessFlags::ALL) },
            QpAttributes {
                max_dest_rd_atomic: Some(link.max_rd_atomic),
                min_rnr_timer: Some(link.rnr_timer),
                // Both with and without.
                gap_reports: Some(link.max_rd_atomic.is_multiple_of(2)),
                ..QpAttributes::ready_to_receive(self.path, link.mtu, qpn, psn)
            },
            QpAttributes {
                max_rd_atomic: Some(link.max_rd_atomic),
                ack_timeout: AckTimeout::new(link.ack_timeout),
                retry_count: Some(link.retry_count),
                rnr_retry: Some(link.rnr_retry),
                ..QpAttributes::ready_to_send(own_psn)
            },
        ];
        steps.map(|step| step.of_service(link.service))
    }
}

/// What a FETCH ADD adds: every sum tells what is in it.
const fn added(number: usize) -> u64 {
    1 << number
}

fn memory(index: usize, orders: usize, connections: usize) -> Guarded {
    let mut memory = Guarded::new(PD);
    memory.allowed = AccessFlags::ALL;
    let slots = orders.max(1) * SLOT;
    for (region, len, rights) in [
        (SOURCE, skew(orders) + SLOT, AccessFlags::REMOTE_READ),
        (TARGET, slots, AccessFlags::REMOTE_WRITE),
        (RECEIVES, slots, AccessFlags::LOCAL_WRITE),
        (RESULTS, slots, AccessFlags::LOCAL_WRITE),
        (WORDS, WORD_PAIR * connections, AccessFlags::REMOTE_ATOMIC),
        (WRITTEN_OVER, SHARED * connections, AccessFlags::REMOTE_WRITE),
        (TAGS, orders.max(1) * SHARED, AccessFlags::empty()),
    ] {
        let bytes = &mut memory.add((region as u64 + 1) << 32, len, rights).bytes;
        match region {
            SOURCE => (0..len).for_each(|at| bytes[at] = source_byte(index, at)),
            TAGS => {
                let tags = bytes.chunks_mut(SHARED).enumerate();
                tags.for_each(|(number, bytes)| bytes.fill(number as u8 + 1));
            }
            _ => {}
        }
    }
    for number in 0..orders {
        let doomed = memory.add((DOOMED as u64 + number as u64 + 1) << 32, 8, AccessFlags::empty());
        doomed.is_invalidatable = true;
    }
    memory
}
