//! RoCEv1 frames.

use super::samples::{headers_of, segment};
use crate::{icrc::icrc_behind_grh, *};

fn grh(payload_len: usize) -> Grh {
    Grh {
        version: 6,
        traffic_class: 1,
        flow_label: 2,
        payload_len: payload_len as u16,
        next_header: Grh::INFINIBAND,
        hop_limit: 64,
        source: "fe80::1".parse().unwrap(),
        destination: "fe80::2".parse().unwrap(),
    }
}

fn frame(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut packet = segment(headers, payload);
    let grh = grh(packet.len()).to_bytes();
    let len = packet.len() - ICRC_LEN;
    let icrc = icrc_behind_grh(&grh, &packet[..len]);
    packet[len..].copy_from_slice(&icrc.to_le_bytes());
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x89, 0x15];
    frame.extend(grh);
    frame.extend(packet);
    frame
}

#[test]
fn a_packet_of_every_opcode_is_read_behind_a_grh() {
    for opcode in KnownOpcode::all() {
        let payload: &[u8] = if opcode.info().carries_payload() { b"hello" } else { b"" };
        let mut bytes = frame(&headers_of(opcode), payload);
        bytes.extend([0; 7]); // Ethernet padding
        let frame = FrameV1::parse(&bytes).unwrap();
        assert_eq!(frame.headers().bth.opcode, opcode);
        assert_eq!(frame.payload(), payload);
        assert_eq!(frame.grh(), &grh(frame.bytes().len()));
        assert_eq!(frame.check_icrc(), Ok(()));
        let line = format!("RoCEv1 fe80::1 > fe80::2 {} qp 0x000012", opcode.name());
        assert!(frame.to_string().starts_with(&line), "{frame}");
        assert_eq!(Frame::parse(&bytes), Err(WireError::EtherType { ether_type: 0x8915 }));
    }
}

#[test]
fn every_prefix_is_refused_as_too_short() {
    let bytes = frame(&headers_of(opcode::RC_WRITE_ONLY), b"hello");
    for len in 0..bytes.len() {
        let error = FrameV1::parse(&bytes[..len]).unwrap_err();
        assert!(matches!(error, WireError::Short(_)), "{len} bytes: {error}");
    }
}

//= test icrc-grh
#[test]
fn what_routers_may_change_is_not_covered_and_all_else_is() {
    let original = frame(&headers_of(opcode::RC_SEND_ONLY), b"hello");
    let free = |at: usize, mask: u8| match at {
        14 => mask < 0x10, // traffic class
        15..18 | 21 => true,
        _ => at == 14 + GRH_LEN + 4,
    };
    for at in 14..original.len() {
        for mask in (0..8).map(|bit| 1 << bit) {
            let mut flipped = original.clone();
            flipped[at] ^= mask;
            let right = FrameV1::parse(&flipped).is_ok_and(|frame| frame.check_icrc().is_ok());
            assert_eq!(right, free(at, mask), "byte {at}, bit {mask:#04x}");
        }
    }
}

#[test]
fn something_else_behind_the_grh_is_refused_by_name() {
    let mut bytes = frame(&headers_of(opcode::RC_SEND_ONLY), b"hello");
    bytes[20] = 17;
    assert_eq!(FrameV1::parse(&bytes), Err(WireError::GrhNextHeader { next_header: 17 }));
    bytes[14] = 0x40;
    assert_eq!(FrameV1::parse(&bytes), Err(WireError::IpVersion { version: 4 }));
    bytes[12] = 0x08;
    assert_eq!(FrameV1::parse(&bytes), Err(WireError::EtherType { ether_type: 0x0815 }));
}
