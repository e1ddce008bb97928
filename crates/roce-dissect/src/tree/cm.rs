//! Connection management: field tables of the messages.

use std::borrow::Cow;

use super::mad::MAD_LEN;
use super::spec::{Kind, Spec, bits, bytes, meanings};

/// Returns name and fields of a message; `None` if it is not defined.
//= rule cm-messages: InfiniBand 12.6
//# The messages of connection management, and the places of their fields.
pub(super) fn table(datagram: &[u8]) -> Option<(&'static str, &'static [Spec])> {
    Some(match attribute(datagram)? {
        REQ => ("CM REQ", REQ_FIELDS),
        0x11 => ("CM MRA", MRA_FIELDS),
        REJ => ("CM REJ", REJ_FIELDS),
        REP => ("CM REP", REP_FIELDS),
        0x14 => ("CM RTU", RTU_FIELDS),
        0x15 => ("CM DREQ", DREQ_FIELDS),
        0x16 => ("CM DREP", DREP_FIELDS),
        SIDR_REQ => ("CM SIDR REQ", SIDR_REQ_FIELDS),
        SIDR_REP => ("CM SIDR REP", SIDR_REP_FIELDS),
        0x19 => ("CM LAP", LAP_FIELDS),
        0x1a => ("CM APR", APR_FIELDS),
        _ => return None,
    })
}

/// Returns the attribute of a connection management datagram.
pub(super) fn attribute(datagram: &[u8]) -> Option<u16> {
    let head = datagram.get(..MAD_LEN)?;
    (head[1] == CLASS).then(|| u16::from_be_bytes([head[16], head[17]]))
}

/// Returns the offset of the addresses that rdma_cm writes before its private data; `None` without
/// them.
pub(super) fn address_header(datagram: &[u8]) -> Option<usize> {
    let private = match attribute(datagram)? {
        REQ => 140,
        SIDR_REQ => 16,
        _ => return None,
    };
    // Service numbers of rdma_cm begin with these bytes.
    let by_rdma_cm = datagram.get(MAD_LEN + 8..MAD_LEN + 13)? == [0, 0, 0, 0, 1];
    let at = MAD_LEN + private;
    let is_it = by_rdma_cm && matches!(datagram.get(at..at + 2)?, [0, 0x40 | 0x60]);
    is_it.then_some(at)
}

/// Returns the fields of these addresses; the second byte selects IPv4 or IPv6.
pub(super) fn address_table(version: Option<u8>) -> &'static [Spec] {
    if version == Some(0x60) { ADDRESSES_V6 } else { ADDRESSES_V4 }
}

pub(super) const ADDRESS_LEN: usize = 36;

const CLASS: u8 = 0x07;
pub(super) const REQ: u16 = 0x10;
pub(super) const REJ: u16 = 0x12;
pub(super) const REP: u16 = 0x13;
pub(super) const SIDR_REQ: u16 = 0x17;
pub(super) const SIDR_REP: u16 = 0x18;

const REQ_FIELDS: &[Spec] = &[
    bytes("local communication id", 0, 4, Kind::Hex),
    bytes("vendor id", 5, 3, Kind::Hex),
    bytes("service id", 8, 8, Kind::Hex),
    bytes("local CA GUID", 16, 8, Kind::Hex),
    bytes("local Q_Key", 28, 4, Kind::Hex),
    bytes("local QPN", 32, 3, Kind::Hex),
    bytes("responder resources", 35, 1, Kind::Decimal),
    bytes("local EECN", 36, 3, Kind::Hex),
    bytes("initiator depth", 39, 1, Kind::Decimal),
    bytes("remote EECN", 40, 3, Kind::Hex),
    bits("remote CM response timeout", 43, 0, 5, Kind::Decimal).noted(timeout),
    bits("transport service", 43, 5, 2, Kind::Decimal).noted(service),
    bits("end-to-end flow control", 43, 7, 1, Kind::Flag),
    bytes("starting PSN", 44, 3, Kind::Hex),
    bits("local CM response timeout", 47, 0, 5, Kind::Decimal).noted(timeout),
    bits("retry count", 47, 5, 3, Kind::Decimal),
    bytes("P_Key", 48, 2, Kind::Hex),
    bits("path MTU", 50, 0, 4, Kind::Decimal).noted(mtu),
    bits("RDC exists", 50, 4, 1, Kind::Flag),
    bits("RNR retry count", 50, 5, 3, Kind::Decimal),
    bits("max CM retries", 51, 0, 4, Kind::Decimal),
    bits("SRQ", 51, 4, 1, Kind::Flag),
    bits("extended transport", 51, 5, 3, Kind::Decimal),
    bytes("primary local LID", 52, 2, Kind::Hex),
    bytes("primary remote LID", 54, 2, Kind::Hex),
    bytes("primary local GID", 56, 16, Kind::Gid),
    bytes("primary remote GID", 72, 16, Kind::Gid),
    bits("primary flow label", 88, 0, 20, Kind::Hex),
    bits("primary packet rate", 91, 2, 6, Kind::Decimal),
    bytes("primary traffic class", 92, 1, Kind::Hex),
    bytes("primary hop limit", 93, 1, Kind::Decimal),
    bits("primary SL", 94, 0, 4, Kind::Decimal),
    bits("primary subnet local", 94, 4, 1, Kind::Flag),
    bits("primary local ACK timeout", 95, 0, 5, Kind::Decimal).noted(timeout),
    bytes("alternate local LID", 96, 2, Kind::Hex),
    bytes("alternate remote LID", 98, 2, Kind::Hex),
    bytes("alternate local GID", 100, 16, Kind::Gid),
    bytes("alternate remote GID", 116, 16, Kind::Gid),
    bits("alternate flow label", 132, 0, 20, Kind::Hex),
    bits("alternate packet rate", 135, 2, 6, Kind::Decimal),
    bytes("alternate traffic class", 136, 1, Kind::Hex),
    bytes("alternate hop limit", 137, 1, Kind::Decimal),
    bits("alternate SL", 138, 0, 4, Kind::Decimal),
    bits("alternate subnet local", 138, 4, 1, Kind::Flag),
    bits("alternate local ACK timeout", 139, 0, 5, Kind::Decimal).noted(timeout),
    bytes("private data", 140, 92, Kind::Bytes),
];

const MRA_FIELDS: &[Spec] = &[
    bytes("local communication id", 0, 4, Kind::Hex),
    bytes("remote communication id", 4, 4, Kind::Hex),
    bits("message acknowledged", 8, 0, 2, Kind::Decimal).noted(acknowledged),
    bits("service timeout", 9, 0, 5, Kind::Decimal).noted(timeout),
    bytes("private data", 10, 222, Kind::Bytes),
];

const REJ_FIELDS: &[Spec] = &[
    bytes("local communication id", 0, 4, Kind::Hex),
    bytes("remote communication id", 4, 4, Kind::Hex),
    bits("message rejected", 8, 0, 2, Kind::Decimal).noted(rejected),
    bits("info length", 9, 0, 7, Kind::Decimal),
    bytes("reason", 10, 2, Kind::Decimal).noted(reject_reason),
    bytes("additional information", 12, 72, Kind::Bytes),
    bytes("private data", 84, 148, Kind::Bytes),
];

const REP_FIELDS: &[Spec] = &[
    bytes("local communication id", 0, 4, Kind::Hex),
    bytes("remote communication id", 4, 4, Kind::Hex),
    bytes("local Q_Key", 8, 4, Kind::Hex),
    bytes("local QPN", 12, 3, Kind::Hex),
    bytes("local EECN", 16, 3, Kind::Hex),
    bytes("starting PSN", 20, 3, Kind::Hex),
    bytes("responder resources", 24, 1, Kind::Decimal),
    bytes("initiator depth", 25, 1, Kind::Decimal),
    bits("target ACK delay", 26, 0, 5, Kind::Decimal).noted(timeout),
    bits("failover accepted", 26, 5, 2, Kind::Decimal),
    bits("end-to-end flow control", 26, 7, 1, Kind::Flag),
    bits("RNR retry count", 27, 0, 3, Kind::Decimal),
    bits("SRQ", 27, 3, 1, Kind::Flag),
    bytes("local CA GUID", 28, 8, Kind::Hex),
    bytes("private data", 36, 196, Kind::Bytes),
];

const RTU_FIELDS: &[Spec] = &[
    bytes("local communication id", 0, 4, Kind::Hex),
    bytes("remote communication id", 4, 4, Kind::Hex),
    bytes("private data", 8, 224, Kind::Bytes),
];

const DREQ_FIELDS: &[Spec] = &[
    bytes("local communication id", 0, 4, Kind::Hex),
    bytes("remote communication id", 4, 4, Kind::Hex),
    bytes("remote QPN", 8, 3, Kind::Hex),
    bytes("private data", 12, 220, Kind::Bytes),
];

const DREP_FIELDS: &[Spec] = RTU_FIELDS;

const SIDR_REQ_FIELDS: &[Spec] = &[
    bytes("request id", 0, 4, Kind::Hex),
    bytes("P_Key", 4, 2, Kind::Hex),
    bytes("service id", 8, 8, Kind::Hex),
    bytes("private data", 16, 216, Kind::Bytes),
];

const SIDR_REP_FIELDS: &[Spec] = &[
    bytes("request id", 0, 4, Kind::Hex),
    bytes("status", 4, 1, Kind::Decimal).noted(sidr_status),
    bytes("info length", 5, 1, Kind::Decimal),
    bytes("QPN", 8, 3, Kind::Hex),
    bytes("service id", 12, 8, Kind::Hex),
    bytes("Q_Key", 20, 4, Kind::Hex),
    bytes("additional information", 24, 72, Kind::Bytes),
    bytes("private data", 96, 136, Kind::Bytes),
];

const LAP_FIELDS: &[Spec] = &[
    bytes("local communication id", 0, 4, Kind::Hex),
    bytes("remote communication id", 4, 4, Kind::Hex),
    bytes("remote QPN", 12, 3, Kind::Hex),
    bits("remote CM response timeout", 15, 0, 5, Kind::Decimal).noted(timeout),
    bytes("alternate local LID", 20, 2, Kind::Hex),
    bytes("alternate remote LID", 22, 2, Kind::Hex),
    bytes("alternate local GID", 24, 16, Kind::Gid),
    bytes("alternate remote GID", 40, 16, Kind::Gid),
    bits("alternate flow label", 56, 0, 20, Kind::Hex),
    bytes("alternate traffic class", 59, 1, Kind::Hex),
    bytes("alternate hop limit", 60, 1, Kind::Decimal),
    bits("alternate packet rate", 61, 2, 6, Kind::Decimal),
    bits("alternate SL", 62, 0, 4, Kind::Decimal),
    bits("alternate subnet local", 62, 4, 1, Kind::Flag),
    bits("alternate local ACK timeout", 63, 0, 5, Kind::Decimal).noted(timeout),
    bytes("private data", 64, 168, Kind::Bytes),
];

const APR_FIELDS: &[Spec] = &[
    bytes("local communication id", 0, 4, Kind::Hex),
    bytes("remote communication id", 4, 4, Kind::Hex),
    bytes("info length", 8, 1, Kind::Decimal),
    bytes("status", 9, 1, Kind::Decimal),
    bytes("additional information", 12, 72, Kind::Bytes),
    bytes("private data", 84, 148, Kind::Bytes),
];

const ADDRESSES_V4: &[Spec] = &[
    bytes("version", 0, 1, Kind::Decimal),
    bits("IP version", 1, 0, 4, Kind::Decimal),
    bytes("source port", 2, 2, Kind::Decimal),
    bytes("source", 16, 4, Kind::Ipv4),
    bytes("destination", 32, 4, Kind::Ipv4),
];

const ADDRESSES_V6: &[Spec] = &[
    bytes("version", 0, 1, Kind::Decimal),
    bits("IP version", 1, 0, 4, Kind::Decimal),
    bytes("source port", 2, 2, Kind::Decimal),
    bytes("source", 4, 16, Kind::Ipv6),
    bytes("destination", 20, 16, Kind::Ipv6),
];

/// Formats a timeout of 4.096 µs · 2^value.
fn timeout(value: u64) -> Cow<'static, str> {
    let nanos = 4096u64 << (value & 0x1f);
    crate::DisplayDuration(std::time::Duration::from_nanos(nanos)).to_string().into()
}

fn mtu(value: u64) -> Cow<'static, str> {
    match roce_wire::PathMtu::from_code(value as u8) {
        Some(mtu) => format!("{mtu} bytes").into(),
        None => "undefined".into(),
    }
}

fn service(value: u64) -> Cow<'static, str> {
    ["RC", "UC", "RD", "extended"].get(value as usize).copied().unwrap_or_default().into()
}

fn acknowledged(value: u64) -> Cow<'static, str> {
    ["REQ", "REP", "LAP"].get(value as usize).copied().unwrap_or_default().into()
}

fn rejected(value: u64) -> Cow<'static, str> {
    ["REQ", "REP", "another, or none"].get(value as usize).copied().unwrap_or_default().into()
}

fn sidr_status(value: u64) -> Cow<'static, str> {
    let words = [
        "valid",
        "service not supported",
        "rejected by the service",
        "no queue pair",
        "redirected to another port",
        "version not supported",
    ];
    words.get(value as usize).copied().unwrap_or_default().into()
}

meanings! {
    pub(super) fn reject_reason {
        1 => "no queue pair left",
        2 => "no end-to-end context left",
        3 => "no resources left",
        4 => "timed out",
        5 => "request not supported",
        6 => "invalid communication id",
        7 => "invalid communication instance",
        8 => "no listener for the service id",
        9 => "invalid transport service",
        10 => "stale connection",
        11 => "no such reliable datagram channel",
        12 => "invalid primary GID",
        13 => "invalid primary LID",
        14 => "invalid primary SL",
        15 => "invalid primary traffic class",
        16 => "invalid primary hop limit",
        17 => "invalid primary packet rate",
        18 => "invalid alternate GID",
        19 => "invalid alternate LID",
        20 => "invalid alternate SL",
        21 => "invalid alternate traffic class",
        22 => "invalid alternate hop limit",
        23 => "invalid alternate packet rate",
        24 => "the listener is elsewhere, by CM",
        25 => "the listener is elsewhere, by LID and GID",
        26 => "invalid path MTU",
        27 => "not enough responder resources",
        28 => "refused by the application",
        29 => "RNR retry count refused",
        30 => "duplicate communication id",
        31 => "invalid class version",
        32 => "invalid flow label",
        33 => "invalid alternate flow label",
    }
}
