//! Writes the responder's answers as packets.

use roce_wire::{
    AETH_LEN, Aeth, AtomicAckEth, Bth, Credits, Headers, KnownOpcode, Psn, Syndrome, opcode,
};

use crate::context::Context;
use crate::rc::common::Common;
use crate::rc::receive_queue::ReceiveQueue;
use crate::rc::responder::Responder;
use crate::rc::responses::{ReadReply, Response};
use crate::train::TrainWriter;
use crate::{Access, Memory, MemoryFault, Observer};

/// The memory that a READ asked for may not be read any more.
pub(crate) struct ReplyFault {
    /// The packet that cannot be written.
    pub(crate) psn: Psn,
    pub(crate) fault: MemoryFault,
}

impl Responder {
    /// Writes the answers that fit into one train.
    ///
    /// # Errors
    /// The bytes of a READ cannot be had any more.
    pub(crate) fn reply<O: Observer>(
        &mut self,
        common: &Common,
        receives: &ReceiveQueue,
        memory: &impl Memory,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ReplyFault> {
        let credits = match cx.config.advertise_credits {
            true => Credits::for_count(self.receives(receives)),
            false => Credits::UNLIMITED,
        };
        let ack = Aeth { syndrome: Syndrome::Ack { credits }, msn: self.msn() };
        while let Some(response) = self.responses.front_mut() {
            let is_written = match response {
                Response::Ack { psn } => write_ack(ack, *psn, common, train),
                Response::Nak { psn, code } => {
                    let syndrome = Syndrome::Nak(*code);
                    write_ack(Aeth { syndrome, ..ack }, *psn, common, train)
                }
                Response::Rnr { psn, timer } => {
                    let syndrome = Syndrome::RnrNak { timer: *timer };
                    write_ack(Aeth { syndrome, ..ack }, *psn, common, train)
                }
                Response::Atomic { psn, original, .. } => {
                    let bth =
                        Bth::new(opcode::RC_ATOMIC_ACKNOWLEDGE, common.settings.dest_qpn, *psn);
                    let atomic_ack = Some(AtomicAckEth { original: *original });
                    let headers = Headers { aeth: Some(ack), atomic_ack, ..Headers::new(bth) };
                    write_bare(&headers, train)
                }
                Response::Read(reply) => write_read(reply, ack, common, memory, train)?,
            };
            if !is_written {
                break;
            }
            match *response {
                Response::Nak { psn, code } => {
                    cx.out.observer.nak_sent(cx.now, cx.qpn, psn, code);
                }
                Response::Rnr { psn, .. } => cx.out.observer.rnr_sent(cx.now, cx.qpn, psn),
                _ => {}
            }
            self.responses.pop_front();
        }
        Ok(())
    }
}

fn write_ack(aeth: Aeth, psn: Psn, common: &Common, train: &mut TrainWriter<'_>) -> bool {
    let bth = Bth::new(opcode::RC_ACKNOWLEDGE, common.settings.dest_qpn, psn);
    write_bare(&Headers { aeth: Some(aeth), ..Headers::new(bth) }, train)
}

/// Writes a packet without payload; false if it has to wait for the next train.
fn write_bare(headers: &Headers, train: &mut TrainWriter<'_>) -> bool {
    let fits = train.room_for(headers.len(), 0).is_some();
    if fits {
        train.push(headers, 0, None);
    }
    fits
}

/// Writes what fits of the answer to a READ; true if that was the rest of it.
fn write_read<M: Memory>(
    reply: &mut ReadReply,
    ack: Aeth,
    common: &Common,
    memory: &M,
    train: &mut TrainWriter<'_>,
) -> Result<bool, ReplyFault> {
    let mtu = common.settings.mtu.bytes() as u64;
    let whole = u64::from(reply.reth.len);
    // Asked for once in a train, and no longer kept.
    let mut granted: Option<(u64, M::Grant)> = None;
    while reply.sent < reply.packets {
        let offset = u64::from(reply.sent) * mtu;
        let payload_len = (whole - offset).min(mtu) as usize;
        let is_last = reply.sent + 1 == reply.packets;
        let opcode = READ_RESPONSES[usize::from(reply.sent == 0)][usize::from(is_last)];
        let headers_len = opcode.info().headers_len();
        let Some(room) = train.room_for(headers_len, payload_len) else { return Ok(false) };
        let psn = reply.first.advanced_by(reply.sent);
        let mut crc = None;
        if payload_len > 0 {
            let (start, grant) = match granted {
                Some(granted) => granted,
                None => {
                    let address = reply.reth.address.wrapping_add(offset);
                    let left = whole - offset;
                    let grant = memory
                        .check(common.init.pd, reply.reth.key, address, left, Access::RemoteRead)
                        .map_err(|fault| ReplyFault { psn, fault })?;
                    *granted.insert((offset, grant))
                }
            };
            let payload = &mut room[headers_len..headers_len + payload_len];
            crc = memory.read_summed(grant, offset - start, payload);
        }
        let bth = Bth::new(opcode, common.settings.dest_qpn, psn);
        reply.sent += 1;
        if reply.sent > 1 && !is_last {
            train.push_middle(bth.to_bytes(), payload_len, crc);
            continue;
        }
        train.push(&Headers { aeth: Some(ack), ..Headers::new(bth) }, payload_len, crc);
        if !is_last {
            train.lead(reply.packets - 1, whole, AETH_LEN, common.settings.mtu);
        }
    }
    Ok(true)
}

/// By whether the packet is the first, then by whether it is the last of its answer.
const READ_RESPONSES: [[KnownOpcode; 2]; 2] = [
    [opcode::RC_READ_RESPONSE_MIDDLE, opcode::RC_READ_RESPONSE_LAST],
    [opcode::RC_READ_RESPONSE_FIRST, opcode::RC_READ_RESPONSE_ONLY],
];

#[cfg(test)]
mod tests {
    use super::*;
    use roce_wire::{Opcode, Operation, Position, Service, Trailer};

    #[test]
    fn the_opcodes_agree_with_the_table() {
        let positions = [[Position::Middle, Position::Last], [Position::First, Position::Only]];
        for (opcodes, positions) in READ_RESPONSES.into_iter().zip(positions) {
            for (opcode, position) in opcodes.into_iter().zip(positions) {
                let (service, operation) = (Service::Rc, Operation::ReadResponse);
                let expected = Opcode::find(service, operation, position, Trailer::None);
                assert_eq!(Some(opcode), expected);
            }
        }
    }
}
