//! One line for each packet. This is the fast path.

use std::io::Write;
use std::net::IpAddr;

use roce_dissect::{Damage, Finding, Other, Packet, PacketKind, Roce, RoceVersion, Severity};
use roce_wire::{Ecn, Ext, Feth, FlushExtent, Headers, KnownOpcode, Service, Syndrome};

use super::color::{Color, Coloring};
use super::number_format::{
    decimals, put_decimal, put_duration, put_fmt, put_front, put_hex, put_hex_short,
};
use super::time_column::TimeColumn;

/// Writes summary lines.
#[derive(Debug)]
pub(crate) struct SummaryLine {
    coloring: Coloring,
    /// Texts of recent addresses, which are slow to format and rarely change.
    addresses: [Option<Address>; 16],
}

/// An address and its text.
#[derive(Clone, Copy, Debug)]
struct Address {
    address: IpAddr,
    text: [u8; MAX_ADDRESS_LEN],
    len: usize,
}

impl SummaryLine {
    pub(crate) fn new(coloring: Coloring) -> Self {
        Self { coloring, addresses: [const { None }; 16] }
    }

    /// `    12 0.000123456 10.9.0.2 → 10.9.0.1 qp 0x000011 RC SEND Only psn 0x123456 5 bytes`
    pub(crate) fn write(&mut self, packet: &Packet<'_>, time: &mut TimeColumn, text: &mut Vec<u8>) {
        self.coloring.start(Color::Dim, text);
        self.write_number(packet, text);
        text.push(b' ');
        time.write(packet.frame.number, packet.frame.time, text);
        self.coloring.end(text);
        text.push(b' ');
        match &packet.kind {
            PacketKind::Roce(roce) => self.write_roce(roce, text),
            PacketKind::Pause(pause) => {
                if let Some(source) = pause.source {
                    put_fmt(text, format_args!("{source} "));
                }
                let color = if pause.pauses() { Color::Notice } else { Color::Special };
                self.colored(color, text, |text| put_fmt(text, format_args!("{pause}")));
            }
            PacketKind::Other(other) => self.write_other(other, text),
        }
        self.write_findings(packet.findings, text);
        text.push(b'\n');
    }

    pub(crate) fn write_damage(&mut self, damage: &Damage, text: &mut Vec<u8>) {
        self.colored(Color::Problem, text, |text| put_fmt(text, format_args!("     ! {damage}")));
        text.push(b'\n');
    }

    fn colored(&self, color: Color, text: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        self.coloring.start(color, text);
        write(text);
        self.coloring.end(text);
    }

    fn write_number(&self, packet: &Packet<'_>, text: &mut Vec<u8>) {
        let number = packet.frame.number;
        let place = packet.roce().and_then(|roce| roce.train).map(|train| train.index + 1);
        let len = decimals(number) + place.map_or(0, |place| 1 + decimals(place.into()));
        put_front(text, &[b' '; NUMBER_WIDTH], NUMBER_WIDTH.saturating_sub(len));
        put_decimal(text, number);
        if let Some(place) = place {
            text.push(b'.');
            put_decimal(text, place.into());
        }
    }

    fn write_roce(&mut self, roce: &Roce<'_>, text: &mut Vec<u8>) {
        self.write_address(roce.source, text);
        text.extend_from_slice(" → ".as_bytes());
        self.write_address(roce.destination, text);
        if let Some(bth) = roce.bth {
            text.extend_from_slice(b" qp 0x");
            put_hex(text, bth.dest_qp().get().into(), 6);
        }
        text.push(b' ');
        let color = roce.known_opcode().map_or(Color::Problem, color_of);
        self.colored(color, text, |text| match (roce.known_opcode(), roce.opcode()) {
            (Some(opcode), _) => text.extend_from_slice(opcode.name().as_bytes()),
            (None, Some(opcode)) => put_fmt(text, format_args!("opcode {:#04x}", opcode.0)),
            (None, None) => text.extend_from_slice(b"less than a transport header"),
        });
        if let Some(bth) = roce.bth {
            text.extend_from_slice(b" psn 0x");
            put_hex(text, bth.psn().get().into(), 6);
        }
        if roce.version == RoceVersion::V1 {
            text.extend_from_slice(b" RoCEv1");
        }
        if let Some(headers) = &roce.headers {
            put_headers(text, headers);
            put_payload(text, roce, headers);
        }
        match roce.ecn() {
            Ecn::NotCapable | Ecn::CongestionExperienced => {}
            Ecn::Capable0 | Ecn::Capable1 => text.extend_from_slice(b" ect"),
        }
        if let Some(train) = roce.train {
            text.extend_from_slice(b" train of ");
            put_decimal(text, train.count.into());
        }
    }

    fn write_other(&mut self, other: &Other, text: &mut Vec<u8>) {
        if let Some((source, destination)) = other.addresses() {
            self.write_address(source, text);
            text.extend_from_slice(" → ".as_bytes());
            self.write_address(destination, text);
            text.push(b' ');
        }
        self.colored(Color::Dim, text, |text| put_fmt(text, format_args!("not RoCE: {other}")));
    }

    /// Writes findings after a bar, problems after an exclamation mark.
    fn write_findings(&self, findings: &[Finding], text: &mut Vec<u8>) {
        for (i, finding) in findings.iter().enumerate() {
            text.extend_from_slice(if i == 0 { b" | " } else { b"; " });
            match finding.severity() {
                Severity::Problem => self.colored(Color::Problem, text, |text| {
                    put_fmt(text, format_args!("! {finding}"));
                }),
                Severity::Notice => self.colored(Color::Notice, text, |text| {
                    put_fmt(text, format_args!("{finding}"));
                }),
                Severity::Info => put_info(text, finding),
            }
        }
    }

    fn write_address(&mut self, address: IpAddr, text: &mut Vec<u8>) {
        let last = match address {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(address) => address.octets()[15],
        };
        let known = &mut self.addresses[usize::from(last) % 16];
        match known {
            Some(known) if known.address == address => known.write(text),
            _ => known.insert(Address::new(address)).write(text),
        }
    }
}

impl Address {
    fn new(address: IpAddr) -> Self {
        let mut text = [0; MAX_ADDRESS_LEN];
        let mut rest = &mut text[..];
        // The longest address fits.
        let _ = write!(rest, "{address}");
        let len = MAX_ADDRESS_LEN - rest.len();
        Self { address, text, len }
    }

    fn write(&self, text: &mut Vec<u8>) {
        put_front(text, &self.text, self.len);
    }
}

fn color_of(opcode: KnownOpcode) -> Color {
    let info = opcode.info();
    match info.service {
        Service::Cnp | Service::Extension => Color::Notice,
        Service::Ud => Color::Special,
        _ if info.is_request() => Color::Request,
        _ => Color::Response,
    }
}

fn put_headers(text: &mut Vec<u8>, headers: &Headers) {
    let bth = &headers.bth;
    if bth.ack_request {
        text.extend_from_slice(b" ack-req");
    }
    if bth.solicited_event {
        text.extend_from_slice(b" solicited");
    }
    if bth.fecn {
        text.extend_from_slice(b" fecn");
    }
    if bth.becn {
        text.extend_from_slice(b" becn");
    }
    for ext in bth.opcode.info().extensions {
        put_extension(text, headers, *ext);
    }
}

fn put_flush(text: &mut Vec<u8>, feth: Feth) {
    text.extend_from_slice(b" flush");
    if feth.is_global() {
        text.extend_from_slice(b" global");
    }
    if feth.is_persistent() {
        text.extend_from_slice(b" persistent");
    }
    text.extend_from_slice(match feth.extent() {
        Some(FlushExtent::Range) => b" range",
        Some(FlushExtent::Region) => b" region",
        None => b" reserved",
    });
}

fn put_extension(text: &mut Vec<u8>, headers: &Headers, ext: Ext) {
    match ext {
        Ext::Reth => {
            if let Some(reth) = headers.reth {
                put_key(text, reth.rkey, reth.addr);
                text.extend_from_slice(b" length ");
                put_decimal(text, reth.len.into());
            }
        }
        Ext::Feth => {
            if let Some(feth) = headers.feth {
                put_flush(text, feth);
            }
        }
        Ext::AtomicEth => {
            if let Some(atomic) = headers.atomic_eth {
                put_key(text, atomic.rkey, atomic.addr);
                text.extend_from_slice(b" operand 0x");
                put_hex_short(text, atomic.swap_or_add);
                text.extend_from_slice(b" compare 0x");
                put_hex_short(text, atomic.compare);
            }
        }
        Ext::Aeth => {
            if let Some(aeth) = headers.aeth {
                put_syndrome(text, aeth.syndrome);
                text.extend_from_slice(b" msn ");
                put_decimal(text, aeth.msn.into());
            }
        }
        Ext::AtomicAckEth => {
            if let Some(ack) = headers.atomic_ack {
                text.extend_from_slice(b" original 0x");
                put_hex_short(text, ack.original);
            }
        }
        Ext::Deth => {
            if let Some(deth) = headers.deth {
                text.extend_from_slice(b" from qp 0x");
                put_hex(text, deth.source_qp.get().into(), 6);
                text.extend_from_slice(b" q-key 0x");
                put_hex(text, deth.q_key.into(), 8);
            }
        }
        Ext::Immediate => {
            if let Some(immediate) = headers.immediate {
                text.extend_from_slice(b" immediate 0x");
                put_hex(text, u32::from_be_bytes(immediate.0).into(), 8);
            }
        }
        Ext::InvalidateKey => {
            if let Some(key) = headers.invalidate {
                text.extend_from_slice(b" invalidate key 0x");
                put_hex(text, key.0.into(), 8);
            }
        }
        Ext::CnpReserved => {}
    }
}

fn put_key(text: &mut Vec<u8>, key: u32, address: u64) {
    text.extend_from_slice(b" key 0x");
    put_hex(text, key.into(), 8);
    text.extend_from_slice(b" address 0x");
    put_hex_short(text, address);
}

fn put_syndrome(text: &mut Vec<u8>, syndrome: Syndrome) {
    match syndrome {
        Syndrome::Ack { credits } => {
            text.extend_from_slice(b" ACK");
            if let Some(count) = credits.count() {
                text.extend_from_slice(b" credits ");
                put_decimal(text, count.into());
            }
        }
        // The finding at the end has the details.
        Syndrome::RnrNak { .. } => text.extend_from_slice(b" RNR"),
        Syndrome::Nak(_) => text.extend_from_slice(b" NAK"),
        Syndrome::Reserved(byte) => put_fmt(text, format_args!(" syndrome {byte:#04x}")),
    }
}

fn put_payload(text: &mut Vec<u8>, roce: &Roce<'_>, headers: &Headers) {
    if let Some(message) = roce.management() {
        put_fmt(text, format_args!(" {message}"));
    } else if roce.payload_len > 0 || headers.bth.opcode.info().carries_payload() {
        text.push(b' ');
        put_decimal(text, roce.payload_len as u64);
        text.extend_from_slice(b" bytes");
    }
}

/// Writes the common findings of responses without `std::fmt`.
fn put_info(text: &mut Vec<u8>, finding: &Finding) {
    match *finding {
        Finding::Acknowledges { packets, after } => {
            text.extend_from_slice(b"acks ");
            put_decimal(text, packets.into());
            text.extend_from_slice(if packets == 1 { b" packet" } else { b" packets" });
            if let Some(after) = after {
                text.extend_from_slice(b" after ");
                put_duration(text, after);
            }
        }
        Finding::Answers { request, after } => {
            text.extend_from_slice(b"response to #");
            put_decimal(text, request);
            text.extend_from_slice(b" after ");
            put_duration(text, after);
        }
        _ => put_fmt(text, format_args!("{finding}")),
    }
}

const NUMBER_WIDTH: usize = 6;
/// Eight groups of four digits; addresses with an IPv4 address at their end are not longer.
const MAX_ADDRESS_LEN: usize = 48;
