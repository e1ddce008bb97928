//! Management datagrams on queue pair 1: common header and connection management.

use std::fmt;

use roce_wire::management::{
    CmAttribute, CmDatagram, CmMessage as Message, CommunicationId, MANAGEMENT_DATAGRAM_LEN,
    MANAGEMENT_HEADER_LEN, RejectReason, ServiceId,
};
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
    layers.push(layer("MAD", MAD, frame, at, len.min(MANAGEMENT_HEADER_LEN)));
    let body_at = at + MANAGEMENT_HEADER_LEN;
    if body_at >= end {
        return;
    }
    match cm::attribute(datagram) {
        Some(attribute) => {
            let name = cm::layer_name(attribute);
            layers.push(layer(name, &cm::table(attribute), frame, body_at, end - body_at));
            if let Some((private_at, table)) = cm::addresses(datagram) {
                let private_at = at + private_at;
                layers.push(layer("CM addresses", table, frame, private_at, cm::ADDRESS_LEN));
            }
        }
        None => {
            let rest = [bytes("bytes", 0, end - body_at, Kind::Bytes)];
            layers.push(layer("MAD data", &rest, frame, body_at, end - body_at));
        }
    }
}

/// Adds the layers of management datagrams, by name.
pub(super) fn add_tables(tables: &mut Vec<(&'static str, Vec<Spec>)>) {
    tables.push(("MAD", MAD.to_vec()));
    tables.push(("MAD data", vec![bytes("bytes", 0, 1, Kind::Bytes)]));
    cm::add_tables(tables);
}

/// Fields of a connection management message that connection tracking uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CmMessage {
    attribute: CmAttribute,
    /// Communication id of the sender.
    pub(crate) local_id: CommunicationId,
    /// Communication id of the receiver, as known to the sender; the number of a SIDR request.
    pub(crate) remote_id: Option<CommunicationId>,
    /// Queue pair of the sender, in REQ and REP.
    pub(crate) qpn: Option<Qpn>,
    /// PSN of the first request that the sender expects, in REQ and REP.
    pub(crate) starting_psn: Option<Psn>,
    /// Path MTU, in REQ.
    pub(crate) mtu: Option<PathMtu>,
    service_id: Option<ServiceId>,
    /// Reason of the rejection, in REJ.
    reason: Option<RejectReason>,
}

impl CmMessage {
    /// Bytes of a datagram that hold all of these fields.
    const NEEDED: usize = MANAGEMENT_HEADER_LEN + 52;

    /// Parses a management datagram; `None` if it is not connection management, or if fewer than 76 of
    /// its bytes were captured.
    pub(crate) fn parse(captured: &[u8]) -> Option<Self> {
        if captured.len() < Self::NEEDED {
            return None;
        }
        let mut datagram = [0; MANAGEMENT_DATAGRAM_LEN];
        let len = captured.len().min(datagram.len());
        datagram[..len].copy_from_slice(&captured[..len]);
        let read = CmDatagram::decode(&datagram).ok()?.message;
        let mut message = Self {
            attribute: read.attribute(),
            local_id: read.local_id(),
            remote_id: read.remote_id(),
            qpn: None,
            starting_psn: None,
            mtu: None,
            service_id: None,
            reason: None,
        };
        match read {
            Message::Req(req) => {
                message.qpn = Some(req.local_qpn);
                message.starting_psn = Some(req.starting_psn);
                message.mtu = PathMtu::from_code(req.path_mtu);
                message.service_id = Some(req.service_id);
            }
            Message::Rep(rep) => {
                message.qpn = Some(rep.local_qpn);
                message.starting_psn = Some(rep.starting_psn);
            }
            Message::Rej(rej) => message.reason = Some(rej.reason),
            Message::SidrReq(req) => message.service_id = Some(req.service_id),
            Message::SidrRep(rep) => message.qpn = Some(rep.qpn),
            _ => {}
        }
        Some(message)
    }

    pub(crate) const fn is_request(&self) -> bool {
        matches!(self.attribute, CmAttribute::Req)
    }

    pub(crate) const fn is_reply(&self) -> bool {
        matches!(self.attribute, CmAttribute::Rep)
    }
}

/// `CM REQ id 0x194b7b0b qp 0x000014 first psn 0xc7b33c mtu 1024`
impl fmt::Display for CmMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} id {}", cm::layer_name(self.attribute), self.local_id)?;
        if let Some(id) = self.remote_id {
            write!(f, " peer's id {id}")?;
        }
        if let Some(service) = self.service_id {
            write!(f, " service {service}")?;
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
            Some(reason) => write!(f, " reason {} ({reason})", reason.0),
            None => Ok(()),
        }
    }
}

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
