//! Layers from the BTH to the ICRC.

use std::borrow::Cow;

use roce_wire::{BTH_LEN, Ext, ICRC_LEN, KnownOpcode, Opcode, RnrTimer, Syndrome};

use super::mad;
use super::spec::{Kind, Spec, bits, bytes, layer, meanings};
use crate::{DisplayDuration, Icrc, Layer, Packet, Roce};

/// Adds BTH, extension headers, payload, pad and ICRC.
pub(super) fn layers(packet: &Packet<'_>, roce: &Roce<'_>, layers: &mut Vec<Layer>) {
    let frame = packet.frame.bytes;
    let mut at = roce.offsets.bth;
    layers.push(layer("BTH", BTH, frame, at, BTH_LEN));
    at += BTH_LEN;
    for ext in roce.known_opcode().map_or(&[][..], |opcode| opcode.info().extensions) {
        let (name, table) = extension(*ext);
        layers.push(layer(name, table, frame, at, ext.wire_len()));
        at += ext.wire_len();
    }
    let icrc_at = roce.offsets.end.saturating_sub(ICRC_LEN).max(at);
    if roce.headers.is_some() {
        payload(packet, roce, at, icrc_at, layers);
    } else if at < icrc_at {
        rest("rest", frame, at, icrc_at, layers);
    }
    if icrc_at + ICRC_LEN == roce.offsets.end {
        layers.push(icrc(roce, frame, icrc_at));
    }
}

fn payload(packet: &Packet<'_>, roce: &Roce<'_>, at: usize, end: usize, layers: &mut Vec<Layer>) {
    let frame = packet.frame.bytes;
    let pad_at = at + roce.payload_len;
    if mad::is_management(roce) {
        mad::layers(frame, at, roce.payload_len, layers);
    } else {
        rest("payload", frame, at, pad_at, layers);
    }
    rest("pad", frame, pad_at, end, layers);
}

fn rest(name: &'static str, frame: &[u8], at: usize, end: usize, layers: &mut Vec<Layer>) {
    let end = end.min(frame.len());
    if at < end {
        layers.push(layer(name, &[bytes("bytes", 0, end - at, Kind::Bytes)], frame, at, end - at));
    }
}

/// Adds the ICRC, which is transmitted least significant byte first.
fn icrc(roce: &Roce<'_>, frame: &[u8], at: usize) -> Layer {
    let mut icrc = layer("ICRC", &[bytes("ICRC", 0, ICRC_LEN, Kind::Hex)], frame, at, ICRC_LEN);
    if let Some(field) = icrc.fields.first_mut() {
        if let crate::Value::Hex { value, .. } = &mut field.value {
            *value = u64::from((*value as u32).swap_bytes());
        }
        field.note = match roce.icrc {
            Icrc::Right => "right".into(),
            Icrc::Wrong { expected, .. } => format!("wrong, expected {expected:#010x}").into(),
            Icrc::Unchecked(why) => format!("not checked: {why}").into(),
        };
    }
    icrc
}

/// Adds the layers from the BTH to the ICRC, by name.
pub(super) fn add_tables(tables: &mut Vec<(&'static str, Vec<Spec>)>) {
    tables.push(("BTH", BTH.to_vec()));
    let extensions = [
        Ext::Reth,
        Ext::Feth,
        Ext::AtomicEth,
        Ext::Aeth,
        Ext::AtomicAckEth,
        Ext::Deth,
        Ext::Immediate,
        Ext::InvalidateKey,
        Ext::CnpReserved,
    ];
    for (name, table) in extensions.map(extension) {
        tables.push((name, table.to_vec()));
    }
    for name in ["payload", "pad", "rest"] {
        tables.push((name, vec![bytes("bytes", 0, 1, Kind::Bytes)]));
    }
    tables.push(("ICRC", vec![bytes("ICRC", 0, ICRC_LEN, Kind::Hex)]));
}

fn extension(ext: Ext) -> (&'static str, &'static [Spec]) {
    match ext {
        Ext::Reth => ("RETH", RETH),
        Ext::Feth => ("FETH", FETH),
        Ext::AtomicEth => ("AtomicETH", ATOMIC_ETH),
        Ext::Aeth => ("AETH", AETH),
        Ext::AtomicAckEth => ("AtomicAckETH", ATOMIC_ACK_ETH),
        Ext::Deth => ("DETH", DETH),
        Ext::Immediate => ("ImmDt", IMMEDIATE),
        Ext::InvalidateKey => ("IETH", INVALIDATE),
        Ext::CnpReserved => ("CNP", CNP),
    }
}

const BTH: &[Spec] = &[
    bytes("opcode", 0, 1, Kind::Hex).noted(opcode),
    bits("solicited event", 1, 0, 1, Kind::Flag),
    bits("migration request", 1, 1, 1, Kind::Flag),
    bits("pad count", 1, 2, 2, Kind::Decimal),
    bits("version", 1, 4, 4, Kind::Decimal),
    bytes("P_Key", 2, 2, Kind::Hex).noted(partition),
    bits("FECN", 4, 0, 1, Kind::Flag),
    bits("BECN", 4, 1, 1, Kind::Flag),
    bits("reserved6", 4, 2, 6, Kind::Hex),
    bytes("destination QP", 5, 3, Kind::Hex).noted(queue_pair),
    bits("ack request", 8, 0, 1, Kind::Flag),
    bits("reserved7", 8, 1, 7, Kind::Hex),
    bytes("PSN", 9, 3, Kind::Hex),
];

const RETH: &[Spec] = &[
    bytes("address", 0, 8, Kind::Hex),
    bytes("key", 8, 4, Kind::Hex),
    bytes("length", 12, 4, Kind::Decimal),
];

const FETH: &[Spec] = &[
    bits("reserved", 0, 0, 26, Kind::Hex),
    bits("selectivity level", 3, 2, 2, Kind::Decimal).noted(selectivity),
    bits("persistent", 3, 6, 1, Kind::Flag),
    bits("global visibility", 3, 7, 1, Kind::Flag),
];

const ATOMIC_ETH: &[Spec] = &[
    bytes("address", 0, 8, Kind::Hex),
    bytes("key", 8, 4, Kind::Hex),
    bytes("swap or add", 12, 8, Kind::Hex),
    bytes("compare", 20, 8, Kind::Hex),
];

const AETH: &[Spec] =
    &[bytes("syndrome", 0, 1, Kind::Hex).noted(syndrome), bytes("MSN", 1, 3, Kind::Decimal)];

const ATOMIC_ACK_ETH: &[Spec] = &[bytes("original", 0, 8, Kind::Hex)];

const DETH: &[Spec] = &[
    bytes("Q_Key", 0, 4, Kind::Hex).noted(queue_key),
    bytes("reserved", 4, 1, Kind::Hex),
    bytes("source QP", 5, 3, Kind::Hex).noted(queue_pair),
];

const IMMEDIATE: &[Spec] = &[bytes("immediate", 0, 4, Kind::Hex)];
const INVALIDATE: &[Spec] = &[bytes("key", 0, 4, Kind::Hex)];
const CNP: &[Spec] = &[bytes("reserved", 0, 16, Kind::Bytes)];

fn opcode(value: u64) -> Cow<'static, str> {
    match KnownOpcode::new(Opcode(value as u8)) {
        Some(known) => known.name().into(),
        None => "unknown".into(),
    }
}

meanings! {
    fn partition {
        0xffff => "default, full member",
        0x7fff => "default, limited member",
    }

    fn selectivity {
        0 => "range",
        1 => "memory region",
    }

    fn queue_pair {
        0 => "subnet management",
        1 => "general services",
        0xff_ffff => "multicast",
    }

    fn queue_key {
        0x8001_0000 => "general services",
        0x0123_4567 => "datagrams of rdma_cm",
    }
}

fn syndrome(value: u64) -> Cow<'static, str> {
    match Syndrome::from_byte(value as u8) {
        Syndrome::Ack { credits } => match credits.count() {
            Some(count) => format!("ACK, {count} receives posted").into(),
            None => "ACK, receives not counted".into(),
        },
        Syndrome::RnrNak { timer } => {
            format!("RNR NAK, retry after {}", DisplayDuration(RnrTimer::duration(timer))).into()
        }
        Syndrome::Nak(code) => format!("NAK, {code}").into(),
        Syndrome::Reserved(_) => "reserved".into(),
    }
}
