//! Writes SENDs and WRITEs as packets.

use roce_wire::{
    BTH_LEN, Bth, Headers, Immediate, InvalidateKey, KnownOpcode, Position, Reth, Service, Trailer,
    opcode,
};

use crate::qp::context::QpContext;
use crate::qp::send_queue::SendEntry;
use crate::train::TrainWriter;
use crate::transfer::{GatherCopy, check_all};
use crate::{Access, Memory, MemoryFault, RemoteAddr, SendOperation, WrData};

/// A packet of a SEND or WRITE that is written next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataPacket<'q> {
    pub(crate) entry: SendEntry<'q>,
    pub(crate) seq: u64,
    pub(crate) psn: roce_wire::Psn,
}

impl DataPacket<'_> {
    /// Writes the packet. Returns false if it does not fit into this train. `requests_ack` says
    /// whether it carries AckReq, and is asked only if the packet is written.
    ///
    /// # Errors
    /// The bytes may not or cannot be read.
    #[inline(always)]
    pub(crate) fn write<M: Memory>(
        self,
        qp: &QpContext,
        memory: &M,
        gather: &mut GatherCopy<M::Grant>,
        requests_ack: impl FnOnce() -> bool,
        train: &mut TrainWriter<'_>,
    ) -> Result<bool, MemoryFault> {
        let Self { entry, seq, psn } = self;
        let work = &entry.work;
        let mtu = qp.params.mtu;
        let offset = entry.offset_of(seq, mtu);
        let payload_len = (entry.len - offset).min(mtu.bytes() as u64) as usize;
        let is_first = seq == entry.first;
        let is_last = seq + 1 == entry.end();
        let opcode = opcode_for(qp, &work.operation, is_first, is_last);
        let headers_len = opcode.headers_len();
        let Some(room) = train.room_for(headers_len, payload_len) else { return Ok(false) };
        if let WrData::Sges(list) = &work.data
            && is_first
            && list.len() > 1
        {
            check_all(memory, qp.accessor(), list, Access::LocalRead)?;
        }
        let payload = &mut room[headers_len..headers_len + payload_len];
        let crc = gather.copy(memory, qp.accessor(), entry.number, &work.data, offset, payload)?;

        let mut bth = Bth::new(opcode, qp.params.dest_qpn, psn);
        bth.ack_request = requests_ack();
        if is_first || is_last {
            //= rule rc-solicited: InfiniBand, clause not known; rxe_req.c: init_req_packet
            //# The last packet of a SEND, or of a WRITE with immediate data, says whether the
            //# message is solicited. A WRITE without never is.
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
        Ok(true)
    }

    /// Writes this packet and those behind it that are neither first nor last of their message and
    /// before sequence number `end`, as many as the train holds, and returns how many.
    /// [`write`](Self::write) would write the same packets one by one, and decide for each what is
    /// decided here once. Stops at bytes that are not granted already, and at those that cannot be read,
    /// for which [`write`](Self::write) fails.
    #[inline(always)]
    pub(crate) fn write_middle<M: Memory>(
        self,
        end: u64,
        qp: &QpContext,
        memory: &M,
        gather: &GatherCopy<M::Grant>,
        mut requests_ack: impl FnMut(u64) -> bool,
        train: &mut TrainWriter<'_>,
    ) -> u64 {
        let Self { entry, seq: first, mut psn } = self;
        let mtu = qp.params.mtu;
        let mut offset = entry.offset_of(first, mtu);
        let opcode = opcode_for(qp, &entry.work.operation, false, false);
        let mut bth = Bth::new(opcode, qp.params.dest_qpn, psn).to_bytes();
        let end = (entry.end() - 1).min(end);
        let mut seq = first;
        while seq < end {
            let Some(room) = train.room_for(BTH_LEN, mtu.bytes()) else { break };
            let Some((grant, at)) = gather.cached_grant(entry.number, offset, mtu.bytes()) else {
                break;
            };
            let payload = &mut room[BTH_LEN..BTH_LEN + mtu.bytes()];
            let Ok(crc) = memory.read_summed(grant, at, payload) else { break };
            Bth::set_ack_request_and_psn(&mut bth, requests_ack(seq), psn);
            train.push_bth_only(bth, mtu.bytes(), crc);
            psn = psn.advanced_by(1);
            offset += mtu.bytes() as u64;
            seq += 1;
        }
        seq - first
    }
}

#[inline]
fn opcode_for(
    qp: &QpContext,
    operation: &SendOperation,
    is_first: bool,
    is_last: bool,
) -> KnownOpcode {
    let opcode = data_opcode(operation, is_first, is_last);
    match qp.init.service {
        Service::Rc => opcode,
        // A key to invalidate is refused when the request is posted.
        service => opcode.for_service(service).unwrap_or(opcode),
    }
}

/// The RC opcode of a packet of a SEND or WRITE. A `match` and not a search through the table, since it
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
            let reth = Reth { addr: address, rkey: key, len: len as u32 }; // at most 2^31
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
                if !matches!(trailer, Trailer::InvalidateKey) {
                    let expected = Opcode::find(Service::Uc, wire, position, trailer);
                    assert_eq!(got.for_service(Service::Uc), expected);
                }
                let bth = Bth::new(got, roce_wire::Qpn::GSI, roce_wire::Psn::ZERO);
                assert!(data_headers(bth, &operation, is_first, is_last, 9).is_complete());
            }
        }
    }
}
