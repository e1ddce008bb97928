//! Packets made by hand: what a broken or hostile peer might send, with a right ICRC.

use roce_wire::{
    Aeth, Bth, Credits, Headers, InvalidateKey, KnownOpcode, NakCode, Psn, Qpn, Reth, RnrTimer,
    Syndrome, opcode,
};

/// Headers of a packet with every extension its opcode asks for, all zero.
pub(crate) fn headers(opcode: KnownOpcode, dest: Qpn, psn: Psn) -> Headers {
    let mut bytes = vec![0; opcode.info().headers_len()];
    bytes[..roce_wire::BTH_LEN].copy_from_slice(&Bth::new(opcode, dest, psn).to_bytes());
    let (mut headers, _) = Headers::parse(&bytes).expect("zeros are sound extensions");
    headers.bth.ack_request = opcode.info().is_request() && opcode.info().position.is_last();
    headers
}

/// Headers and payload as the bytes of a packet, with pad, without ICRC.
pub(crate) fn packet(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; headers.len() + payload.len() + 3 + roce_wire::ICRC_LEN];
    bytes[headers.len()..][..payload.len()].copy_from_slice(payload);
    let len = headers.emit_around(&mut bytes, payload.len());
    bytes.truncate(len - roce_wire::ICRC_LEN);
    bytes
}

/// The headers at the front of a packet's bytes.
pub(crate) fn parse(packet: &[u8]) -> Headers {
    Headers::parse(packet).expect("a sound packet").0
}

pub(crate) fn send_only(dest: Qpn, psn: Psn, payload: &[u8]) -> Vec<u8> {
    packet(&headers(opcode::RC_SEND_ONLY, dest, psn), payload)
}

pub(crate) fn write_only(dest: Qpn, psn: Psn, reth: Reth, payload: &[u8]) -> Vec<u8> {
    with_reth(opcode::RC_WRITE_ONLY, dest, psn, reth, payload)
}

pub(crate) fn read_request(dest: Qpn, psn: Psn, reth: Reth) -> Vec<u8> {
    with_reth(opcode::RC_READ_REQUEST, dest, psn, reth, &[])
}

pub(crate) fn with_reth(
    opcode: KnownOpcode,
    dest: Qpn,
    psn: Psn,
    reth: Reth,
    data: &[u8],
) -> Vec<u8> {
    let mut headers = headers(opcode, dest, psn);
    headers.reth = Some(reth);
    packet(&headers, data)
}

pub(crate) fn send_invalidate(dest: Qpn, psn: Psn, key: u32, payload: &[u8]) -> Vec<u8> {
    let mut headers = headers(opcode::RC_SEND_ONLY_INVALIDATE, dest, psn);
    headers.invalidate = Some(InvalidateKey(key));
    packet(&headers, payload)
}

pub(crate) fn acknowledge(dest: Qpn, psn: Psn, syndrome: Syndrome) -> Vec<u8> {
    response(opcode::RC_ACKNOWLEDGE, dest, psn, syndrome, &[])
}

pub(crate) fn response(
    opcode: KnownOpcode,
    dest: Qpn,
    psn: Psn,
    syndrome: Syndrome,
    payload: &[u8],
) -> Vec<u8> {
    let mut headers = headers(opcode, dest, psn);
    headers.aeth = headers.aeth.map(|_| Aeth { syndrome, msn: 1 });
    packet(&headers, payload)
}

pub(crate) const ACK: Syndrome = Syndrome::Ack { credits: Credits::UNLIMITED };

pub(crate) const fn nak(code: NakCode) -> Syndrome {
    Syndrome::Nak(code)
}

pub(crate) fn rnr(code: u8) -> Syndrome {
    Syndrome::RnrNak { timer: RnrTimer::new(code).expect("a 5 bit code") }
}
