//! Management datagrams on queue pair 1: common header and connection management.

use std::fmt;

use roce_wire::{Operation, PathMtu, Psn, Qpn, Service};

use super::cm;
use super::spec::{Kind, Spec, bits, bytes, layer, meanings};
use crate::{Layer, Roce};

/// Returns true for a datagram to the general services queue pair.
pub(crate) fn is_management(roce: &Roce<'_>) -> bool {
    let Some(headers) = roce.headers else { return false };
    let info = headers.bth.opcode.info();
    info.service == Service::Ud
        && info.operation == Operation::Send
        && headers.bth.dest_qp == Qpn::GSI
}

/// Adds the layers of a management datagram of `len` bytes at `at`.
pub(super) fn layers(frame: &[u8], at: usize, len: usize, layers: &mut Vec<Layer>) {
    let end = (at + len).min(frame.len());
    let datagram = frame.get(at..end).unwrap_or_default();
    layers.push(layer("MAD", MAD, frame, at, len.min(MAD_LEN)));
    let body_at = at + MAD_LEN;
    if body_at >= end {
        return;
    }
    match cm::table(datagram) {
        Some((name, table)) => {
            layers.push(layer(name, table, frame, body_at, end - body_at));
            if let Some(private_at) = cm::address_header(datagram) {
                let private_at = at + private_at;
                let table = cm::address_table(frame.get(private_at + 1).copied());
                layers.push(layer("CM addresses", table, frame, private_at, cm::ADDRESS_LEN));
            }
        }
        None => {
            let rest = [bytes("bytes", 0, end - body_at, Kind::Bytes)];
            layers.push(layer("MAD data", &rest, frame, body_at, end - body_at));
        }
    }
}

/// Fields of a connection management message that connection tracking uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CmMessage {
    /// Name: `REQ`, `REP`, …
    pub(crate) name: &'static str,
    attribute: u16,
    /// Communication id of the sender.
    pub(crate) local_id: u32,
    /// Communication id of the receiver, as known to the sender.
    pub(crate) remote_id: u32,
    /// Queue pair of the sender, in REQ and REP.
    pub(crate) qpn: Option<Qpn>,
    /// PSN of the first request that the sender expects, in REQ and REP.
    pub(crate) starting_psn: Option<Psn>,
    /// Path MTU, in REQ.
    pub(crate) mtu: Option<PathMtu>,
    service_id: Option<u64>,
    /// Reason of the rejection, in REJ.
    reason: Option<u16>,
}

impl CmMessage {
    /// Parses a management datagram; `None` if it is not connection management, or truncated.
    pub(crate) fn parse(datagram: &[u8]) -> Option<Self> {
        let (name, _) = cm::table(datagram)?;
        let attribute = cm::attribute(datagram)?;
        let body = datagram.get(MAD_LEN..)?;
        let word =
            |at: usize| body.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let three = |at: usize| body.get(at..)?.first_chunk::<3>().copied();
        let long =
            |at: usize| body.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let mut message = Self {
            name,
            attribute,
            local_id: word(0)?,
            remote_id: word(4)?,
            qpn: None,
            starting_psn: None,
            mtu: None,
            service_id: None,
            reason: None,
        };
        match attribute {
            cm::REQ => {
                message.qpn = three(32).map(Qpn::from_be_bytes);
                message.starting_psn = three(44).map(Psn::from_be_bytes);
                message.mtu = PathMtu::from_code(body.get(50)? >> 4);
                message.service_id = long(8);
            }
            cm::REP => {
                message.qpn = three(12).map(Qpn::from_be_bytes);
                message.starting_psn = three(20).map(Psn::from_be_bytes);
            }
            cm::REJ => message.reason = word(8).map(|word| word as u16),
            cm::SIDR_REQ => message.service_id = long(8),
            cm::SIDR_REP => message.qpn = three(8).map(Qpn::from_be_bytes),
            _ => {}
        }
        Some(message)
    }

    pub(crate) const fn is_request(&self) -> bool {
        self.attribute == cm::REQ
    }

    pub(crate) const fn is_reply(&self) -> bool {
        self.attribute == cm::REP
    }
}

/// `CM REQ id 0x194b7b0b qp 0x000014 first psn 0xc7b33c mtu 1024`
impl fmt::Display for CmMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} id {:#010x}", self.name, self.local_id)?;
        let names_two = !matches!(self.attribute, cm::REQ | cm::SIDR_REQ | cm::SIDR_REP);
        if names_two {
            write!(f, " peer's id {:#010x}", self.remote_id)?;
        }
        if let Some(service) = self.service_id {
            write!(f, " service {service:#018x}")?;
        }
        if let Some(qpn) = self.qpn {
            write!(f, " its qp {qpn}")?;
        }
        if let Some(psn) = self.starting_psn {
            write!(f, " first psn {psn}")?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, " mtu {mtu}")?;
        }
        match self.reason {
            Some(reason) => write!(f, " reason {reason} ({})", cm::reject_reason(reason.into())),
            None => Ok(()),
        }
    }
}

pub(super) const MAD_LEN: usize = 24;

const MAD: &[Spec] = &[
    bytes("base version", 0, 1, Kind::Decimal),
    bytes("class", 1, 1, Kind::Hex).noted(class),
    bytes("class version", 2, 1, Kind::Decimal),
    bits("response", 3, 0, 1, Kind::Flag),
    bits("method", 3, 1, 7, Kind::Hex).noted(method),
    bytes("status", 4, 2, Kind::Hex),
    bytes("class specific", 6, 2, Kind::Hex),
    bytes("transaction", 8, 8, Kind::Hex),
    bytes("attribute", 16, 2, Kind::Hex),
    bytes("reserved", 18, 2, Kind::Hex),
    bytes("attribute modifier", 20, 4, Kind::Hex),
];

meanings! {
    fn class {
        0x01 | 0x81 => "subnet management",
        0x03 => "subnet administration",
        0x04 => "performance management",
        0x05 => "baseboard management",
        0x06 => "device management",
        0x07 => "connection management",
        0x08 => "SNMP",
        0x09..=0x0f | 0x30..=0x4f => "a vendor's",
    }

    fn method {
        0x01 => "Get, or GetResp with the response bit",
        0x02 => "Set",
        0x03 => "Send",
        0x05 => "Trap",
        0x06 => "Report",
        0x07 => "TrapRepress",
    }
}
