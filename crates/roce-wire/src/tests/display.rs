//! The one-line text of packets.

use super::samples::{every_kind, headers_of, ipv4, sealed};
use crate::*;

fn line(frame: &[u8]) -> String {
    let frame = Frame::parse(frame).unwrap();
    frame.packets(None).next().unwrap().unwrap().to_string()
}

#[test]
fn a_line_tells_who_speaks_to_whom_and_what_about() {
    let send = sealed(&ipv4(), 1, &headers_of(opcode::RC_SEND_ONLY), b"hello");
    assert_eq!(
        line(&send),
        "10.9.0.2 port 53823 > 10.9.0.1 RC SEND Only qp 0x000012 psn 0x123456 ack-req 5 bytes"
    );
    let mut nak = headers_of(opcode::RC_ACKNOWLEDGE);
    nak.aeth = Some(Aeth { syndrome: Syndrome::Nak(NakCode::PsnSequence), msn: 3 });
    assert!(line(&sealed(&ipv4(), 1, &nak, b"")).ends_with("NAK PSN sequence error msn 3"));
    nak.aeth = Some(Aeth { syndrome: Syndrome::RnrNak { timer: RnrTimer::DEFAULT }, msn: 3 });
    assert!(line(&sealed(&ipv4(), 1, &nak, b"")).ends_with("RNR NAK wait 640µs msn 3"));
}

#[test]
fn every_packet_has_a_line_of_its_own() {
    let mut lines = std::collections::BTreeSet::new();
    for sample in every_kind().iter().filter(|sample| sample.outer.vlan.is_none()) {
        let line = line(&sample.frame);
        assert!(!line.contains('\n'), "{line}");
        assert!(lines.insert(line), "{}", sample.name);
    }
}
