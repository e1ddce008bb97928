//! Writes requests as packets: SENDs and WRITEs, READs, atomics.

use roce_wire::{
    AtomicEth, BTH_LEN, Bth, Headers, Immediate, InvalidateKey, KnownOpcode, Position, Reth,
    Trailer, opcode,
};

use crate::qp::context::QpContext;
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
        let work = &entry.work;
        let mtu = qp.params.mtu;
        let offset = entry.offset_of(seq, mtu);
        let payload_len = (entry.len - offset).min(mtu.bytes() as u64) as usize;
        let is_first = seq == entry.first;
        let is_last = seq + 1 == entry.end();
        let opcode = data_opcode(&work.operation, is_first, is_last);
        let headers_len = opcode.headers_len();
        let Some(room) = train.room_for(headers_len, payload_len) else { return Ok(Step::NoRoom) };
        if let WrData::Sges(list) = &work.data
            && is_first
            && list.len() > 1
        {
            check_all(memory, qp.accessor(), list, Access::LocalRead)?;
        }
        let payload = &mut room[headers_len..headers_len + payload_len];
        let crc = gather.copy(memory, qp.accessor(), entry.number, &work.data, offset, payload)?;

        let mut bth = Bth::new(opcode, qp.params.dest_qpn, self.psn(seq));
        bth.ack_request = acks.requests(seq, &entry, self, qp);
        if is_first || is_last {
            bth.solicited_event = is_last && work.solicited && work.operation.takes_receive();
            let headers = data_headers(bth, &work.operation, is_first, is_last, entry.len);
            train.push(&headers, payload_len, crc);
        } else {
            train.push_bth_only(bth.to_bytes(), payload_len, crc);
        }
        if is_first && !is_last && matches!(work.operation, SendOperation::Write { .. }) {
            let trailer = data_opcode(&work.operation, false, true).headers_len() - BTH_LEN;
            train.pack_second_if_useful(entry.packets - 1, entry.len, trailer, mtu);
        }
        let begins = is_first && seq >= self.max_sent;
        Ok(Step::Sent(Sent::data(1, begins, is_last)))
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
        let mtu = qp.params.mtu;
        let mut offset = entry.offset_of(self.next, mtu);
        let opcode = data_opcode(operation, false, false);
        let mut bth = Bth::new(opcode, qp.params.dest_qpn, self.psn(self.next));
        let end = (entry.end() - 1).min(acks.window_end());
        let mut seq = self.next;
        while seq < end {
            let Some(room) = train.room_for(BTH_LEN, mtu.bytes()) else { break };
            let Some((grant, at)) = gather.cached_grant(entry.number, offset, mtu.bytes()) else {
                break;
            };
            let payload = &mut room[BTH_LEN..BTH_LEN + mtu.bytes()];
            let crc = memory.read_summed(grant, at, payload);
            bth.ack_request = acks.requests_inside(seq);
            train.push_bth_only(bth.to_bytes(), mtu.bytes(), crc);
            bth.psn = bth.psn.advanced_by(1);
            offset += mtu.bytes() as u64;
            seq += 1;
        }
        Some(Sent::data(seq - self.next, false, false))
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
        let mtu = qp.params.mtu.bytes() as u64;
        let known = self.reads.find(self.next);
        let end = match known {
            Some(request) => request.end,
            None => match self.next_read_request(entry, mtu) {
                Some(packets) => self.next + packets,
                None => return Ok(Step::Blocked),
            },
        };
        if let WrData::Sges(list) = &entry.work.data {
            check_all(memory, qp.accessor(), list, Access::LocalWrite)?;
        }
        let offset = entry.offset_of(self.next, qp.params.mtu);
        let len = (entry.len - offset).min((end - self.next) * mtu);
        let mut bth = Bth::new(opcode::RC_READ_REQUEST, qp.params.dest_qpn, self.psn(self.next));
        let reth = Reth {
            address: remote.addr.wrapping_add(offset),
            key: remote.rkey,
            len: len as u32, // at most 2^31
        };
        if train.room_for(opcode::RC_READ_REQUEST.headers_len(), 0).is_none() {
            return Ok(Step::NoRoom);
        }
        bth.ack_request = acks.requests_response();
        let headers = Headers { reth: Some(reth), ..Headers::new(bth) };
        train.push(&headers, 0, None);
        let read = ReadRequest { start: self.next, end, is_atomic: false };
        Ok(Step::Sent(Sent {
            seqs: end - self.next,
            packets: 1,
            begins: known.is_none(),
            ends: end == entry.end(),
            read: Some(read).filter(|_| known.is_none()),
            response_len: len,
        }))
    }

    /// Returns the number of packets that the next request of a READ requests; `None` to wait until
    /// the window has room for more.
    fn next_read_request(&self, entry: SendEntry<'_>, mtu: u64) -> Option<u64> {
        let left = entry.end() - self.next;
        let in_flight = self.next - self.unacked;
        let size = u64::from(self.window.size());
        let longest = MAX_READ_REQUEST_PACKETS.min(MAX_READ_REQUEST_BYTES / mtu);
        let packets = left.min(longest).min(size - in_flight.min(size));
        let is_worth_while = packets == left || packets >= longest.min(size / 4);
        (packets > 0 && (is_worth_while || in_flight == 0)).then_some(packets)
    }

    /// An atomic request.
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
        let mut bth = Bth::new(opcode, qp.params.dest_qpn, self.psn(self.next));
        let RemoteAddr { addr: address, rkey: key } = remote;
        let atomic_eth = Some(AtomicEth { address, key, swap_or_add, compare });
        if train.room_for(opcode.headers_len(), 0).is_none() {
            return Ok(Step::NoRoom);
        }
        bth.ack_request = acks.requests_response();
        let headers = Headers { atomic_eth, ..Headers::new(bth) };
        train.push(&headers, 0, None);
        let is_new = self.next >= self.max_sent;
        let read = ReadRequest { start: self.next, end: self.next + 1, is_atomic: true };
        Ok(Step::Sent(Sent {
            seqs: 1,
            packets: 1,
            begins: is_new,
            ends: true,
            read: Some(read).filter(|_| is_new),
            response_len: 0,
        }))
    }
}

/// The opcode of a packet of a SEND or WRITE. A `match` and not a search through the table, since it
/// is called for every packet.
pub(crate) fn data_opcode(operation: &SendOperation, is_first: bool, is_last: bool) -> KnownOpcode {
    let position = match (is_first, is_last) {
        (true, false) => Position::First,
        (false, false) => Position::Middle,
        (false, true) => Position::Last,
        (true, true) => Position::Only,
    };
    let is_send = matches!(operation, SendOperation::Send { .. });
    match (is_send, position, operation.trailer()) {
        (true, Position::First, _) => opcode::RC_SEND_FIRST,
        (true, Position::Middle, _) => opcode::RC_SEND_MIDDLE,
        (true, Position::Last, Trailer::None) => opcode::RC_SEND_LAST,
        (true, Position::Last, Trailer::Immediate) => opcode::RC_SEND_LAST_IMMEDIATE,
        (true, Position::Last, Trailer::InvalidateKey) => opcode::RC_SEND_LAST_INVALIDATE,
        (true, Position::Only, Trailer::None) => opcode::RC_SEND_ONLY,
        (true, Position::Only, Trailer::Immediate) => opcode::RC_SEND_ONLY_IMMEDIATE,
        (true, Position::Only, Trailer::InvalidateKey) => opcode::RC_SEND_ONLY_INVALIDATE,
        (false, Position::First, _) => opcode::RC_WRITE_FIRST,
        (false, Position::Middle, _) => opcode::RC_WRITE_MIDDLE,
        (false, Position::Last, Trailer::Immediate) => opcode::RC_WRITE_LAST_IMMEDIATE,
        (false, Position::Last, _) => opcode::RC_WRITE_LAST,
        (false, Position::Only, Trailer::Immediate) => opcode::RC_WRITE_ONLY_IMMEDIATE,
        (false, Position::Only, _) => opcode::RC_WRITE_ONLY,
    }
}

fn data_headers(
    bth: Bth,
    operation: &SendOperation,
    is_first: bool,
    is_last: bool,
    len: u64,
) -> Headers {
    let mut headers = Headers::new(bth);
    match *operation {
        SendOperation::Send { immediate, invalidate } if is_last => {
            headers.immediate = immediate.map(Immediate);
            headers.invalidate = invalidate.map(InvalidateKey);
        }
        SendOperation::Write { remote, immediate } => {
            let RemoteAddr { addr: address, rkey: key } = remote;
            let reth = Reth { address, key, len: len as u32 }; // at most 2^31
            headers.reth = Some(reth).filter(|_| is_first);
            headers.immediate = immediate.map(Immediate).filter(|_| is_last);
        }
        _ => {}
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use roce_wire::{Opcode, Operation, Service};

    #[test]
    fn the_opcodes_agree_with_the_table() {
        let remote = RemoteAddr { addr: 0, rkey: 0 };
        let (none, immediate) = (None, Some([1; 4]));
        for (operation, wire) in [
            (SendOperation::Send { immediate: none, invalidate: None }, Operation::Send),
            (SendOperation::Send { immediate, invalidate: None }, Operation::Send),
            (SendOperation::Send { immediate: none, invalidate: Some(1) }, Operation::Send),
            (SendOperation::Write { remote, immediate: none }, Operation::Write),
            (SendOperation::Write { remote, immediate }, Operation::Write),
        ] {
            for (position, is_first, is_last) in [
                (Position::First, true, false),
                (Position::Middle, false, false),
                (Position::Last, false, true),
                (Position::Only, true, true),
            ] {
                let trailer = if is_last { operation.trailer() } else { Trailer::None };
                let expected = Opcode::find(Service::Rc, wire, position, trailer);
                let got = data_opcode(&operation, is_first, is_last);
                assert_eq!(Some(got), expected);
                let bth = Bth::new(got, roce_wire::Qpn::GSI, roce_wire::Psn::ZERO);
                assert!(data_headers(bth, &operation, is_first, is_last, 9).is_complete());
            }
        }
    }
}
