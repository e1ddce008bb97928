//! Packets as a script wants them: any opcode, any field, mostly near what would be right.

use roce_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Ext, Feth, Headers, ICRC_LEN, Immediate,
    InvalidateKey, KnownOpcode, Opcode, OuterHeaders, Pad, Psn, Qpn, Reth, Service, Syndrome,
    UdpChecksum, seal,
};

use super::memory::Region;
use super::work::{address, key};
use roce_fuzz_support::Script;

/// What a packet can be right about.
pub(super) struct Target<'a> {
    pub(super) qpn: Qpn,
    pub(super) service: Service,
    pub(super) q_key: u32,
    /// The PSN of the next request of the peer's.
    pub(super) expected: Psn,
    /// The PSN of the last request sent.
    pub(super) last_sent: Psn,
    pub(super) mtu: usize,
    pub(super) regions: &'a [Region],
}

/// Which opcodes come most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Answer,
    Any,
}

/// A packet from its BTH to its last pad byte.
pub(super) fn packet(script: &mut Script<'_>, kind: Kind, target: &Target<'_>) -> Vec<u8> {
    let opcode = opcode(script, kind, target.service);
    let payload_len = match opcode.info().carries_payload() {
        true => payload_len(script, target.mtu),
        false => 0,
    };
    let headers = headers(script, opcode, payload_len, target);
    let len = headers.len() + payload_len;
    let mut packet = vec![0; len + Pad::for_payload(payload_len).bytes() + ICRC_LEN];
    packet[headers.len()..len].fill(script.byte());
    let end = headers.emit_around(&mut packet, payload_len) - ICRC_LEN;
    packet.truncate(end);
    packet
}

/// The packet in a frame of its own.
pub(crate) fn sealed(outer: &OuterHeaders, packet: &[u8]) -> Option<Vec<u8>> {
    let segment_len = packet.len() + ICRC_LEN;
    let mut frame = vec![0; outer.len() + segment_len];
    frame[outer.len()..][..packet.len()].copy_from_slice(packet);
    seal(outer, 0, &mut frame, segment_len, UdpChecksum::Zero).ok()?;
    Some(frame)
}

fn opcode(script: &mut Script<'_>, kind: Kind, service: Service) -> KnownOpcode {
    let code = script.byte();
    let wanted = |it: &KnownOpcode| match kind {
        // Only a reliable connection has responses.
        Kind::Answer if service == Service::Rc => {
            it.info().service == service && !it.info().is_request()
        }
        Kind::Request | Kind::Answer => it.info().service == service && it.info().is_request(),
        Kind::Any => true,
    };
    let exact = KnownOpcode::new(Opcode(code)).filter(wanted);
    let count = KnownOpcode::all().filter(wanted).count();
    let some = KnownOpcode::all().filter(wanted).nth(usize::from(code) % count);
    exact.or(some).expect("there are opcodes of every kind")
}

fn payload_len(script: &mut Script<'_>, mtu: usize) -> usize {
    match script.byte() % 6 {
        0 => mtu,
        1 => 0,
        2 => usize::from(script.byte()),
        3 => mtu - usize::from(script.byte()),
        4 => 8,
        _ => usize::from(script.number::<u16>() % 5000),
    }
}

fn headers(
    script: &mut Script<'_>,
    opcode: KnownOpcode,
    payload_len: usize,
    target: &Target<'_>,
) -> Headers {
    let base = if opcode.info().is_request() { target.expected } else { target.last_sent };
    let psn = psn(script, base);
    let flags = script.byte();
    let mut bth = Bth {
        solicited_event: flags & 1 != 0,
        ack_request: flags & 2 != 0,
        becn: flags & 4 != 0,
        fecn: flags & 8 != 0,
        migration_request: flags & 16 != 0,
        ..Bth::new(opcode, target.qpn, psn)
    };
    if flags & 0xc0 == 0x80 {
        bth.partition_key = script.number();
    }
    if flags & 0xc0 == 0xc0 {
        bth.dest_qp = Qpn::from_be_bytes(script.number());
    }
    let mut headers = Headers::new(bth);
    for ext in opcode.info().extensions {
        match ext {
            Ext::Reth => headers.reth = Some(reth(script, payload_len, target)),
            Ext::Feth => headers.feth = Some(Feth::from_bytes(&[0, 0, 0, script.byte()])),
            Ext::AtomicEth => {
                let key = key(script, target.regions);
                headers.atomic_eth = Some(AtomicEth {
                    addr: address(script, target.regions, key),
                    rkey: key,
                    swap_or_add: script.byte().into(),
                    compare: script.byte().into(),
                });
            }
            Ext::Aeth => {
                let syndrome = Syndrome::from_byte(script.byte());
                headers.aeth = Some(Aeth { syndrome, msn: script.byte().into() });
            }
            Ext::AtomicAckEth => {
                headers.atomic_ack = Some(AtomicAckEth { original: script.byte().into() });
            }
            Ext::Deth => {
                let is_right = script.byte() & 7 != 7;
                let deth = Deth::from_bytes(&script.number());
                let q_key = if is_right { target.q_key } else { deth.q_key };
                headers.deth = Some(Deth { q_key, ..deth });
            }
            Ext::Immediate => headers.immediate = Some(Immediate(script.number())),
            Ext::InvalidateKey => {
                headers.invalidate = Some(InvalidateKey(key(script, target.regions)));
            }
            Ext::CnpReserved => {}
        }
    }
    headers
}

/// Right in half of the cases, near in most others.
fn psn(script: &mut Script<'_>, base: Psn) -> Psn {
    let code = script.byte();
    let near = u32::from(code & 0x1f);
    match code {
        0x00..0x80 => base,
        0x80..0xa0 => base.previous(),
        0xa0..0xc0 => base.advanced_by(Psn::MODULUS - near),
        0xc0..0xd0 => base.advanced_by(1),
        0xd0..0xf0 => base.advanced_by(near),
        _ => Psn::wrapping(script.number()),
    }
}

fn reth(script: &mut Script<'_>, payload_len: usize, target: &Target<'_>) -> Reth {
    let key = key(script, target.regions);
    let address = address(script, target.regions, key);
    let len = match script.byte() % 8 {
        0 | 1 => payload_len as u32,
        2 => (target.mtu + payload_len) as u32,
        3 => 2 * target.mtu as u32,
        4 => script.number::<u16>().into(),
        5 => script.number(),
        6 => 0,
        _ => 1 << 31,
    };
    Reth { addr: address, rkey: key, len }
}
