//! Layers before the BTH: link, VLAN tags, IP, UDP, GRH, pause frames.

use std::borrow::Cow;

use super::spec::{Kind, Spec, bits, bytes, layer, meanings};
use crate::link::{self, Link, VLAN_LEN};
use crate::{Checksum, Finding, Layer, LinkType, Packet, Pause, PauseKind, Value};

/// Adds link and VLAN tags; returns `None` for an unsupported link type.
pub(super) fn link(packet: &Packet<'_>, layers: &mut Vec<Layer>) -> Option<Link> {
    let frame = packet.frame.bytes;
    let (name, table): (_, &[Spec]) = match packet.frame.link {
        LinkType::Ethernet => ("Ethernet", ETHERNET),
        LinkType::LinuxCooked => ("Linux cooked v1", COOKED),
        LinkType::LinuxCooked2 => ("Linux cooked v2", COOKED2),
        LinkType::RawIp | LinkType::Other(_) => ("", &[]),
    };
    let parsed = Link::parse(packet.frame.link, frame).ok();
    let len = match (packet.frame.link, parsed) {
        (_, Some(link)) => link.base_len,
        (LinkType::Ethernet, None) => link::ETHERNET_LEN,
        (LinkType::LinuxCooked, None) => link::COOKED_LEN,
        (LinkType::LinuxCooked2, None) => link::COOKED2_LEN,
        _ => 0,
    };
    if !table.is_empty() {
        layers.push(layer(name, table, frame, 0, len));
    }
    let parsed = parsed?;
    for tag in 0..parsed.vlan_tags() {
        let at = parsed.base_len + tag * VLAN_LEN;
        layers.push(layer("VLAN", VLAN, frame, at, VLAN_LEN));
    }
    Some(parsed)
}

/// Adds IPv4 or IPv6 with options or extension headers up to the next layer at `end`.
pub(super) fn ip(packet: &Packet<'_>, link: &Link, end: usize, layers: &mut Vec<Layer>) {
    let (frame, at) = (packet.frame.bytes, link.len);
    let base = match link.ether_type {
        link::IPV4 => {
            let mut ip = layer("IPv4", IPV4, frame, at, IPV4_LEN);
            if let Some(checksum) = ip.fields.iter_mut().find(|field| field.name == "checksum") {
                checksum.note = match checksum.value {
                    Value::Hex { value: 0, .. } => "offloaded: a network card fills it in".into(),
                    _ => ipv4_checksum_note(packet),
                };
            }
            layers.push(ip);
            IPV4_LEN
        }
        link::IPV6 => {
            layers.push(layer("IPv6", IPV6, frame, at, IPV6_LEN));
            IPV6_LEN
        }
        _ => return,
    };
    let (start, end) = (at + base, end.min(frame.len()));
    if start < end {
        let name = if base == IPV4_LEN { "IPv4 options" } else { "IPv6 extension headers" };
        let table = [bytes("bytes", 0, end - start, Kind::Bytes)];
        layers.push(layer(name, &table, frame, start, end - start));
    }
}

fn ipv4_checksum_note(packet: &Packet<'_>) -> Cow<'static, str> {
    let wrong = packet.findings.iter().find_map(|finding| match finding {
        Finding::Ipv4Checksum { expected, .. } => Some(*expected),
        _ => None,
    });
    match wrong {
        Some(expected) => format!("wrong, expected {expected:#06x}").into(),
        None if packet.roce().is_some() => "right".into(),
        None => "".into(),
    }
}

/// Adds the UDP layer.
pub(super) fn udp(frame: &[u8], at: usize, checksum: Checksum) -> Layer {
    let mut udp = layer("UDP", UDP, frame, at, UDP_LEN);
    if let Some(field) = udp.fields.iter_mut().find(|field| field.name == "checksum") {
        field.note = match checksum {
            Checksum::None => "none: the ICRC covers the packet".into(),
            Checksum::Right => "right".into(),
            Checksum::Offloaded => "offloaded: the sum over the pseudo-header alone".into(),
            Checksum::Wrong { expected, .. } => format!("wrong, expected {expected:#06x}").into(),
            Checksum::Unchecked => "not checked: the datagram is truncated".into(),
        };
    }
    udp
}

/// Adds the GRH of RoCEv1.
pub(super) fn grh(frame: &[u8], at: usize) -> Layer {
    layer("GRH", GRH, frame, at, IPV6_LEN)
}

/// Returns the layer of a pause frame.
pub(super) fn pause(frame: &[u8], pause: &Pause) -> Layer {
    match pause.kind {
        PauseKind::All { .. } => layer("MAC control", PAUSE, frame, pause.offset, 4),
        PauseKind::Priority { .. } => layer("MAC control", PRIORITY, frame, pause.offset, 20),
        PauseKind::Unknown { .. } => layer("MAC control", &PAUSE[..1], frame, pause.offset, 2),
    }
}

/// Adds the layers before the BTH, by name.
pub(super) fn add_tables(tables: &mut Vec<(&'static str, Vec<Spec>)>) {
    let known: [(_, &[Spec]); 9] = [
        ("Ethernet", ETHERNET),
        ("Linux cooked v1", COOKED),
        ("Linux cooked v2", COOKED2),
        ("VLAN", VLAN),
        ("IPv4", IPV4),
        ("IPv6", IPV6),
        ("GRH", GRH),
        ("UDP", UDP),
        ("MAC control", PRIORITY),
    ];
    tables.extend(known.map(|(name, table)| (name, table.to_vec())));
    // A pause of all traffic has its quanta where the other has its priorities.
    tables.push(("MAC control", PAUSE[1..].to_vec()));
    for name in ["IPv4 options", "IPv6 extension headers"] {
        tables.push((name, vec![bytes("bytes", 0, 1, Kind::Bytes)]));
    }
}

const ETHERNET: &[Spec] = &[
    bytes("destination", 0, 6, Kind::Mac),
    bytes("source", 6, 6, Kind::Mac),
    bytes("EtherType", 12, 2, Kind::Hex).noted(ether_type),
];

const COOKED: &[Spec] = &[
    bytes("packet type", 0, 2, Kind::Decimal).noted(cooked_packet_type),
    bytes("hardware type", 2, 2, Kind::Decimal),
    bytes("address length", 4, 2, Kind::Decimal),
    bytes("source", 6, 6, Kind::Mac),
    bytes("unused", 12, 2, Kind::Hex),
    bytes("EtherType", 14, 2, Kind::Hex).noted(ether_type),
];

const COOKED2: &[Spec] = &[
    bytes("EtherType", 0, 2, Kind::Hex).noted(ether_type),
    bytes("reserved", 2, 2, Kind::Hex),
    bytes("interface index", 4, 4, Kind::Decimal),
    bytes("hardware type", 8, 2, Kind::Decimal),
    bytes("packet type", 10, 1, Kind::Decimal).noted(cooked_packet_type),
    bytes("address length", 11, 1, Kind::Decimal),
    bytes("source", 12, 6, Kind::Mac),
];

const VLAN: &[Spec] = &[
    bits("priority", 0, 0, 3, Kind::Decimal),
    bits("drop eligible", 0, 3, 1, Kind::Flag),
    bits("VLAN", 0, 4, 12, Kind::Decimal),
    bytes("EtherType", 2, 2, Kind::Hex).noted(ether_type),
];

const IPV4: &[Spec] = &[
    bits("version", 0, 0, 4, Kind::Decimal),
    bits("header length", 0, 4, 4, Kind::Decimal).noted(words),
    bits("DSCP", 1, 0, 6, Kind::Decimal),
    bits("ECN", 1, 6, 2, Kind::Decimal).noted(ecn),
    bytes("total length", 2, 2, Kind::Decimal),
    bytes("identification", 4, 2, Kind::Hex),
    bits("do not fragment", 6, 1, 1, Kind::Flag),
    bits("more fragments", 6, 2, 1, Kind::Flag),
    bits("fragment offset", 6, 3, 13, Kind::Decimal),
    bytes("TTL", 8, 1, Kind::Decimal),
    bytes("protocol", 9, 1, Kind::Decimal).noted(protocol),
    bytes("checksum", 10, 2, Kind::Hex),
    bytes("source", 12, 4, Kind::Ipv4),
    bytes("destination", 16, 4, Kind::Ipv4),
];

const IPV6: &[Spec] = &[
    bits("version", 0, 0, 4, Kind::Decimal),
    bits("DSCP", 0, 4, 6, Kind::Decimal),
    bits("ECN", 1, 2, 2, Kind::Decimal).noted(ecn),
    bits("flow label", 1, 4, 20, Kind::Hex),
    bytes("payload length", 4, 2, Kind::Decimal),
    bytes("next header", 6, 1, Kind::Decimal).noted(protocol),
    bytes("hop limit", 7, 1, Kind::Decimal),
    bytes("source", 8, 16, Kind::Ipv6),
    bytes("destination", 24, 16, Kind::Ipv6),
];

const GRH: &[Spec] = &[
    bits("version", 0, 0, 4, Kind::Decimal),
    bits("traffic class", 0, 4, 8, Kind::Hex),
    bits("flow label", 1, 4, 20, Kind::Hex),
    bytes("payload length", 4, 2, Kind::Decimal),
    bytes("next header", 6, 1, Kind::Hex).noted(protocol),
    bytes("hop limit", 7, 1, Kind::Decimal),
    bytes("source", 8, 16, Kind::Gid),
    bytes("destination", 24, 16, Kind::Gid),
];

const UDP: &[Spec] = &[
    bytes("source port", 0, 2, Kind::Decimal),
    bytes("destination port", 2, 2, Kind::Decimal).noted(port),
    bytes("length", 4, 2, Kind::Decimal),
    bytes("checksum", 6, 2, Kind::Hex),
];

const PAUSE: &[Spec] =
    &[bytes("opcode", 0, 2, Kind::Hex).noted(mac_control), bytes("quanta", 2, 2, Kind::Decimal)];

const PRIORITY: &[Spec] = &[
    bytes("opcode", 0, 2, Kind::Hex).noted(mac_control),
    bytes("reserved", 2, 1, Kind::Hex),
    bytes("priorities", 3, 1, Kind::Hex),
    bytes("quanta 0", 4, 2, Kind::Decimal),
    bytes("quanta 1", 6, 2, Kind::Decimal),
    bytes("quanta 2", 8, 2, Kind::Decimal),
    bytes("quanta 3", 10, 2, Kind::Decimal),
    bytes("quanta 4", 12, 2, Kind::Decimal),
    bytes("quanta 5", 14, 2, Kind::Decimal),
    bytes("quanta 6", 16, 2, Kind::Decimal),
    bytes("quanta 7", 18, 2, Kind::Decimal),
];

meanings! {
    fn ether_type {
        0x0800 => "IPv4",
        0x0806 => "ARP",
        0x86dd => "IPv6",
        0x8100 => "VLAN tag",
        0x88a8 | 0x9100 => "provider's VLAN tag",
        0x8808 => "MAC control",
        0x8915 => "RoCEv1",
    }

    fn cooked_packet_type {
        0 => "to this host",
        1 => "broadcast",
        2 => "multicast",
        3 => "to another host",
        4 => "sent by this host",
    }
}

fn words(value: u64) -> Cow<'static, str> {
    format!("{} bytes", 4 * value).into()
}

fn ecn(value: u64) -> Cow<'static, str> {
    match value {
        0 => "not ECN-capable",
        1 => "ECT(1)",
        2 => "ECT(0)",
        _ => "congestion experienced",
    }
    .into()
}

meanings! {
    fn protocol {
        0 => "hop-by-hop options",
        1 => "ICMP",
        6 => "TCP",
        17 => "UDP",
        27 => "InfiniBand",
        43 => "routing header",
        44 => "fragment header",
        58 => "ICMPv6",
        60 => "destination options",
    }
}

fn port(value: u64) -> Cow<'static, str> {
    if value == 4791 { "RoCEv2".into() } else { "".into() }
}

meanings! {
    fn mac_control {
        0x0001 => "pause",
        0x0101 => "priority flow control",
    }
}

const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
