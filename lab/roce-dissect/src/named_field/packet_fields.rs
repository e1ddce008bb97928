//! Fields of packets that are in the JSON output of `roce dissect`, under its names.

use std::borrow::Cow;

use roce_wire::{BthView, Headers, Syndrome};

use super::entry::PacketValues;
use super::value::{FieldKind, FieldValue};
use crate::{
    Checksum, Icrc, LinkType, Packet, PacketKind, Pause, PauseKind, Roce, RoceVersion, Severity,
};
use FieldKind::{Address, Flag, Mac, Number, Text};

/// Name, kind and values of each.
pub(super) const ALL: &[(&str, FieldKind, PacketValues)] = &[
    ("kind", Text, |packet, on_value| on_value(text(kind(packet)))),
    ("number", Number, |packet, on_value| on_value(decimal(packet.frame.number))),
    ("time_ns", Number, |packet, on_value| on_value(decimal(packet.frame.time.0))),
    ("link", Text, |packet, on_value| on_value(link(packet.frame.link))),
    ("length", Number, |packet, on_value| on_value(decimal(packet.frame.original_len))),
    ("captured", Number, |packet, on_value| on_value(decimal(packet.frame.bytes.len() as u64))),
    ("findings.name", Text, finding_names),
    ("findings.severity", Text, |packet, on_value| {
        packet.findings.iter().for_each(|it| on_value(text(severity(it.severity()))));
    }),
    ("findings.text", Text, |packet, on_value| {
        packet.findings.iter().for_each(|it| on_value(FieldValue::Text(it.to_string().into())));
    }),
    ("version", Number, |packet, on_value| {
        of_roce(packet, on_value, |roce| {
            Some(decimal(if roce.version == RoceVersion::V1 { 1u64 } else { 2 }))
        });
    }),
    ("source", Address, |packet, on_value| {
        if let Some((source, _)) = addresses(packet) {
            on_value(FieldValue::Address(source));
        }
    }),
    ("destination", Address, |packet, on_value| {
        if let Some((_, destination)) = addresses(packet) {
            on_value(FieldValue::Address(destination));
        }
    }),
    ("host", Address, |packet, on_value| {
        if let Some((source, destination)) = addresses(packet) {
            on_value(FieldValue::Address(source));
            on_value(FieldValue::Address(destination));
        }
    }),
    ("source_port", Number, |packet, on_value| {
        of_roce_v2(packet, on_value, |roce| decimal(roce.source_port));
    }),
    ("udp_checksum", Text, |packet, on_value| {
        of_roce_v2(packet, on_value, |roce| text(checksum(roce.udp_checksum)));
    }),
    ("traffic_class", Number, |packet, on_value| {
        of_roce(packet, on_value, |roce| Some(decimal(roce.traffic_class)));
    }),
    ("icrc.verdict", Text, |packet, on_value| {
        of_roce(packet, on_value, |roce| Some(text(verdict(roce.icrc))));
    }),
    ("icrc.carried", Number, |packet, on_value| {
        of_roce(packet, on_value, |roce| wrong_icrc(roce).map(|(carried, _)| decimal(carried)));
    }),
    ("icrc.expected", Number, |packet, on_value| {
        of_roce(packet, on_value, |roce| wrong_icrc(roce).map(|(_, right)| decimal(right)));
    }),
    ("icrc.why", Text, |packet, on_value| {
        of_roce(packet, on_value, |roce| match roce.icrc {
            Icrc::Unchecked(why) => Some(FieldValue::Text(why.to_string().into())),
            _ => None,
        });
    }),
    ("train.index", Number, |packet, on_value| {
        of_roce(packet, on_value, |roce| roce.train.map(|train| decimal(train.index)));
    }),
    ("train.count", Number, |packet, on_value| {
        of_roce(packet, on_value, |roce| roce.train.map(|train| decimal(train.count)));
    }),
    ("train.segment_length", Number, |packet, on_value| {
        of_roce(packet, on_value, |roce| roce.train.map(|train| decimal(train.segment_len)));
    }),
    ("opcode", Number, |packet, on_value| of_bth(packet, on_value, |bth| decimal(bth.opcode().0))),
    ("opcode_name", Text, |packet, on_value| {
        of_roce(packet, on_value, |roce| roce.known_opcode().map(|known| text(known.name())));
    }),
    ("qp", Number, |packet, on_value| {
        of_bth(packet, on_value, |bth| decimal(bth.dest_qp().get()));
    }),
    ("psn", Number, |packet, on_value| of_bth(packet, on_value, |bth| decimal(bth.psn().get()))),
    ("p_key", Number, |packet, on_value| {
        of_bth(packet, on_value, |bth| decimal(bth.partition_key()));
    }),
    ("ack_request", Flag, |packet, on_value| {
        of_bth(packet, on_value, |bth| FieldValue::Flag(bth.ack_request()));
    }),
    ("solicited", Flag, |packet, on_value| {
        of_bth(packet, on_value, |bth| FieldValue::Flag(bth.solicited_event()));
    }),
    ("migration", Flag, |packet, on_value| {
        of_bth(packet, on_value, |bth| FieldValue::Flag(bth.migration_request()));
    }),
    ("fecn", Flag, |packet, on_value| {
        of_bth(packet, on_value, |bth| FieldValue::Flag(bth.fecn()));
    }),
    ("becn", Flag, |packet, on_value| {
        of_bth(packet, on_value, |bth| FieldValue::Flag(bth.becn()));
    }),
    ("pad", Number, |packet, on_value| of_bth(packet, on_value, |bth| decimal(bth.pad_count()))),
    ("atomic.address", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| it.atomic_eth.map(|it| FieldValue::hex(it.addr)));
    }),
    ("atomic.key", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| it.atomic_eth.map(|it| decimal(it.rkey)));
    }),
    ("atomic.swap_or_add", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| it.atomic_eth.map(|it| FieldValue::hex(it.swap_or_add)));
    }),
    ("atomic.compare", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| it.atomic_eth.map(|it| FieldValue::hex(it.compare)));
    }),
    ("atomic_ack.original", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| it.atomic_ack.map(|it| FieldValue::hex(it.original)));
    }),
    ("reth.address", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| it.reth.map(|it| FieldValue::hex(it.addr)));
    }),
    ("reth.key", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| it.reth.map(|it| decimal(it.rkey)));
    }),
    ("reth.length", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| it.reth.map(|it| decimal(it.len)));
    }),
    ("aeth.syndrome", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| it.aeth.map(|it| decimal(it.syndrome.to_byte())));
    }),
    ("aeth.msn", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| it.aeth.map(|it| decimal(it.msn)));
    }),
    ("aeth.kind", Text, |packet, on_value| {
        of_headers(packet, on_value, |it| it.aeth.map(|it| text(syndrome(it.syndrome))));
    }),
    ("aeth.credits", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| match it.aeth?.syndrome {
            Syndrome::Ack { credits } => credits.count().map(decimal),
            _ => None,
        });
    }),
    ("aeth.wait_ns", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| match it.aeth?.syndrome {
            Syndrome::RnrNak { timer } => Some(decimal(timer.duration().as_nanos() as u64)),
            _ => None,
        });
    }),
    ("aeth.reason", Text, |packet, on_value| {
        of_headers(packet, on_value, |it| match it.aeth?.syndrome {
            Syndrome::Nak(code) => Some(FieldValue::Text(code.to_string().into())),
            _ => None,
        });
    }),
    ("deth.q_key", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| it.deth.map(|it| decimal(it.q_key)));
    }),
    ("deth.source_qp", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| it.deth.map(|it| decimal(it.source_qp.get())));
    }),
    ("immediate", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| it.immediate.map(|it| decimal(u32::from_be_bytes(it.0))));
    }),
    ("invalidate_key", Number, |packet, on_value| {
        of_headers(packet, on_value, |it| it.invalidate.map(|it| decimal(it.0)));
    }),
    ("payload_length", Number, |packet, on_value| {
        of_roce(packet, on_value, |roce| {
            roce.headers.as_ref().map(|_| decimal(roce.payload_len as u64))
        });
    }),
    ("management", Text, |packet, on_value| {
        of_roce(packet, on_value, |roce| {
            roce.management().map(|it| FieldValue::Text(it.to_string().into()))
        });
    }),
    ("connection", Number, |packet, on_value| {
        if let Some(flow) = packet.flow {
            on_value(decimal(u64::from(flow.connection)));
        }
    }),
    ("forward", Flag, |packet, on_value| {
        if let Some(flow) = packet.flow {
            on_value(FieldValue::Flag(flow.forward));
        }
    }),
    ("source_qp", Number, |packet, on_value| {
        if let Some(qp) = packet.flow.and_then(|flow| flow.source_qp) {
            on_value(decimal(qp.get()));
        }
    }),
    ("source_mac", Mac, |packet, on_value| {
        of_pause(packet, |pause| {
            if let Some(mac) = pause.source {
                on_value(FieldValue::Mac(mac));
            }
        });
    }),
    ("pause.quanta", Number, |packet, on_value| {
        of_pause(packet, |pause| match pause.kind {
            PauseKind::All { quanta } => on_value(decimal(quanta)),
            PauseKind::Priority { quanta, .. } => {
                quanta.into_iter().for_each(|it| on_value(decimal(it)));
            }
            PauseKind::Unknown { .. } => {}
        });
    }),
    ("pause.priorities", Number, |packet, on_value| {
        of_pause(packet, |pause| {
            if let PauseKind::Priority { enabled, .. } = pause.kind {
                on_value(decimal(enabled));
            }
        });
    }),
    ("pause.opcode", Number, |packet, on_value| {
        of_pause(packet, |pause| {
            if let PauseKind::Unknown { opcode } = pause.kind {
                on_value(decimal(opcode));
            }
        });
    }),
    ("protocol", Text, |packet, on_value| {
        if let PacketKind::Other(other) = &packet.kind {
            on_value(FieldValue::Text(other.to_string().into()));
        }
    }),
];

type OnValue<'f> = &'f mut dyn FnMut(FieldValue<'_>);

fn of_roce(
    packet: &Packet<'_>,
    on_value: OnValue<'_>,
    value: impl FnOnce(&Roce<'_>) -> Option<FieldValue<'static>>,
) {
    if let Some(value) = packet.roce().and_then(value) {
        on_value(value);
    }
}

fn of_roce_v2(
    packet: &Packet<'_>,
    on_value: OnValue<'_>,
    value: impl FnOnce(&Roce<'_>) -> FieldValue<'static>,
) {
    of_roce(packet, on_value, |roce| (roce.version == RoceVersion::V2).then(|| value(roce)));
}

fn of_bth(
    packet: &Packet<'_>,
    on_value: OnValue<'_>,
    value: impl FnOnce(&BthView<'_>) -> FieldValue<'static>,
) {
    of_roce(packet, on_value, |roce| roce.bth.as_ref().map(value));
}

fn of_headers(
    packet: &Packet<'_>,
    on_value: OnValue<'_>,
    value: impl FnOnce(&Headers) -> Option<FieldValue<'static>>,
) {
    of_roce(packet, on_value, |roce| roce.headers.as_ref().and_then(value));
}

fn of_pause(packet: &Packet<'_>, read: impl FnOnce(&Pause)) {
    if let PacketKind::Pause(pause) = &packet.kind {
        read(pause);
    }
}

fn addresses(packet: &Packet<'_>) -> Option<(std::net::IpAddr, std::net::IpAddr)> {
    match &packet.kind {
        PacketKind::Roce(roce) => Some((roce.source, roce.destination)),
        PacketKind::Other(other) => other.addresses(),
        PacketKind::Pause(_) => None,
    }
}

fn finding_names(packet: &Packet<'_>, on_value: OnValue<'_>) {
    packet.findings.iter().for_each(|finding| on_value(text(finding.name())));
}

fn decimal(value: impl Into<u64>) -> FieldValue<'static> {
    FieldValue::decimal(value)
}

const fn text(text: &'static str) -> FieldValue<'static> {
    FieldValue::Text(Cow::Borrowed(text))
}

fn kind(packet: &Packet<'_>) -> &'static str {
    match packet.kind {
        PacketKind::Roce(_) => "roce",
        PacketKind::Pause(_) => "pause",
        PacketKind::Other(_) => "other",
    }
}

fn link(link: LinkType) -> FieldValue<'static> {
    text(match link {
        LinkType::Ethernet => "ethernet",
        LinkType::LinuxCooked => "linux_cooked",
        LinkType::LinuxCooked2 => "linux_cooked_v2",
        LinkType::RawIp => "raw_ip",
        LinkType::Other(code) => return FieldValue::Text(code.to_string().into()),
    })
}

const fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Notice => "notice",
        Severity::Problem => "problem",
    }
}

const fn checksum(checksum: Checksum) -> &'static str {
    match checksum {
        Checksum::None => "none",
        Checksum::Right => "right",
        Checksum::Offloaded => "offloaded",
        Checksum::Wrong { .. } => "wrong",
        Checksum::Unchecked => "unchecked",
    }
}

const fn verdict(icrc: Icrc) -> &'static str {
    match icrc {
        Icrc::Right => "right",
        Icrc::Wrong { .. } => "wrong",
        Icrc::Unchecked(_) => "unchecked",
    }
}

fn wrong_icrc(roce: &Roce<'_>) -> Option<(u32, u32)> {
    match roce.icrc {
        Icrc::Wrong { carried, expected } => Some((carried, expected)),
        _ => None,
    }
}

const fn syndrome(syndrome: Syndrome) -> &'static str {
    match syndrome {
        Syndrome::Ack { .. } => "ack",
        Syndrome::RnrNak { .. } => "rnr",
        Syndrome::Nak(_) => "nak",
        Syndrome::Reserved(_) => "reserved",
    }
}
