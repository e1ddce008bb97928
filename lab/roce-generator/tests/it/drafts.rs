//! Packets in the making, read by the dissector.

use proptest::prelude::*;
use roce_dissect::{Dissector, NamedField, Options, Packet, PacketFields, RawFrame};
use roce_generator::{Change, ChangeError, Draft, find_opcode};
use roce_wire::{KnownOpcode, OuterHeaders};

fn outer() -> OuterHeaders {
    OuterHeaders::new([10, 9, 0, 1].into(), [10, 9, 0, 2].into())
}

fn draft(opcode: &str, payload: &[u8], changes: &[&str]) -> Result<Draft, ChangeError> {
    let mut draft =
        Draft::of_opcode(find_opcode(opcode).unwrap(), payload, &outer()).expect("one packet");
    draft.change(&changes.iter().map(|it| it.parse().unwrap()).collect::<Vec<Change>>())?;
    draft.finish();
    Ok(draft)
}

fn look<T>(bytes: &[u8], mut look: impl FnMut(&Packet<'_>) -> T) -> T {
    let mut seen = None;
    let options = Options { follow: false, ..Options::default() };
    Dissector::new(options).handle_frame(RawFrame::ethernet(1, bytes), |packet| {
        seen = Some(look(packet));
    });
    seen.expect("one packet")
}

fn text(bytes: &[u8], field: &str) -> Vec<String> {
    let field = NamedField::find(field).unwrap();
    look(bytes, |packet| PacketFields::new(packet).text_of(field))
}

fn findings(bytes: &[u8]) -> Vec<String> {
    look(bytes, |packet| packet.findings.iter().map(ToString::to_string).collect())
}

#[test]
fn a_packet_of_every_opcode_is_read_without_a_problem() {
    let addresses =
        [outer(), OuterHeaders::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap())];
    for outer in addresses {
        for opcode in KnownOpcode::all() {
            let payload = if opcode.info().carries_payload() { 5 } else { 0 };
            let mut draft = Draft::of_opcode(opcode, &vec![7; payload], &outer).unwrap();
            draft.change(&["qp=0x12".parse().unwrap(), "psn=9".parse().unwrap()]).unwrap();
            draft.finish();
            assert_eq!(text(draft.bytes(), "opcode_name"), [opcode.name()]);
            assert_eq!(text(draft.bytes(), "icrc.verdict"), ["right"], "{opcode:?}");
            assert_eq!(text(draft.bytes(), "qp"), ["18"]);
            assert_eq!(findings(draft.bytes()), [""; 0], "{opcode:?}");
        }
    }
}

#[test]
fn every_written_field_has_its_value_and_checksum_and_icrc_are_right() {
    let changes = [
        "ethernet.destination=02:00:00:00:00:2a",
        "source=10.0.0.9",
        "ipv4.ttl=3",
        "ipv4.identification=0x1234",
        "udp.source_port=50000",
        "psn=0xabcdef",
        "ack_request=1",
        "reth.address=0x7fff00001000",
        "reth.key=0xdeadbeef",
        "reth.length=4096",
        "p_key=0x7fff",
        "payload.bytes=0xffee",
    ];
    let draft = draft("rc_write_first", &[0; 8], &changes).unwrap();
    for change in changes.iter().filter(|it| !it.starts_with("reth.l")) {
        let (name, value) = change.split_once('=').unwrap();
        let is = text(draft.bytes(), name).join("");
        let number =
            |text: &str| text.strip_prefix("0x").map(|it| u64::from_str_radix(it, 16).unwrap());
        let is_equal = is == value
            || is.starts_with("ffee")
            || number(value).is_some_and(|it| Some(it) == number(&is) || it.to_string() == is);
        assert!(is_equal, "{change} is {is}");
    }
    assert_eq!(text(draft.bytes(), "icrc.verdict"), ["right"]);
    assert_eq!(findings(draft.bytes()), [""; 0]);
}

#[test]
fn what_is_set_by_hand_stays_as_it_is() {
    let icrc = draft("rc_acknowledge", &[], &["icrc.icrc=0x01020304", "psn=5"]).unwrap();
    assert_eq!(text(icrc.bytes(), "icrc.icrc"), ["0x01020304"]);
    assert_eq!(text(icrc.bytes(), "icrc.verdict"), ["wrong"]);
    let checksum = draft("rc_acknowledge", &[], &["ipv4.checksum=0xbeef", "ipv4.ttl=5"]).unwrap();
    assert_eq!(text(checksum.bytes(), "ipv4.checksum"), ["0xbeef"]);
    assert_eq!(text(checksum.bytes(), "icrc.verdict"), ["right"], "the ICRC does not cover it");
    assert!(findings(checksum.bytes())[0].contains("checksum"), "{:?}", findings(checksum.bytes()));
}

#[test]
fn a_spoilt_icrc_is_wrong_whatever_is_changed() {
    let mut draft = draft("rc_send_only", b"abc", &["psn+=1"]).unwrap();
    draft.spoil_icrc();
    for psn in ["0", "1"] {
        draft.finish();
        assert_eq!(text(draft.bytes(), "icrc.verdict"), ["wrong"]);
        assert_eq!(text(draft.bytes(), "psn"), [psn]);
        draft.advance().unwrap();
    }
}

#[test]
fn fields_that_decide_about_layers_hide_none_of_the_others() {
    let changes =
        ["ethernet.ethertype=0x88b5", "opcode=0xff", "udp.destination_port=9", "reth.key=7"];
    let hidden = draft("rc_write_only", b"abcd", &changes).unwrap();
    assert_eq!(hidden.bytes()[12..14], [0x88, 0xb5]);
    assert_eq!(hidden.bytes()[42], 0xff);
    assert_eq!(hidden.bytes()[36..38], [0, 9]);
    assert_eq!(hidden.bytes()[42 + 12 + 8..42 + 12 + 12], [0, 0, 0, 7], "the key of the RETH");
}

#[test]
fn fields_of_connection_management_are_found_in_any_order() {
    let changes = [
        "cm_req.local_qpn=0x17",
        "mad.attribute=0x10",
        "mad.class_version=2",
        "mad.class=7",
        "mad.base_version=1",
        "mad.method=3",
        "deth.q_key=0x80010000",
        "deth.source_qp=1",
        "qp=1",
    ];
    let req = draft("ud_send_only", &[0; 256], &changes).unwrap();
    assert_eq!(text(req.bytes(), "cm_req.local_qpn"), ["0x000017"]);
    assert!(
        text(req.bytes(), "management")[0].starts_with("CM REQ"),
        "{:?}",
        text(req.bytes(), "management")
    );
    assert_eq!(text(req.bytes(), "icrc.verdict"), ["right"]);
}

#[test]
fn a_field_that_the_packet_lacks_and_a_value_that_does_not_fit_are_named() {
    let error = draft("rc_send_only", b"", &["reth.key=1"]).unwrap_err();
    assert_eq!(error.to_string(), "RC SEND Only has no field reth.key");
    let error = draft("rc_send_only", b"", &["findings.name=gap"]).unwrap_err();
    assert!(matches!(error, ChangeError::NoSuchField { .. }), "{error}");
    let error = draft("rc_send_only", b"", &["psn=0x1000000"]).unwrap_err();
    assert!(error.to_string().contains("psn has 24 bits"), "{error}");
    let error = draft("rc_send_only", b"", &["source+=1"]).unwrap_err();
    assert!(matches!(error, ChangeError::NoNumber { field: "source" }), "{error}");
}

#[test]
fn series_rise_and_wrap_at_their_bits() {
    let mut draft =
        draft("rc_send_only", b"", &["psn+=2", "psn=0xffffff", "ipv4.identification+=1"]).unwrap();
    let mut seen = vec![];
    for _ in 0..3 {
        draft.finish();
        assert_eq!(text(draft.bytes(), "icrc.verdict"), ["right"]);
        let [psn, id] = ["psn", "ipv4.identification"].map(|it| text(draft.bytes(), it).join(""));
        seen.push(format!("{psn} {id}"));
        draft.advance().unwrap();
    }
    assert_eq!(seen, ["16777215 0x0001", "1 0x0002", "3 0x0003"]);
}

proptest! {
    #[test]
    fn any_field_set_to_any_number_is_no_panic(at in 0usize..1 << 16, value: u64, opcode in 0usize..64) {
        let all: Vec<_> = KnownOpcode::all().collect();
        let mut draft = Draft::of_opcode(all[opcode % all.len()], &[1; 40], &outer()).unwrap();
        let fields: Vec<_> = NamedField::all().collect();
        let name = fields[at % fields.len()].name();
        let change: Change = format!("{name}={}", value >> (value & 63)).parse().unwrap();
        let len = draft.bytes().len();
        if draft.change(&[change]).is_ok() {
            draft.finish();
            prop_assert_eq!(draft.bytes().len(), len);
        }
    }
}
