//! Writes requests as packets: SENDs and WRITEs, READs, and requests that are one packet and draw a
//! response of their own: atomics, FLUSH and ATOMIC WRITE.

use core::ops::Range;

use roce_wire::{ATOMIC_WRITE_LEN, AtomicEth, Bth, Feth, Headers, Reth, opcode};

use super::ack_request::AckPolicy;
use crate::qp::context::QpContext;
use crate::qp::outgoing_message::DataPacket;
use crate::qp::send_queue::SendEntry;
use crate::rc::send_state::{ReadRequest, ResponseKind, SendState, Sent};
use crate::train::TrainWriter;
use crate::transfer::{GatherCopy, check_all};
use crate::{Access, Memory, MemoryFault, RemoteAddr, SendOperation, WrData};

/// Limits of one READ request, in packets and bytes: the peer sends all responses at once, and our
/// own receive ring must hold them.
const MAX_READ_REQUEST_PACKETS: u64 = 256;
const MAX_READ_REQUEST_BYTES: u64 = 512 << 10;

/// Writes the packets of one queue pair's requests.
pub(super) struct RequestWriter<'a, M> {
    pub(super) send: &'a SendState,
    pub(super) qp: &'a QpContext,
    pub(super) memory: &'a M,
}

/// Result of an attempt to write a packet.
pub(super) enum Written {
    /// The packet was written.
    Sent(Sent),
    /// Nothing more can be sent now.
    Blocked,
    /// The packet does not fit into this train.
    NoRoom,
}

/// What limits the next READ request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadLimit {
    /// The send window.
    pub(super) window: u32,
    /// First sequence number behind the present train.
    pub(super) train_end: u64,
}

impl<M> Clone for RequestWriter<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for RequestWriter<'_, M> {}

impl<M: Memory> RequestWriter<'_, M> {
    /// Packet `seq` of a SEND or WRITE.
    pub(super) fn data(
        self,
        entry: SendEntry<'_>,
        seq: u64,
        gather: &mut GatherCopy<M::Grant>,
        acks: &mut AckPolicy,
        train: &mut TrainWriter<'_>,
    ) -> Result<Written, MemoryFault> {
        let Self { send, qp, memory } = self;
        let packet = DataPacket { entry, seq, psn: send.psn(seq) };
        let requests_ack = || acks.requests(seq, &entry, send, qp);
        if !packet.write(qp, memory, gather, requests_ack, train)? {
            return Ok(Written::NoRoom);
        }
        let begins = seq == entry.first && seq >= send.max_sent();
        Ok(Written::Sent(Sent::data(1, begins, seq + 1 == entry.end())))
    }

    /// Writes packets between the first and the last of a SEND or WRITE, as many as the window admits
    /// and the train holds. [`data`](Self::data) would write the same packets one by one, and decide
    /// for each what is decided here once. Writes none where packets may differ in more than PSN and
    /// payload; [`data`](Self::data) writes those.
    #[inline(always)]
    pub(super) fn middle_packets(
        self,
        gather: &GatherCopy<M::Grant>,
        acks: &mut AckPolicy,
        train: &mut TrainWriter<'_>,
    ) -> Option<Sent> {
        let Self { send, qp, memory } = self;
        let entry = send.current()?;
        let operation = &entry.work.operation;
        let has_middle_packets =
            matches!(operation, SendOperation::Send { .. } | SendOperation::Write { .. })
                && send.next() > entry.first;
        if !has_middle_packets {
            return None;
        }
        let first = DataPacket { entry, seq: send.next(), psn: send.psn(send.next()) };
        let end = acks.window_end();
        let requests_ack = |seq| acks.requests_inside(seq);
        let packets = first.write_middle(end, qp, memory, gather, requests_ack, train);
        Some(Sent::data(packets, false, false))
    }

    /// The request for the next piece of a READ.
    pub(super) fn next_read(
        self,
        entry: SendEntry<'_>,
        remote: RemoteAddr,
        limit: ReadLimit,
        acks: &mut AckPolicy,
        train: &mut TrainWriter<'_>,
    ) -> Result<Written, MemoryFault> {
        let (send, next) = (self.send, self.send.next());
        //= rule rc-read-depth: InfiniBand, clause not known; rxe_req.c: check_init_depth
        //# A requester has no more READs and atomics outstanding than was agreed upon.
        if send.reads_in_flight() >= self.qp.params.max_rd_atomic {
            return Ok(Written::Blocked);
        }
        let known = send.reads().find(next);
        let end = match known {
            Some(request) => request.end,
            None => match self.next_read_packets(entry, limit) {
                Some(packets) => next + packets,
                None => return Ok(Written::Blocked),
            },
        };
        let Some(len) = self.read_request(entry, remote, next..end, acks, train)? else {
            return Ok(Written::NoRoom);
        };
        let response = ResponseKind::Read;
        let read = ReadRequest { start: next, end, response, is_split: false };
        Ok(Written::Sent(Sent {
            //= rule rc-read-psns: InfiniBand, clause not known; rxe_req.c: update_wqe_psn
            //# A READ request uses as many PSNs as its response has packets.
            seqs: end - next,
            packets: 1,
            begins: known.is_none(),
            ends: end == entry.end(),
            read: Some(read).filter(|_| known.is_none()),
            response_len: len,
        }))
    }

    /// Writes a request for the responses of `span`. Returns the bytes that it requests; `None` if it
    /// does not fit into the train.
    pub(super) fn read_request(
        self,
        entry: SendEntry<'_>,
        remote: RemoteAddr,
        span: Range<u64>,
        acks: &mut AckPolicy,
        train: &mut TrainWriter<'_>,
    ) -> Result<Option<u64>, MemoryFault> {
        let Self { send, qp, memory } = self;
        if let WrData::Sges(list) = &entry.work.data {
            check_all(memory, qp.accessor(), list, Access::LocalWrite)?;
        }
        let mtu = qp.params.mtu;
        let offset = entry.offset_of(span.start, mtu);
        let len = (entry.len - offset).min((span.end - span.start) * mtu.bytes() as u64);
        let mut bth = Bth::new(opcode::RC_READ_REQUEST, qp.params.dest_qpn, send.psn(span.start));
        let reth = Reth {
            addr: remote.addr.wrapping_add(offset),
            rkey: remote.rkey,
            len: len as u32, // at most 2^31
        };
        if train.room_for(opcode::RC_READ_REQUEST.headers_len(), 0).is_none() {
            return Ok(None);
        }
        bth.ack_request = acks.requests_response();
        let headers = Headers { reth: Some(reth), ..Headers::new(bth) };
        train.push(&headers, 0, None);
        Ok(Some(len))
    }

    /// Returns the number of packets that the next request of a READ requests; `None` to wait until
    /// the window has room for more.
    fn next_read_packets(self, entry: SendEntry<'_>, limit: ReadLimit) -> Option<u64> {
        let (next, in_flight) = (self.send.next(), self.send.in_flight());
        let left = entry.end() - next;
        let size = u64::from(limit.window);
        let train = limit.train_end.saturating_sub(next);
        let by_bytes = MAX_READ_REQUEST_BYTES / self.qp.params.mtu.bytes() as u64;
        let longest = MAX_READ_REQUEST_PACKETS.min(by_bytes).min(train);
        let packets = left.min(longest).min(size - in_flight.min(size));
        let is_worth_while = packets == left || packets >= longest.min(size / 4);
        (packets > 0 && (is_worth_while || in_flight == 0)).then_some(packets)
    }

    /// An atomic, FLUSH or ATOMIC WRITE.
    pub(super) fn single_request(
        self,
        entry: SendEntry<'_>,
        acks: &mut AckPolicy,
        train: &mut TrainWriter<'_>,
    ) -> Result<Written, MemoryFault> {
        let (send, start) = (self.send, self.send.next());
        //= also rc-read-depth
        //= rule rc-empty-response-depth: rxe_req.c: check_init_depth; rxe_resp.c: rxe_prepare_res
        //# An ATOMIC WRITE counts as an atomic. rxe does not count a FLUSH that it sends, but its
        //# responder remembers each as it remembers READs, so that one too many would displace a READ.
        if send.reads_in_flight() >= self.qp.params.max_rd_atomic {
            return Ok(Written::Blocked);
        }
        if !self.repeat_single_request(entry, start, acks, train)? {
            return Ok(Written::NoRoom);
        }
        let is_new = start >= send.max_sent();
        let response = match entry.work.operation.is_atomic() {
            true => ResponseKind::Atomic,
            false => ResponseKind::Empty,
        };
        let read = ReadRequest { start, end: start + 1, response, is_split: false };
        Ok(Written::Sent(Sent {
            seqs: 1,
            packets: 1,
            begins: is_new,
            ends: true,
            read: Some(read).filter(|_| is_new),
            response_len: 0,
        }))
    }

    /// Writes an atomic, FLUSH or ATOMIC WRITE; returns false if it does not fit into the train.
    pub(super) fn repeat_single_request(
        self,
        entry: SendEntry<'_>,
        seq: u64,
        acks: &mut AckPolicy,
        train: &mut TrainWriter<'_>,
    ) -> Result<bool, MemoryFault> {
        let Self { send, qp, memory } = self;
        if let WrData::Sges(list) = &entry.work.data {
            check_all(memory, qp.accessor(), list, Access::LocalWrite)?;
        }
        let (opcode, payload) = match entry.work.operation {
            SendOperation::CompareSwap { .. } => (opcode::RC_COMPARE_SWAP, None),
            SendOperation::FetchAdd { .. } => (opcode::RC_FETCH_ADD, None),
            SendOperation::Flush { .. } => (opcode::RC_FLUSH, None),
            SendOperation::AtomicWrite { value, .. } => {
                (opcode::RC_ATOMIC_WRITE, Some(value.to_ne_bytes()))
            }
            _ => unreachable!("only these come here"),
        };
        let (headers_len, payload) =
            (opcode.headers_len(), payload.as_ref().map_or(&[][..], |it| it));
        let Some(room) = train.room_for(headers_len, payload.len()) else { return Ok(false) };
        room[headers_len..][..payload.len()].copy_from_slice(payload);
        let mut bth = Bth::new(opcode, qp.params.dest_qpn, send.psn(seq));
        bth.ack_request = acks.requests_response();
        train.push(&single_request_headers(bth, &entry.work.operation), payload.len(), None);
        Ok(true)
    }
}

/// Headers of an atomic, FLUSH or ATOMIC WRITE.
fn single_request_headers(bth: Bth, operation: &SendOperation) -> Headers {
    let atomic = |remote: RemoteAddr, swap_or_add, compare| {
        let RemoteAddr { addr: address, rkey: key } = remote;
        Some(AtomicEth { addr: address, rkey: key, swap_or_add, compare })
    };
    let reth = |remote: RemoteAddr, len| Some(Reth { addr: remote.addr, rkey: remote.rkey, len });
    let headers = Headers::new(bth);
    match *operation {
        SendOperation::CompareSwap { remote, compare, swap } => {
            Headers { atomic_eth: atomic(remote, swap, compare), ..headers }
        }
        SendOperation::FetchAdd { remote, add } => {
            Headers { atomic_eth: atomic(remote, add, 0), ..headers }
        }
        SendOperation::AtomicWrite { remote, .. } => {
            Headers { reth: reth(remote, ATOMIC_WRITE_LEN as u32), ..headers }
        }
        SendOperation::Flush { remote, len, placement, extent } => {
            let feth = Some(Feth::new(placement, extent));
            Headers { feth, reth: reth(remote, len), ..headers }
        }
        _ => headers,
    }
}
