//! Connection management: how the fields of messages and of rdma_cm's addresses are written.

use std::borrow::Cow;

use roce_wire::management::{
    AnsweredMessage, CMA_HEADER_LEN, CmAttribute, CmField, CmFieldKind, CmTimeout, CmaAddresses,
    CmaHeader, MANAGEMENT_HEADER_LEN, PortSpace, Req, ServiceId, SidrReq,
};
use roce_wire::management::{ManagementHeader, RejectReason, SidrStatus, TransportService};

use super::spec::{Kind, Note, Spec, bits, bytes};

/// Returns the kind of a message of connection management; `None` for other datagrams.
pub(super) fn attribute(datagram: &[u8]) -> Option<CmAttribute> {
    ManagementHeader::from_bytes(datagram.first_chunk()?).cm_attribute().ok()
}

/// Returns the name of a message's layer.
pub(super) fn layer_name(attribute: CmAttribute) -> &'static str {
    match attribute {
        CmAttribute::Req => "CM REQ",
        CmAttribute::Mra => "CM MRA",
        CmAttribute::Rej => "CM REJ",
        CmAttribute::Rep => "CM REP",
        CmAttribute::Rtu => "CM RTU",
        CmAttribute::Dreq => "CM DREQ",
        CmAttribute::Drep => "CM DREP",
        CmAttribute::SidrReq => "CM SIDR REQ",
        CmAttribute::SidrRep => "CM SIDR REP",
        CmAttribute::Lap => "CM LAP",
        CmAttribute::Apr => "CM APR",
    }
}

/// Returns the fields of a message.
pub(super) fn table(attribute: CmAttribute) -> Vec<Spec> {
    attribute.fields().iter().map(spec).collect()
}

/// Adds the layers of connection management, by name.
pub(super) fn add_tables(tables: &mut Vec<(&'static str, Vec<Spec>)>) {
    tables.extend(CmAttribute::ALL.iter().map(|it| (layer_name(*it), table(*it))));
    tables.push(("CM addresses", ADDRESSES_V4.to_vec()));
}

fn spec(field: &CmField) -> Spec {
    let (kind, note): (Kind, Option<Note>) = match field.kind {
        CmFieldKind::Decimal => (Kind::Decimal, None),
        CmFieldKind::Hex => (Kind::Hex, None),
        CmFieldKind::Flag => (Kind::Flag, None),
        CmFieldKind::Gid => (Kind::Gid, None),
        CmFieldKind::Bytes => (Kind::Bytes, None),
        CmFieldKind::Timeout => (Kind::Decimal, Some(timeout)),
        CmFieldKind::PathMtu => (Kind::Decimal, Some(mtu)),
        CmFieldKind::TransportService => (Kind::Decimal, Some(service)),
        CmFieldKind::AnsweredMessage => (Kind::Decimal, Some(answered)),
        CmFieldKind::RejectReason => (Kind::Decimal, Some(reject_reason)),
        CmFieldKind::SidrStatus => (Kind::Decimal, Some(sidr_status)),
    };
    let spec = bits(field.name, 0, field.first_bit, field.bits, kind);
    match note {
        Some(note) => spec.noted(note),
        None => spec,
    }
}

/// Returns the offset and the fields of the addresses that rdma_cm writes before its private data;
/// `None` without them.
pub(super) fn addresses(datagram: &[u8]) -> Option<(usize, &'static [Spec])> {
    let fields = match attribute(datagram)? {
        CmAttribute::Req => Req::FIELDS,
        CmAttribute::SidrReq => SidrReq::FIELDS,
        _ => return None,
    };
    let at = |name: &str| {
        let field = fields.iter().find(|it| it.name == name)?;
        Some(MANAGEMENT_HEADER_LEN + field.first_bit / 8)
    };
    let service_id = datagram.get(at("service id")?..)?.first_chunk()?;
    let (space, _) = ServiceId(u64::from_be_bytes(*service_id)).port()?;
    let by_rdma_cm = [PortSpace::TCP, PortSpace::UDP, PortSpace::IB].contains(&space);
    let private_at = at("private data")?;
    let header = CmaHeader::decode(datagram.get(private_at..)?).ok().filter(|_| by_rdma_cm)?;
    Some(match header.addresses {
        CmaAddresses::V4 { .. } => (private_at, ADDRESSES_V4),
        CmaAddresses::V6 { .. } => (private_at, ADDRESSES_V6),
    })
}

pub(super) const ADDRESS_LEN: usize = CMA_HEADER_LEN;

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

fn timeout(value: u64) -> Cow<'static, str> {
    let time = CmTimeout::from_code(value as u8).duration();
    crate::DisplayDuration(time).to_string().into()
}

fn mtu(value: u64) -> Cow<'static, str> {
    match roce_wire::PathMtu::from_code(value as u8) {
        Some(mtu) => format!("{mtu} bytes").into(),
        None => "undefined".into(),
    }
}

fn service(value: u64) -> Cow<'static, str> {
    match TransportService::from_code(value as u8) {
        TransportService::Rc => "RC",
        TransportService::Uc => "UC",
        TransportService::Rd => "RD",
        TransportService::Extended => "extended",
    }
    .into()
}

fn answered(value: u64) -> Cow<'static, str> {
    match AnsweredMessage::from_code(value as u8) {
        AnsweredMessage::Req => "REQ",
        AnsweredMessage::Rep => "REP",
        AnsweredMessage::Other => "another, or none",
        AnsweredMessage::Reserved => "",
    }
    .into()
}

fn sidr_status(value: u64) -> Cow<'static, str> {
    SidrStatus(value as u8).to_string().into()
}

fn reject_reason(value: u64) -> Cow<'static, str> {
    RejectReason(value as u16).to_string().into()
}
