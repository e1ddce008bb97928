//! JSON: one object per line. The names are stable; `docs/dissect.md` lists them.

use std::time::Duration;

use roce_dissect::{
    Checksum, Connection, Damage, DirectionCounts, Finding, Icrc, Layer, LinkType, Other, Packet,
    PacketKind, PauseKind, Reaction, Roce, RoceVersion, Severity,
};
use roce_wire::{Headers, Syndrome};
use serde_json::{Map, Value, json};

use super::summary;

type Object = Map<String, Value>;

/// Writes a packet.
pub(super) fn write_packet(packet: &Packet<'_>, with_layers: bool, text: &mut Vec<u8>) {
    let frame = &packet.frame;
    let mut object = Object::new();
    put(&mut object, "number", frame.number);
    put(&mut object, "time_ns", frame.time.0);
    put(&mut object, "link", link_name(frame.link));
    put(&mut object, "length", frame.original_len);
    put(&mut object, "captured", frame.bytes.len());
    match &packet.kind {
        PacketKind::Roce(roce) => put_roce(&mut object, packet, roce),
        PacketKind::Pause(pause) => {
            put(&mut object, "kind", "pause");
            put_some(&mut object, "source_mac", pause.source.map(|mac| mac.to_string()));
            let value = match pause.kind {
                PauseKind::All { quanta } => json!({ "quanta": quanta }),
                PauseKind::Priority { enabled, quanta } => {
                    json!({ "priorities": enabled, "quanta": quanta })
                }
                PauseKind::Unknown { opcode } => json!({ "opcode": opcode }),
            };
            put(&mut object, "pause", value);
        }
        PacketKind::Other(other) => put_other(&mut object, other),
    }
    if !packet.findings.is_empty() {
        let findings: Vec<Value> = packet.findings.iter().map(finding).collect();
        put(&mut object, "findings", findings);
    }
    if with_layers {
        let layers: Vec<Value> = packet.layers().iter().map(layer).collect();
        put(&mut object, "layers", layers);
    }
    write_line(Value::Object(object), text);
}

/// Writes a damaged part of the file.
pub(super) fn write_damage(damage: &Damage, text: &mut Vec<u8>) {
    let value = json!({
        "kind": "damage",
        "offset": damage.offset,
        "skipped": damage.skipped,
        "text": damage.to_string(),
    });
    write_line(value, text);
}

/// Writes a line for each connection.
pub(super) fn write_connections(connections: impl Iterator<Item = Connection>, text: &mut Vec<u8>) {
    for connection in connections {
        let end = |end: &roce_dissect::FlowEnd| json!({ "address": end.address, "qp": end.qp.map(|qp| qp.get()) });
        let trips = connection.round_trips.map(|trips| {
            json!({
                "count": trips.count,
                "min_ns": trips.min.as_nanos() as u64,
                "median_ns": trips.median.as_nanos() as u64,
                "p99_ns": trips.p99.as_nanos() as u64,
            })
        });
        let value = json!({
            "kind": "connection",
            "connection": connection.number,
            "service": summary::service(connection.service),
            "a": end(&connection.a),
            "b": end(&connection.b),
            "mtu": connection.mtu,
            "forward": counts(&connection.forward),
            "backward": counts(&connection.backward),
            "round_trips": trips,
            "longest_stall_ns": connection.longest_stall.as_nanos() as u64,
            "forward_reaction": connection.forward_reaction.map(|it| reaction(&it)),
            "backward_reaction": connection.backward_reaction.map(|it| reaction(&it)),
        });
        write_line(value, text);
    }
}

fn reaction(reaction: &Reaction) -> Value {
    let nanos = |time: Option<Duration>| time.map(|time| time.as_nanos() as u64);
    json!({
        "cnps": reaction.cnps,
        "answers": reaction.answers,
        "answered_after_ns": nanos(reaction.answered_after),
        "min_interval_ns": nanos(reaction.min_interval),
        "bits_per_second_before": reaction.rate_before,
        "bits_per_second_after": reaction.rate_after,
    })
}

fn counts(counts: &DirectionCounts) -> Value {
    json!({
        "packets": counts.packets,
        "wire_bytes": counts.wire_bytes,
        "good_bytes": counts.good_bytes,
        "messages": counts.messages,
        "retransmitted": counts.retransmitted,
        "gaps": counts.gaps,
        "duplicates": counts.duplicates,
        "naks": counts.naks,
        "rnrs": counts.rnrs,
        "ecn_marks": counts.ecn_marks,
        "cnps": counts.cnps,
        "becns": counts.becns,
        "gap_reports": counts.gap_reports,
        "wrong_icrcs": counts.wrong_icrcs,
        "first_ns": counts.first.map(|time| time.0),
        "last_ns": counts.last.map(|time| time.0),
    })
}

fn put_roce(object: &mut Object, packet: &Packet<'_>, roce: &Roce<'_>) {
    put(object, "kind", "roce");
    put(object, "version", if roce.version == RoceVersion::V1 { 1 } else { 2 });
    put(object, "source", roce.source.to_string());
    put(object, "destination", roce.destination.to_string());
    if roce.version == RoceVersion::V2 {
        put(object, "source_port", roce.source_port);
        put(object, "udp_checksum", checksum(roce.udp_checksum));
    }
    put(object, "traffic_class", roce.traffic_class);
    put(object, "icrc", icrc(roce.icrc));
    if let Some(train) = roce.train {
        let place = json!({
            "index": train.index, "count": train.count, "segment_length": train.segment_len,
        });
        put(object, "train", place);
    }
    if let Some(bth) = roce.bth {
        put(object, "opcode", bth.opcode().0);
        put_some(object, "opcode_name", roce.known_opcode().map(|known| known.name()));
        put(object, "qp", bth.dest_qp().get());
        put(object, "psn", bth.psn().get());
        put(object, "p_key", bth.partition_key());
        put(object, "ack_request", bth.ack_request());
        put(object, "solicited", bth.solicited_event());
        put(object, "migration", bth.migration_request());
        put(object, "fecn", bth.fecn());
        put(object, "becn", bth.becn());
        put(object, "pad", bth.pad_count());
    }
    if let Some(headers) = &roce.headers {
        put_extensions(object, headers);
        put(object, "payload_length", roce.payload_len);
    }
    put_some(object, "management", roce.management().map(|message| message.to_string()));
    if let Some(flow) = packet.flow {
        put(object, "connection", flow.connection);
        put(object, "forward", flow.forward);
        put_some(object, "source_qp", flow.source_qp.map(|qp| qp.get()));
    }
}

fn put_extensions(object: &mut Object, headers: &Headers) {
    if let Some(reth) = headers.reth {
        let value = json!({ "address": hex(reth.addr), "key": reth.rkey, "length": reth.len });
        put(object, "reth", value);
    }
    if let Some(atomic) = headers.atomic_eth {
        let value = json!({
            "address": hex(atomic.addr),
            "key": atomic.rkey,
            "swap_or_add": hex(atomic.swap_or_add),
            "compare": hex(atomic.compare),
        });
        put(object, "atomic", value);
    }
    if let Some(aeth) = headers.aeth {
        let mut value = json!({ "syndrome": aeth.syndrome.to_byte(), "msn": aeth.msn });
        let (name, more) = match aeth.syndrome {
            Syndrome::Ack { credits } => ("ack", ("credits", json!(credits.count()))),
            Syndrome::RnrNak { timer } => {
                ("rnr", ("wait_ns", json!(timer.duration().as_nanos() as u64)))
            }
            Syndrome::Nak(code) => ("nak", ("reason", json!(code.to_string()))),
            Syndrome::Reserved(_) => ("reserved", ("reason", Value::Null)),
        };
        value["kind"] = name.into();
        value[more.0] = more.1;
        put(object, "aeth", value);
    }
    put_some(
        object,
        "atomic_ack",
        headers.atomic_ack.map(|ack| json!({ "original": hex(ack.original) })),
    );
    if let Some(deth) = headers.deth {
        let value = json!({ "q_key": deth.q_key, "source_qp": deth.source_qp.get() });
        put(object, "deth", value);
    }
    put_some(object, "immediate", headers.immediate.map(|data| u32::from_be_bytes(data.0)));
    put_some(object, "invalidate_key", headers.invalidate.map(|key| key.0));
}

fn put_other(object: &mut Object, other: &Other) {
    put(object, "kind", "other");
    put(object, "protocol", other.to_string());
    if let Some((source, destination)) = other.addresses() {
        put(object, "source", source.to_string());
        put(object, "destination", destination.to_string());
    }
}

fn finding(finding: &Finding) -> Value {
    let severity = match finding.severity() {
        Severity::Info => "info",
        Severity::Notice => "notice",
        Severity::Problem => "problem",
    };
    json!({ "name": finding.name(), "severity": severity, "text": finding.to_string() })
}

fn layer(layer: &Layer) -> Value {
    let fields: Vec<Value> = layer
        .fields
        .iter()
        .map(|field| {
            json!({
                "name": field.name,
                "value": field.value.to_string(),
                "start": field.bytes.start,
                "end": field.bytes.end,
                "note": field.note,
            })
        })
        .collect();
    json!({
        "name": layer.name, "start": layer.range.start, "end": layer.range.end, "fields": fields,
    })
}

fn icrc(icrc: Icrc) -> Value {
    match icrc {
        Icrc::Right => json!({ "verdict": "right" }),
        Icrc::Wrong { carried, expected } => {
            json!({ "verdict": "wrong", "carried": carried, "expected": expected })
        }
        Icrc::Unchecked(why) => json!({ "verdict": "unchecked", "why": why.to_string() }),
    }
}

fn checksum(checksum: Checksum) -> &'static str {
    match checksum {
        Checksum::None => "none",
        Checksum::Right => "right",
        Checksum::Offloaded => "offloaded",
        Checksum::Wrong { .. } => "wrong",
        Checksum::Unchecked => "unchecked",
    }
}

fn link_name(link: LinkType) -> String {
    match link {
        LinkType::Ethernet => "ethernet".to_owned(),
        LinkType::LinuxCooked => "linux_cooked".to_owned(),
        LinkType::LinuxCooked2 => "linux_cooked_v2".to_owned(),
        LinkType::RawIp => "raw_ip".to_owned(),
        LinkType::Other(code) => code.to_string(),
    }
}

/// Not every JSON reader represents 64-bit numbers.
fn hex(value: u64) -> String {
    format!("{value:#x}")
}

fn put(object: &mut Object, name: &str, value: impl Into<Value>) {
    object.insert(name.to_owned(), value.into());
}

fn put_some(object: &mut Object, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        put(object, name, value);
    }
}

fn write_line(value: Value, text: &mut Vec<u8>) {
    // Writing to memory cannot fail, and a Value is always JSON.
    let _ = serde_json::to_writer(&mut *text, &value);
    text.push(b'\n');
}
