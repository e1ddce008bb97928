//! Filters over packets of known contents.

use proptest::prelude::*;
use roce_wire::{Bth, Headers, OuterHeaders, Psn, Qpn, Reth, UdpChecksum, opcode, seal};

use super::*;
use crate::{Dissector, NamedField, Options, RawFrame};

/// Returns a WRITE Only of four bytes from 10.9.0.2 to 10.9.0.1.
fn write_only() -> Vec<u8> {
    let outer = OuterHeaders::new("10.9.0.2".parse().unwrap(), "10.9.0.1".parse().unwrap());
    let mut bth = Bth::new(opcode::RC_WRITE_ONLY, Qpn::new(0x12).unwrap(), Psn::new(7).unwrap());
    bth.ack_request = true;
    let mut headers = Headers::new(bth);
    headers.reth = Some(Reth { addr: 0x7fff_0000, rkey: 0x1234, len: 4 });
    let len = headers.len() + 4 + 4;
    let mut frame = vec![0; 42 + len];
    frame[42 + headers.len()..][..4].copy_from_slice(b"ping");
    headers.emit_around(&mut frame[42..], 4);
    seal(&outer, 1, &mut frame, len, UdpChecksum::Zero).unwrap();
    frame
}

fn matches(filter: &str, frame: &[u8]) -> bool {
    let filter: Filter = filter.parse().unwrap_or_else(|error| panic!("{error}"));
    let mut outcome = None;
    let mut dissector = Dissector::new(Options::default());
    dissector.handle_frame(RawFrame::ethernet(3, frame), |packet| {
        outcome = Some(filter.matches(packet));
    });
    outcome.unwrap()
}

#[test]
fn a_comparison_holds_for_exactly_the_packets_that_meet_it() {
    let frame = write_only();
    let cases = [
        ("qp == 0x12", "qp == 0x13"),
        ("qp eq 18", "qp != 18"),
        ("psn <= 7 and psn ge 7", "psn < 7 or psn > 7"),
        ("number in {1, 3, 9..12}", "number in {1, 4..12}"),
        ("psn in {6..8}", "psn in {8..9}"),
        ("reth.address == 0x7fff0000", "reth.address < 0x7fff0000"),
        ("opcode_name contains \"write only\"", "opcode_name contains 'send'"),
        ("OPCODE_NAME == 'RC RDMA WRITE Only'", "opcode_name == write"),
        ("source == 10.9.0.2", "destination == 10.9.0.2"),
        ("source in {10.9.0.0/24}", "source == 10.8.0.0/16"),
        ("host == 10.9.0.1", "host != 10.9.0.1"),
        ("ack_request == true", "ack_request == 0"),
        ("bth.ack_request == 1 && bth.psn == 7", "bth.ack_request == 1 && bth.psn == 8"),
        ("payload.bytes == 70:69:6e:67", "payload.bytes == 70:69:6e"),
        ("payload.bytes contains \"in\"", "payload.bytes contains 00"),
        ("ethernet.source == 00:00:00:00:00:00", "ethernet.source != 00:00:00:00:00:00"),
        ("findings == joined", "findings == gap"),
        ("findings.severity == info", "findings.severity == problem"),
        ("icrc.verdict == right", "icrc.verdict == wrong"),
        ("udp.source_port", "aeth.msn"),
        ("reth", "aeth"),
        ("not aeth", "not reth"),
        ("aeth or reth and qp == 18", "(aeth or reth) and qp == 19"),
        ("not not reth", "not (reth or aeth)"),
        ("!aeth.kind == nak", "aeth.kind != nak"),
    ];
    for (holds, fails) in cases {
        assert!(matches(holds, &frame), "{holds}");
        assert!(!matches(fails, &frame), "{fails}");
    }
}

#[test]
fn a_mistake_is_shown_at_its_place() {
    let cases = [
        ("", 0, "the filter is empty"),
        ("qp = 5", 3, "'=' has no meaning here"),
        ("qp 5", 3, "a comparison is missing before this"),
        ("qp == ", 6, "a value of qp is missing"),
        ("qp == five", 6, "\"five\" is not a number"),
        ("qp == 0x1ffffffffffffffff", 6, "is not a number"),
        ("(qp == 5", 0, "is not closed"),
        ("qp == 5)", 7, "closes none"),
        ("qp == 5 psn", 8, "\"and\" or \"or\" is missing"),
        ("qp == 5 and", 11, "the name of a field is missing"),
        ("qp contains 5", 3, "qp cannot be compared so: its kind is number"),
        ("qp in 5", 6, "a set such as"),
        ("qp in {5 6}", 9, "\",\" or \"}\" is missing"),
        ("bth.pns == 5", 0, "similar: bth.psn"),
        ("findings == nack", 12, "findings.name is never \"nack\""),
        ("source == 10.0.0.0/33", 10, "is not an address"),
        ("opcode_name == 'SEND", 15, "has no ' at its end"),
        ("reth == 5", 5, "its kind is layer"),
    ];
    for (filter, position, message) in cases {
        let error = filter.parse::<Filter>().unwrap_err();
        assert_eq!(error.position(), position, "{filter}: {error}");
        assert!(error.message().contains(message), "{filter}: {error}");
        let text = error.to_string();
        let mark = text.lines().last().unwrap();
        assert_eq!(mark.find('^'), Some(position + 2), "{text}");
    }
}

#[test]
fn the_mark_stands_below_letters_of_several_bytes() {
    let text = "opcode_name == 'µµ' or x".parse::<Filter>().unwrap_err().to_string();
    let lines: Vec<_> = text.lines().collect();
    let at = lines[1].chars().position(|letter| letter == 'x').unwrap();
    assert_eq!(lines[2].chars().position(|letter| letter == '^'), Some(at), "{text}");
}

#[test]
fn no_filter_is_deeper_or_longer_than_its_bound() {
    let deep = format!("{}qp{}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(deep.parse::<Filter>().unwrap_err().message().contains("at most"));
    let deep = format!("{}qp", "not ".repeat(10_000));
    assert!(deep.parse::<Filter>().unwrap_err().message().contains("levels"));
    let flat = format!("qp{}", " or qp".repeat(9_000));
    assert!(flat.parse::<Filter>().is_ok());
}

/// Words that a filter may have, and some that it may not.
fn word() -> impl Strategy<Value = String> {
    const FIXED: &[&str] = &[
        "and",
        "or",
        "not",
        "!",
        "(",
        ")",
        "==",
        "!=",
        "<",
        ">=",
        "contains",
        "in",
        "{",
        "}",
        ",",
        "..",
        "qp",
        "psn",
        "bth.ack_request",
        "reth",
        "findings",
        "payload.bytes",
        "source",
        "gap",
        "0x12",
        "5",
        "10.0.0.0/8",
        "fd00::1",
        "de:ad",
        "'µ",
        "\"x\"",
        "\\",
        "\n",
        "µ",
    ];
    prop_oneof![
        8 => prop::sample::select(FIXED).prop_map(str::to_owned),
        1 => "\\PC{0,6}",
    ]
}

proptest! {
    #[test]
    fn any_text_is_a_filter_or_has_a_mistake_inside_it(words in prop::collection::vec(word(), 0..24)) {
        let text = words.join(" ");
        match text.parse::<Filter>() {
            Ok(filter) => {
                prop_assert_eq!(filter.to_string(), text);
                matches(&words.join(" "), &write_only());
            }
            Err(error) => {
                prop_assert!(text.is_char_boundary(error.position()), "{}", error);
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }

    #[test]
    fn every_value_of_a_field_finds_its_packet(at in 0usize..1 << 16) {
        let fields: Vec<_> = NamedField::all().collect();
        let field = fields[at % fields.len()];
        let frame = write_only();
        let mut values = Vec::new();
        Dissector::new(Options::default()).handle_frame(RawFrame::ethernet(3, &frame), |packet| {
            values = PacketFields::new(packet).text_of(field);
        });
        let name = field.name();
        if field.kind() == crate::FieldKind::Layer {
            prop_assert_eq!(matches(name, &frame), !values.is_empty());
            return Ok(());
        }
        for value in &values {
            let value = match field.kind() {
                crate::FieldKind::Text => format!("{value:?}"),
                crate::FieldKind::Bytes => format!("0x{value}"),
                _ => value.clone(),
            };
            prop_assert!(matches(&format!("{name} == {value}"), &frame), "{} {}", name, value);
        }
        prop_assert_eq!(matches(name, &frame), !values.is_empty());
    }
}
