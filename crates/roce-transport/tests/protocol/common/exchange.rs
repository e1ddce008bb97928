//! A run of messages of one kind from one end of a connection to the other, and what must be
//! true afterwards: exactly once, in order, intact, nothing else touched.

use roce_transport::{
    Completion, CompletionOperation, CompletionStatus, CqHandle, SendOperation, SendWr, Sge,
};

use super::connection::{End, PD, RECV_CQ, SEND_CQ};
use super::world::World;
use roce_simnet::{Region, Rights};

/// Every operation of a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    SendImmediate,
    SendInvalidate,
    Write,
    WriteImmediate,
    Read,
    CompareSwap,
    FetchAdd,
    AtomicWrite,
    Flush,
}

impl Kind {
    pub(crate) const ALL: [Self; 10] = [
        Self::Send,
        Self::SendImmediate,
        Self::SendInvalidate,
        Self::Write,
        Self::WriteImmediate,
        Self::Read,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::AtomicWrite,
        Self::Flush,
    ];

    /// Those whose responses are outstanding until they arrive.
    pub(crate) const COUNTED: [Self; 5] =
        [Self::Read, Self::CompareSwap, Self::FetchAdd, Self::AtomicWrite, Self::Flush];

    pub(crate) fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendImmediate | Self::SendInvalidate)
    }

    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Are the requests without local bytes?
    pub(crate) fn has_empty_response(self) -> bool {
        matches!(self, Self::AtomicWrite | Self::Flush)
    }

    /// Does each message use up a posted receive?
    pub(crate) fn takes_receive(self) -> bool {
        self.is_send() || self == Self::WriteImmediate
    }
}

/// Messages under way between two ends.
pub(crate) struct Exchange {
    pub(crate) from: End,
    pub(crate) to: End,
    pub(crate) kind: Kind,
    pub(crate) len: usize,
    pub(crate) count: usize,
    /// Message `i` is `local[i * len..]` at the requester, `remote[i * len..]` at the responder.
    pub(crate) local: Region,
    pub(crate) remote: Region,
    /// SEND with invalidate: one region for each message to shut.
    pub(crate) doomed: Vec<Region>,
    /// High half of every work identifier, so that exchanges tell their completions apart.
    tag: u64,
    /// Both memories as they were, requester's first.
    before: [Vec<u8>; 2],
}

impl Exchange {
    /// Registers memory at both ends; posts nothing yet. Atomics are always 8 bytes long.
    pub(crate) fn prepare(
        world: &mut World,
        ends: [End; 2],
        kind: Kind,
        len: usize,
        count: usize,
    ) -> Self {
        let tag = world.new_tag() << 32;
        let [from, to] = ends;
        let is_word = kind.is_atomic() || kind == Kind::AtomicWrite;
        let len = if is_word { 8 } else { len };
        let room = len * count;
        let memory = &mut world.hosts[from.node].memory;
        let local = memory.register_filled(PD, room, Rights::ALL, 1);
        let memory = &mut world.hosts[to.node].memory;
        let remote = memory.register_filled(PD, room, Rights::ALL, 101);
        let doomed = match kind {
            Kind::SendInvalidate => {
                let rights = Rights { invalidatable: true, ..Rights::ALL };
                (0..count).map(|_| memory.register_filled(PD, 8, rights, 0)).collect()
            }
            _ => vec![],
        };
        if kind.is_atomic() {
            memory.bytes_mut(remote)[..8].fill(0);
        }
        let before = [
            world.hosts[from.node].memory.bytes(local).to_vec(),
            world.hosts[to.node].memory.bytes(remote).to_vec(),
        ];
        Self { from, to, kind, len, count, local, remote, doomed, tag, before }
    }

    /// Registers memory, posts all receives and then all sends.
    pub(crate) fn post(
        world: &mut World,
        ends: [End; 2],
        kind: Kind,
        len: usize,
        count: usize,
    ) -> Self {
        let exchange = Self::prepare(world, ends, kind, len, count);
        exchange.post_receives(world);
        exchange.post_sends(world);
        exchange
    }

    /// Posts the receives that the messages will use up, if any.
    pub(crate) fn post_receives(&self, world: &mut World) {
        for i in 0..if self.kind.takes_receive() { self.count } else { 0 } {
            self.post_receive(world, i);
        }
    }

    /// Posts the receive for message `i`.
    pub(crate) fn post_receive(&self, world: &mut World, i: usize) {
        let scatter = [sge(self.remote, i * self.len, self.len)];
        let pieces = if self.kind.is_send() { &scatter[..] } else { &[] };
        self.to.post_recv(world, self.tag + i as u64, pieces);
    }

    /// Posts all messages.
    pub(crate) fn post_sends(&self, world: &mut World) {
        for i in 0..self.count {
            self.post_send(world, i);
        }
    }

    /// Posts message `i`.
    pub(crate) fn post_send(&self, world: &mut World, i: usize) {
        self.from.post_send(world, self.send_work(i));
    }

    /// The request for message `i`.
    pub(crate) fn send_work(&self, i: usize) -> SendWr {
        let offset = if self.kind.is_atomic() { 0 } else { i * self.len };
        let remote = self.remote.remote(offset as u64);
        let (number, immediate) = (i as u64, Some(self.immediate(i)));
        let operation = match self.kind {
            Kind::Send => SendOperation::send(),
            Kind::SendImmediate => SendOperation::Send { immediate, invalidate: None },
            Kind::SendInvalidate => {
                SendOperation::Send { immediate: None, invalidate: Some(self.doomed[i].key) }
            }
            Kind::Write => SendOperation::write(remote),
            Kind::WriteImmediate => SendOperation::Write { remote, immediate },
            Kind::Read => SendOperation::read(remote),
            Kind::CompareSwap => {
                SendOperation::CompareSwap { remote, compare: number, swap: number + 1 }
            }
            Kind::FetchAdd => SendOperation::FetchAdd { remote, add: number + 1 },
            Kind::AtomicWrite => SendOperation::atomic_write(remote, Self::word(i)),
            Kind::Flush => SendOperation::flush(remote, self.len as u32),
        };
        let local = sge(self.local, i * self.len, self.len);
        SendWr { wr_id: self.tag + number, ..work_of(self.kind, operation, local) }
    }

    /// What ATOMIC WRITE `i` stores.
    fn word(i: usize) -> u64 {
        0x0102_0304_0506_0708 ^ i as u64
    }

    fn immediate(&self, i: usize) -> [u8; 4] {
        (0xc0de_0000 + i as u32).to_be_bytes()
    }

    /// Have all completions come, on both sides?
    pub(crate) fn is_done(&self, world: &World) -> bool {
        let received = if self.kind.takes_receive() { self.count } else { 0 };
        self.completions(world, self.from, SEND_CQ).count() >= self.count
            && self.completions(world, self.to, RECV_CQ).count() >= received
    }

    fn completions<'a>(
        &'a self,
        world: &'a World,
        end: End,
        cq: CqHandle,
    ) -> impl Iterator<Item = &'a Completion> {
        let all = world.hosts[end.node].completions.iter();
        all.filter(move |(of, it)| {
            *of == cq && it.qpn == end.qpn && it.wr_id >> 32 == self.tag >> 32
        })
        .map(|(_, completion)| completion)
    }

    /// Fails unless everything that was asked for has happened, once, in order, and nothing else.
    #[track_caller]
    pub(crate) fn check(&self, world: &World) {
        self.check_sent(world);
        self.check_received(world);
        self.check_memory(world);
        world.assert_guards_untouched();
    }

    #[track_caller]
    fn check_sent(&self, world: &World) {
        let operation = match self.kind {
            Kind::Send | Kind::SendImmediate | Kind::SendInvalidate => CompletionOperation::Send,
            Kind::Write | Kind::WriteImmediate => CompletionOperation::Write,
            Kind::Read => CompletionOperation::Read,
            Kind::CompareSwap => CompletionOperation::CompareSwap,
            Kind::FetchAdd => CompletionOperation::FetchAdd,
            Kind::AtomicWrite => CompletionOperation::AtomicWrite,
            Kind::Flush => CompletionOperation::Flush,
        };
        let sent: Vec<_> = self.completions(world, self.from, SEND_CQ).collect();
        let ids: Vec<_> = sent.iter().map(|it| it.wr_id - self.tag).collect();
        let expected: Vec<_> = (0..self.count as u64).collect();
        assert_eq!(ids, expected, "each send completes once, in order\n{}", world.report());
        for completion in sent {
            assert_eq!(completion.status, CompletionStatus::Success, "{}", world.report());
            assert_eq!(completion.operation, operation);
            if matches!(self.kind, Kind::Read | Kind::CompareSwap | Kind::FetchAdd) {
                assert_eq!(completion.byte_len as usize, self.len);
            }
        }
    }

    #[track_caller]
    fn check_received(&self, world: &World) {
        let received: Vec<_> = self.completions(world, self.to, RECV_CQ).collect();
        let ids: Vec<_> = received.iter().map(|it| it.wr_id - self.tag).collect();
        let count = if self.kind.takes_receive() { self.count } else { 0 };
        let expected: Vec<_> = (0..count as u64).collect();
        assert_eq!(ids, expected, "each receive completes once, in order\n{}", world.report());
        for (i, completion) in received.into_iter().enumerate() {
            assert_eq!(completion.status, CompletionStatus::Success, "{}", world.report());
            assert_eq!(completion.byte_len as usize, self.len);
            let immediate = matches!(self.kind, Kind::SendImmediate | Kind::WriteImmediate);
            assert_eq!(completion.immediate, immediate.then(|| self.immediate(i)));
            let invalidated = self.doomed.get(i).map(|region| region.key);
            assert_eq!(completion.invalidated_key, invalidated);
            let operation = match self.kind {
                Kind::WriteImmediate => CompletionOperation::RecvWithImmediate,
                _ => CompletionOperation::Recv,
            };
            assert_eq!(completion.operation, operation);
        }
    }

    #[track_caller]
    fn check_memory(&self, world: &World) {
        let requester = world.hosts[self.from.node].memory.bytes(self.local);
        let responder = world.hosts[self.to.node].memory.bytes(self.remote);
        let memory = &world.hosts[self.to.node].memory;
        let [local_before, remote_before] = &self.before;
        match self.kind {
            Kind::Read => {
                assert!(requester == responder, "READ brings the bytes\n{}", world.report());
                assert!(responder == remote_before, "READ changes nothing at the responder");
            }
            Kind::CompareSwap | Kind::FetchAdd => {
                let executed = memory.atomics(self.remote);
                assert_eq!(executed, self.count as u64, "each atomic is executed once");
                let sum = |n: u64| match self.kind {
                    Kind::CompareSwap => n,
                    _ => n * (n + 1) / 2,
                };
                assert_eq!(responder[..8], sum(self.count as u64).to_ne_bytes());
                for (i, word) in requester.chunks(8).enumerate() {
                    assert_eq!(word, sum(i as u64).to_ne_bytes(), "the original of atomic {i}");
                }
            }
            Kind::AtomicWrite => {
                let executed = memory.atomics(self.remote);
                assert_eq!(executed, self.count as u64, "each is executed once");
                for (i, word) in responder.chunks(8).enumerate() {
                    assert_eq!(word, Self::word(i).to_ne_bytes(), "word {i}");
                }
                assert!(requester == local_before, "it has no local bytes");
            }
            Kind::Flush => {
                assert!(requester == local_before && responder == remote_before);
            }
            _ => {
                assert!(requester == local_before, "the source stays as it was");
                assert!(responder == requester, "bytes arrive intact\n{}", world.report());
            }
        }
        let payload = (self.len * self.count) as u64;
        let (here, there) = match self.kind {
            Kind::Read | Kind::CompareSwap | Kind::FetchAdd => (payload, 0),
            Kind::AtomicWrite | Kind::Flush => (0, 0),
            _ => (0, payload),
        };
        let local = world.hosts[self.from.node].memory.written(self.local);
        assert_eq!((local, memory.written(self.remote)), (here, there), "each byte written once");
        assert!(self.doomed.iter().all(|region| !memory.is_alive(*region)), "keys are shut");
    }
}

/// A signalled request of `kind` for the front of `remote`, with this local piece.
pub(crate) fn request(kind: Kind, remote: Region, local: Sge) -> SendWr {
    let (key, remote) = (remote.key, remote.remote(0));
    let immediate = Some([1, 2, 3, 4]);
    let operation = match kind {
        Kind::Send => SendOperation::send(),
        Kind::SendImmediate => SendOperation::Send { immediate, invalidate: None },
        Kind::SendInvalidate => SendOperation::Send { immediate: None, invalidate: Some(key) },
        Kind::Write => SendOperation::write(remote),
        Kind::WriteImmediate => SendOperation::Write { remote, immediate },
        Kind::Read => SendOperation::read(remote),
        Kind::CompareSwap => SendOperation::CompareSwap { remote, compare: 0, swap: 1 },
        Kind::FetchAdd => SendOperation::FetchAdd { remote, add: 1 },
        Kind::AtomicWrite => SendOperation::atomic_write(remote, 1),
        Kind::Flush => SendOperation::flush(remote, local.len),
    };
    work_of(kind, operation, local)
}

/// A signalled request with this local piece, if requests of `kind` have one.
fn work_of(kind: Kind, operation: SendOperation, local: Sge) -> SendWr {
    if kind.has_empty_response() {
        return work(operation);
    }
    SendWr::new(0, operation, local).signaled()
}

/// A signalled work request without data.
pub(crate) fn work(operation: SendOperation) -> SendWr {
    SendWr::new(0, operation, []).signaled()
}

/// Part of a region as an entry of a scatter/gather list.
pub(crate) fn sge(region: Region, offset: usize, len: usize) -> Sge {
    region.piece(offset as u64, len as u32)
}
