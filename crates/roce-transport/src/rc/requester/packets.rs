//! Writes requests as packets: SENDs and WRITEs, READs, atomics.

use core::ops::Range;

use roce_wire::{AtomicEth, Bth, Headers, Reth, opcode};

use crate::qp::context::QpContext;
use crate::qp::outgoing_message::DataPacket;
use crate::qp::send_queue::SendEntry;
use crate::rc::requester::Requester;
use crate::rc::requester::ack_request::AckPolicy;
use crate::rc::requester::outstanding_reads::ReadRequest;
use crate::rc::requester::transmit::{Sent, Step};
use crate::train::TrainWriter;
use crate::transfer::{GatherCopy, check_all};
use crate::{Access, Memory, MemoryFault, RemoteAddr, SendOperation, WrData};

/// Limits of one READ request, in packets and bytes: the peer sends all responses at once, and our
/// own receive ring must hold them.
const MAX_READ_REQUEST_PACKETS: u64 = 256;
const MAX_READ_REQUEST_BYTES: u64 = 512 << 10;

impl Requester {
    /// Packet `seq` of a SEND or WRITE.
    #[expect(clippy::too_many_arguments, reason = "one packet, and what its parts are made of")]
    pub(crate) fn write_data<M: Memory>(
        &self,
        entry: SendEntry<'_>,
        seq: u64,
        qp: &QpContext,
        memory: &M,
        gather: &mut GatherCopy<M::Grant>,
        acks: &mut AckPolicy,
        train: &mut TrainWriter<'_>,
    ) -> Result<Step, MemoryFault> {
        let packet = DataPacket { entry, seq, psn: self.psn(seq) };
        let requests_ack = || acks.requests(seq, &entry, self, qp);
        if !packet.write(qp, memory, gather, requests_ack, train)? {
            return Ok(Step::NoRoom);
        }
        let begins = seq == entry.first && seq >= self.max_sent;
        Ok(Step::Sent(Sent::data(1, begins, seq + 1 == entry.end())))
    }

    /// Writes packets between the first and the last of a SEND or WRITE, as many as the window admits
    /// and the train holds. [`step`](Self::step) would write the same packets one by one, and decide
    /// for each what is decided here once. Writes none where packets may differ in more than PSN and
    /// payload; `step` writes those.
    pub(super) fn write_middle_packets<M: Memory>(
        &self,
        qp: &QpContext,
        memory: &M,
        gather: &GatherCopy<M::Grant>,
        acks: &mut AckPolicy,
        train: &mut TrainWriter<'_>,
    ) -> Option<Sent> {
        let entry = self.queue.get(self.current_wqe)?;
        let operation = &entry.work.operation;
        let has_middle_packets =
            matches!(operation, SendOperation::Send { .. } | SendOperation::Write { .. })
                && self.next > entry.first;
        // A message that has begun is finished even while the queue is being drained.
        if !has_middle_packets || self.in_rnr_wait {
            return None;
        }
        let first = DataPacket { entry, seq: self.next, psn: self.psn(self.next) };
        let end = acks.window_end();
        let requests_ack = |seq| acks.requests_inside(seq);
        let packets = first.write_middle(end, qp, memory, gather, requests_ack, train);
        Some(Sent::data(packets, false, false))
    }

    /// The request for the next piece of a READ.
    pub(crate) fn write_read(
        &self,
        entry: SendEntry<'_>,
        remote: RemoteAddr,
        qp: &QpContext,
        memory: &impl Memory,
        acks: &mut AckPolicy,
        train: &mut TrainWriter<'_>,
    ) -> Result<Step, MemoryFault> {
        if self.reads.outstanding(self.next) >= qp.params.max_rd_atomic {
            return Ok(Step::Blocked);
        }
        let known = self.reads.find(self.next);
        let end = match known {
            Some(request) => request.end,
            None => match self.next_read_request(entry, qp.params.mtu.bytes() as u64) {
                Some(packets) => self.next + packets,
                None => return Ok(Step::Blocked),
            },
        };
        let span = self.next..end;
        let Some(len) = self.write_read_request(entry, remote, span, qp, memory, acks, train)?
        else {
            return Ok(Step::NoRoom);
        };
        let read = ReadRequest { start: self.next, end, is_atomic: false, is_split: false };
        Ok(Step::Sent(Sent {
            seqs: end - self.next,
            packets: 1,
            begins: known.is_none(),
            ends: end == entry.end(),
            read: Some(read).filter(|_| known.is_none()),
            response_len: len,
        }))
    }

    /// Writes a request for the responses of `span`. Returns the bytes that it requests; `None` if it
    /// does not fit into the train.
    #[expect(clippy::too_many_arguments, reason = "one packet, and what its parts are made of")]
    pub(crate) fn write_read_request(
        &self,
        entry: SendEntry<'_>,
        remote: RemoteAddr,
        span: Range<u64>,
        qp: &QpContext,
        memory: &impl Memory,
        acks: &mut AckPolicy,
        train: &mut TrainWriter<'_>,
    ) -> Result<Option<u64>, MemoryFault> {
        if let WrData::Sges(list) = &entry.work.data {
            check_all(memory, qp.accessor(), list, Access::LocalWrite)?;
        }
        let mtu = qp.params.mtu;
        let offset = entry.offset_of(span.start, mtu);
        let len = (entry.len - offset).min((span.end - span.start) * mtu.bytes() as u64);
        let mut bth = Bth::new(opcode::RC_READ_REQUEST, qp.params.dest_qpn, self.psn(span.start));
        let reth = Reth {
            address: remote.addr.wrapping_add(offset),
            key: remote.rkey,
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
    fn next_read_request(&self, entry: SendEntry<'_>, mtu: u64) -> Option<u64> {
        let left = entry.end() - self.next;
        let in_flight = self.next - self.unacked;
        let size = u64::from(self.window.size());
        let train = self.train_end().saturating_sub(self.next);
        let longest = MAX_READ_REQUEST_PACKETS.min(MAX_READ_REQUEST_BYTES / mtu).min(train);
        let packets = left.min(longest).min(size - in_flight.min(size));
        let is_worth_while = packets == left || packets >= longest.min(size / 4);
        (packets > 0 && (is_worth_while || in_flight == 0)).then_some(packets)
    }

    /// The request for an atomic.
    pub(crate) fn write_atomic(
        &self,
        entry: SendEntry<'_>,
        qp: &QpContext,
        memory: &impl Memory,
        acks: &mut AckPolicy,
        train: &mut TrainWriter<'_>,
    ) -> Result<Step, MemoryFault> {
        if self.reads.outstanding(self.next) >= qp.params.max_rd_atomic {
            return Ok(Step::Blocked);
        }
        if !self.write_atomic_request(entry, self.next, qp, memory, acks, train)? {
            return Ok(Step::NoRoom);
        }
        let is_new = self.next >= self.max_sent;
        let (start, end) = (self.next, self.next + 1);
        let read = ReadRequest { start, end, is_atomic: true, is_split: false };
        Ok(Step::Sent(Sent {
            seqs: 1,
            packets: 1,
            begins: is_new,
            ends: true,
            read: Some(read).filter(|_| is_new),
            response_len: 0,
        }))
    }

    /// Writes an atomic request; returns false if it does not fit into the train.
    pub(crate) fn write_atomic_request(
        &self,
        entry: SendEntry<'_>,
        seq: u64,
        qp: &QpContext,
        memory: &impl Memory,
        acks: &mut AckPolicy,
        train: &mut TrainWriter<'_>,
    ) -> Result<bool, MemoryFault> {
        if let WrData::Sges(list) = &entry.work.data {
            check_all(memory, qp.accessor(), list, Access::LocalWrite)?;
        }
        let (opcode, remote, swap_or_add, compare) = match entry.work.operation {
            SendOperation::CompareSwap { remote, compare, swap } => {
                (opcode::RC_COMPARE_SWAP, remote, swap, compare)
            }
            SendOperation::FetchAdd { remote, add } => (opcode::RC_FETCH_ADD, remote, add, 0),
            _ => unreachable!("only atomics come here"),
        };
        let mut bth = Bth::new(opcode, qp.params.dest_qpn, self.psn(seq));
        let RemoteAddr { addr: address, rkey: key } = remote;
        let atomic_eth = Some(AtomicEth { address, key, swap_or_add, compare });
        if train.room_for(opcode.headers_len(), 0).is_none() {
            return Ok(false);
        }
        bth.ack_request = acks.requests_response();
        let headers = Headers { atomic_eth, ..Headers::new(bth) };
        train.push(&headers, 0, None);
        Ok(true)
    }
}
