//! One line for each packet. This is the fast path: digits are put down by hand.

use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};

use roce_dissect::{
    Content, Damage, Finding, Other, Packet, Roce, RoceVersion, Severity, Timestamp,
};
use roce_wire::{Ecn, Ext, Headers, KnownOpcode, Service, Syndrome};

use super::paint::{Paint, Tint};

/// Writes lines.
#[derive(Debug)]
pub(super) struct Line {
    paint: Paint,
    /// Addresses of the last packets and their text: IPv6 is slow to write, and rarely changes.
    addresses: [Option<(Ipv6Addr, String)>; 16],
}

impl Line {
    pub(super) fn new(paint: Paint) -> Self {
        Self { paint, addresses: [const { None }; 16] }
    }

    /// `    12 0.000123456 10.9.0.2 → 10.9.0.1 qp 0x000011 RC SEND Only psn 0x123456 5 bytes`
    pub(super) fn write(&mut self, packet: &Packet<'_>, began: Timestamp, text: &mut Vec<u8>) {
        self.paint.start(Tint::Dim, text);
        self.write_number(packet, text);
        text.push(b' ');
        put_time(text, packet.frame.time, began);
        self.paint.end(text);
        text.push(b' ');
        match &packet.content {
            Content::Roce(roce) => self.write_roce(roce, text),
            Content::Pause(pause) => {
                if let Some(source) = pause.source {
                    put_fmt(text, format_args!("{source} "));
                }
                let tint = if pause.pauses() { Tint::Notice } else { Tint::Special };
                self.tinted(tint, text, |text| put_fmt(text, format_args!("{pause}")));
            }
            Content::Other(other) => self.write_other(other, text),
        }
        self.write_findings(packet.findings, text);
        text.push(b'\n');
    }

    pub(super) fn write_damage(&mut self, damage: &Damage, text: &mut Vec<u8>) {
        self.tinted(Tint::Problem, text, |text| put_fmt(text, format_args!("     ! {damage}")));
        text.push(b'\n');
    }

    fn tinted(&self, tint: Tint, text: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        self.paint.start(tint, text);
        write(text);
        self.paint.end(text);
    }

    fn write_number(&self, packet: &Packet<'_>, text: &mut Vec<u8>) {
        let from = text.len();
        put_decimal(text, packet.frame.number);
        if let Some(train) = packet.roce().and_then(|roce| roce.train) {
            text.push(b'.');
            put_decimal(text, u64::from(train.index) + 1);
        }
        let len = text.len() - from;
        if len < NUMBER_WIDTH {
            text.extend_from_slice(&SPACES[..NUMBER_WIDTH - len]);
            text[from..].rotate_left(len);
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
        let tint = roce.known_opcode().map_or(Tint::Problem, tint_of);
        self.tinted(tint, text, |text| match (roce.known_opcode(), roce.opcode()) {
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
        self.tinted(Tint::Dim, text, |text| put_fmt(text, format_args!("not RoCE: {other}")));
    }

    /// Behind a bar; what is a problem behind an exclamation mark.
    fn write_findings(&self, findings: &[Finding], text: &mut Vec<u8>) {
        for (i, finding) in findings.iter().enumerate() {
            text.extend_from_slice(if i == 0 { b" | " } else { b"; " });
            match finding.severity() {
                Severity::Problem => self.tinted(Tint::Problem, text, |text| {
                    put_fmt(text, format_args!("! {finding}"));
                }),
                Severity::Notice => self.tinted(Tint::Notice, text, |text| {
                    put_fmt(text, format_args!("{finding}"));
                }),
                Severity::Info => put_info(text, finding),
            }
        }
    }

    fn write_address(&mut self, address: IpAddr, text: &mut Vec<u8>) {
        let address = match address {
            IpAddr::V4(address) => {
                for (i, octet) in address.octets().into_iter().enumerate() {
                    if i > 0 {
                        text.push(b'.');
                    }
                    put_decimal(text, octet.into());
                }
                return;
            }
            IpAddr::V6(address) => address,
        };
        let place = usize::from(address.octets()[15]) % self.addresses.len();
        let cached = &mut self.addresses[place];
        match cached {
            Some((of, cached)) if *of == address => text.extend_from_slice(cached.as_bytes()),
            _ => {
                let (_, written) = cached.insert((address, address.to_string()));
                text.extend_from_slice(written.as_bytes());
            }
        }
    }
}

fn tint_of(opcode: KnownOpcode) -> Tint {
    let shape = opcode.shape();
    match shape.service {
        Service::Cnp => Tint::Notice,
        Service::Ud => Tint::Special,
        _ if shape.is_request() => Tint::Request,
        _ => Tint::Answer,
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
    for ext in bth.opcode.shape().extensions {
        put_extension(text, headers, *ext);
    }
}

fn put_extension(text: &mut Vec<u8>, headers: &Headers, ext: Ext) {
    match ext {
        Ext::Reth => {
            if let Some(reth) = headers.reth {
                put_key(text, reth.key, reth.address);
                text.extend_from_slice(b" length ");
                put_decimal(text, reth.len.into());
            }
        }
        Ext::AtomicEth => {
            if let Some(atomic) = headers.atomic_eth {
                put_key(text, atomic.key, atomic.address);
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
        // The finding behind says it in full.
        Syndrome::RnrNak { .. } => text.extend_from_slice(b" RNR"),
        Syndrome::Nak(_) => text.extend_from_slice(b" NAK"),
        Syndrome::Reserved(byte) => put_fmt(text, format_args!(" syndrome {byte:#04x}")),
    }
}

fn put_payload(text: &mut Vec<u8>, roce: &Roce<'_>, headers: &Headers) {
    if let Some(message) = roce.management() {
        put_fmt(text, format_args!(" {message}"));
    } else if roce.payload_len > 0 || headers.bth.opcode.shape().carries_payload() {
        text.push(b' ');
        put_decimal(text, roce.payload_len as u64);
        text.extend_from_slice(b" bytes");
    }
}

/// What nearly every answer has is written without the machinery of formatting.
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
            text.extend_from_slice(b"answers #");
            put_decimal(text, request);
            text.extend_from_slice(b" after ");
            put_duration(text, after);
        }
        _ => put_fmt(text, format_args!("{finding}")),
    }
}

/// As [`roce_dissect::Short`] writes it.
fn put_duration(text: &mut Vec<u8>, duration: std::time::Duration) {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let (unit_nanos, unit) = match nanos {
        0..=999 => {
            put_decimal(text, nanos);
            return text.extend_from_slice(b" ns");
        }
        1_000..=999_499 => (1_000, " µs"),
        999_500..=999_499_999 => (1_000_000, " ms"),
        _ => (1_000_000_000, " s"),
    };
    // Three digits that matter, rounded.
    let (scale, decimals) = match nanos {
        n if n < 9_995 * unit_nanos / 1000 => (100, 2),
        n if n < 99_950 * (unit_nanos / 1000) => (10, 1),
        _ => (1, 0),
    };
    let scaled = (u128::from(nanos) * scale + u128::from(unit_nanos) / 2) / u128::from(unit_nanos);
    let scaled = scaled as u64;
    let scale = scale as u64;
    put_decimal(text, scaled / scale);
    if decimals > 0 {
        text.push(b'.');
        if decimals == 2 {
            text.push(b'0' + (scaled / 10 % 10) as u8);
        }
        text.push(b'0' + (scaled % 10) as u8);
    }
    text.extend_from_slice(unit.as_bytes());
}

fn put_time(text: &mut Vec<u8>, time: Timestamp, began: Timestamp) {
    let nanos = match time.0.checked_sub(began.0) {
        Some(nanos) => nanos,
        None => {
            text.push(b'-');
            began.0 - time.0
        }
    };
    put_decimal(text, nanos / 1_000_000_000);
    text.push(b'.');
    let mut digits = [b'0'; 9];
    let mut rest = nanos % 1_000_000_000;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text.extend_from_slice(&digits);
}

fn put_decimal(text: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[at..]);
}

fn put_hex(text: &mut Vec<u8>, value: u64, width: usize) {
    let mut digits = [0; 16];
    for (i, digit) in digits[..width].iter_mut().enumerate() {
        *digit = HEX[(value >> (4 * (width - 1 - i))) as usize & 0xf];
    }
    text.extend_from_slice(&digits[..width]);
}

/// Without zeros in front.
fn put_hex_short(text: &mut Vec<u8>, value: u64) {
    let width = (64 - value.leading_zeros()).div_ceil(4).max(1) as usize;
    put_hex(text, value, width);
}

/// Writing to memory cannot fail.
pub(super) fn put_fmt(text: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
}

const HEX: &[u8; 16] = b"0123456789abcdef";
const NUMBER_WIDTH: usize = 6;
const SPACES: [u8; NUMBER_WIDTH] = [b' '; NUMBER_WIDTH];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut text = Vec::new();
        write(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        for value in [0, 9, 10, 4791, u64::MAX] {
            assert_eq!(text(|text| put_decimal(text, value)), value.to_string());
            assert_eq!(text(|text| put_hex_short(text, value)), format!("{value:x}"));
        }
        assert_eq!(text(|text| put_hex(text, 0x12, 6)), "000012");
    }

    #[test]
    fn a_duration_is_written_as_everywhere_else() {
        let cases = [0, 1, 999, 1000, 9_994, 9_995, 12_345, 99_949, 99_950, 999_499, 999_500]
            .into_iter()
            .chain([1_234_567, 64_000_000, 999_499_999, 999_500_000, 4_294_967_296]);
        for nanos in cases {
            let duration = Duration::from_nanos(nanos);
            let expected = roce_dissect::Short(duration).to_string();
            assert_eq!(text(|text| put_duration(text, duration)), expected, "{nanos}");
        }
    }

    #[test]
    fn a_frame_that_was_seen_before_the_first_has_a_time_below_zero() {
        let (early, late) = (Timestamp(1_000_000_001), Timestamp(2_500_000_000));
        assert_eq!(text(|text| put_time(text, late, early)), "1.499999999");
        assert_eq!(text(|text| put_time(text, early, late)), "-1.499999999");
    }
}
