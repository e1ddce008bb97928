//! Writes responses as packets.

use roce_wire::{
    AETH_LEN, Aeth, AtomicAckEth, Bth, Credits, GapReport, Headers, KnownOpcode,
    MAX_GAP_REPORT_LEN, Psn, Syndrome, opcode,
};

use crate::context::Context;
use crate::qp::context::QpContext;
use crate::qp::receive_queue::ReceiveQueue;
use crate::rc::reorder_buffer::ReorderBuffer;
use crate::rc::responder::Responder;
use crate::rc::responder::response_queue::{ReadResponse, Response};
use crate::train::TrainWriter;
use crate::{Access, Memory, MemoryFault, Observer};

/// The memory of a READ may not, or cannot, be read any more.
pub(crate) struct ResponseError {
    /// The packet that cannot be written.
    pub(crate) psn: Psn,
    pub(crate) fault: MemoryFault,
}

impl Responder {
    /// Writes the responses that fit into one train. `is_marked`: a marked request has arrived since the
    /// last ACK.
    ///
    /// # Errors
    /// The bytes of a READ cannot be read any more.
    pub(crate) fn write_responses<O: Observer>(
        &mut self,
        qp: &QpContext,
        receives: Option<&ReceiveQueue>,
        memory: &impl Memory,
        train: &mut TrainWriter<'_>,
        is_marked: &mut bool,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ResponseError> {
        // Receives of a shared queue are promised to no peer.
        let credits = match receives.filter(|_| cx.config.advertise_credits) {
            //= rule rc-credits-told: InfiniBand 9.7.7.2
            //# An acknowledgement tells the number of posted receives, or that the responder does
            //# not count them.
            Some(receives) => Credits::for_count(self.receives(receives)),
            None => Credits::UNLIMITED,
        };
        let ack = Aeth { syndrome: Syndrome::Ack { credits }, msn: self.msn() };
        let Self { responses, reorder, expected, .. } = self;
        while let Some(response) = responses.front_mut() {
            let is_written = match response {
                Response::Ack { psn } => {
                    let becn = *is_marked;
                    write_bare(&ack_headers(ack, *psn, becn, qp), train)
                }
                Response::Nak { psn, code } => {
                    let syndrome = Syndrome::Nak(*code);
                    write_bare(&ack_headers(Aeth { syndrome, ..ack }, *psn, false, qp), train)
                }
                Response::Rnr { psn, timer } => {
                    let syndrome = Syndrome::RnrNak { timer: *timer };
                    write_bare(&ack_headers(Aeth { syndrome, ..ack }, *psn, false, qp), train)
                }
                Response::GapReport { .. } => {
                    let sent = &mut cx.counters().gap_report_sent;
                    write_gap_report(*expected, reorder, qp, train, sent)
                }
                Response::Atomic { psn, original, .. } => {
                    let bth = Bth::new(opcode::RC_ATOMIC_ACKNOWLEDGE, qp.params.dest_qpn, *psn);
                    let atomic_ack = Some(AtomicAckEth { original: *original });
                    let headers = Headers { aeth: Some(ack), atomic_ack, ..Headers::new(bth) };
                    write_bare(&headers, train)
                }
                //= rule rc-empty-response: rxe_resp.c: acknowledge
                //# A FLUSH and an ATOMIC WRITE draw a READ response Only of no bytes.
                Response::Empty { psn, .. } => {
                    let bth = Bth::new(opcode::RC_READ_RESPONSE_ONLY, qp.params.dest_qpn, *psn);
                    write_bare(&Headers { aeth: Some(ack), ..Headers::new(bth) }, train)
                }
                Response::Read(read) => write_read(read, ack, qp, memory, train)?,
            };
            if !is_written {
                break;
            }
            match *response {
                Response::Ack { .. } => *is_marked = false,
                Response::Nak { psn, code } => {
                    cx.out.observer.nak_sent(cx.now, cx.qpn, psn, code);
                }
                Response::Rnr { psn, .. } => cx.out.observer.rnr_sent(cx.now, cx.qpn, psn),
                _ => {}
            }
            responses.pop_front();
        }
        Ok(())
    }
}

fn ack_headers(aeth: Aeth, psn: Psn, becn: bool, qp: &QpContext) -> Headers {
    let bth = Bth { becn, ..Bth::new(opcode::RC_ACKNOWLEDGE, qp.params.dest_qpn, psn) };
    Headers { aeth: Some(aeth), ..Headers::new(bth) }
}

/// Writes a report of the gaps behind `expected`, if there are some; false if it has to wait for the next
/// train.
#[cold]
fn write_gap_report(
    expected: Psn,
    reorder: &ReorderBuffer,
    qp: &QpContext,
    train: &mut TrainWriter<'_>,
    sent: &mut u64,
) -> bool {
    let mut runs = reorder.runs(expected, qp.params.mtu).peekable();
    if runs.peek().is_none() {
        return true;
    }
    let headers = Headers::new(Bth::new(opcode::GAP_REPORT, qp.params.dest_qpn, expected));
    let mut payload = [0; MAX_GAP_REPORT_LEN];
    let len = GapReport::write(runs, &mut payload);
    let Some(room) = train.room_for(headers.len(), len) else { return false };
    room[headers.len()..][..len].copy_from_slice(&payload[..len]);
    train.push(&headers, len, None);
    *sent += 1;
    true
}

/// Writes a packet without payload; false if it has to wait for the next train.
fn write_bare(headers: &Headers, train: &mut TrainWriter<'_>) -> bool {
    let fits = train.room_for(headers.len(), 0).is_some();
    if fits {
        train.push(headers, 0, None);
    }
    fits
}

/// Writes what fits of the response to a READ; returns true if that was the rest of it.
//= rule rc-read-response-failed: rxe_resp.c: read_reply
//# A READ whose memory may not be read any more during the response ends with a NAK for the packet
//# that cannot be sent.
fn write_read<M: Memory>(
    read: &mut ReadResponse,
    ack: Aeth,
    qp: &QpContext,
    memory: &M,
    train: &mut TrainWriter<'_>,
) -> Result<bool, ResponseError> {
    let mtu = qp.params.mtu.bytes() as u64;
    let whole = u64::from(read.reth.len);
    // Checked once in a train, and kept no longer.
    let mut cached_grant: Option<(u64, M::Grant)> = None;
    while read.sent < read.packets {
        let offset = u64::from(read.sent) * mtu;
        let payload_len = (whole - offset).min(mtu) as usize;
        let is_last = read.sent + 1 == read.packets;
        let opcode = READ_RESPONSES[usize::from(read.sent == 0)][usize::from(is_last)];
        let headers_len = opcode.info().headers_len();
        let Some(room) = train.room_for(headers_len, payload_len) else { return Ok(false) };
        let psn = read.first.advanced_by(read.sent);
        let mut crc = None;
        if payload_len > 0 {
            let (start, grant) = match cached_grant {
                Some(cached_grant) => cached_grant,
                None => {
                    let address = read.reth.addr.wrapping_add(offset);
                    let left = whole - offset;
                    let grant = memory
                        .check(qp.accessor(), read.reth.rkey, address, left, Access::RemoteRead)
                        .map_err(|fault| ResponseError { psn, fault })?;
                    *cached_grant.insert((offset, grant))
                }
            };
            let payload = &mut room[headers_len..headers_len + payload_len];
            crc = memory
                .read_summed(grant, offset - start, payload)
                .map_err(|fault| ResponseError { psn, fault })?;
        }
        let bth = Bth::new(opcode, qp.params.dest_qpn, psn);
        read.sent += 1;
        if read.sent > 1 && !is_last {
            train.push_bth_only(bth.to_bytes(), payload_len, crc);
            continue;
        }
        train.push(&Headers { aeth: Some(ack), ..Headers::new(bth) }, payload_len, crc);
        if !is_last {
            train.pack_second_if_useful(read.packets - 1, whole, AETH_LEN, qp.params.mtu);
        }
    }
    Ok(true)
}

/// By whether the packet is the first, then by whether it is the last of its response.
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
