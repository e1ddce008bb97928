//! Packets of other stacks, byte for byte.

use super::samples::{headers_of, ipv4, ipv6, sealed};
use crate::*;

/// RC SEND Only of five bytes over IPv4, as the kernel's rxe sends it.
const SEND_IPV4: &str = "45000034 12344000 40111471 0a090002 0a090001 d23f12b7 00200000 \
    0430ffff 00000012 80123456 68656c6c 6f000000 1963d04c";

/// RC Acknowledge over IPv6, as the kernel's rxe sends it.
const ACK_IPV6: &str = "60000000 001c1140 fd000009000000000000000000000002 \
    fd000009000000000000000000000001 d23f12b7 001c0000 1100ffff 00000012 00123456 1f000001 \
    67608b11";

fn frame(ether_type: [u8; 2], packet: &str) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(ether_type);
    let digits: Vec<u8> = packet.bytes().filter(u8::is_ascii_hexdigit).collect();
    frame.extend(
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap()),
    );
    frame
}

//= test icrc-crc
//= test icrc-ipv4
#[test]
fn a_packet_of_rxe_over_ipv4_is_read_and_its_icrc_is_right() {
    let bytes = frame([0x08, 0x00], SEND_IPV4);
    let frame = Frame::parse(&bytes).unwrap();
    let packet = frame.packets(None).next().unwrap().unwrap().verify_icrc().unwrap();
    assert_eq!(packet.headers(), headers_of(opcode::RC_SEND_ONLY).with_pad(3));
    assert_eq!(packet.payload(), b"hello");
    assert_eq!((packet.source(), packet.destination()), (ipv4().source, ipv4().destination));
    assert_eq!((frame.identification(), frame.source_port()), (Some(0x1234), 0xd23f));
}

//= test icrc-ipv6
#[test]
fn a_packet_of_rxe_over_ipv6_is_read_and_its_icrc_is_right() {
    let bytes = frame([0x86, 0xdd], ACK_IPV6);
    let frame = Frame::parse(&bytes).unwrap();
    let packet = frame.packets(None).next().unwrap().unwrap().verify_icrc().unwrap();
    assert_eq!(packet.headers(), headers_of(opcode::RC_ACKNOWLEDGE));
    assert!(packet.payload().is_empty());
    assert_eq!((packet.source(), packet.destination()), (ipv6().source, ipv6().destination));
}

//= test icrc-byte-order
//= test wire-dont-fragment
//= test wire-bth
//= test wire-pad
#[test]
fn what_we_send_is_bit_for_bit_what_rxe_sends() {
    let send = sealed(&ipv4(), 0x1234, &headers_of(opcode::RC_SEND_ONLY), b"hello");
    assert_eq!(send, frame([0x08, 0x00], SEND_IPV4));
    let ack = sealed(&ipv6(), 0x1234, &headers_of(opcode::RC_ACKNOWLEDGE), b"");
    assert_eq!(ack, frame([0x86, 0xdd], ACK_IPV6));
}

/// Bits that network cards set, and that a receiver ignores.
//= test wire-ecn
//= test wire-bth-reserved
#[test]
fn oddities_of_network_cards_are_accepted() {
    let mut headers = headers_of(opcode::RC_SEND_ONLY);
    headers.bth.migration_request = true;
    for source_port in [0, 69] {
        let ect = 0b10;
        let outer = OuterHeaders { source_port, traffic_class: ect, ..ipv4() };
        let mut bytes = sealed(&outer, 1, &headers, b"hello");
        bytes[outer.len() + 4] |= 0x10; // a reserved bit
        let frame = Frame::parse(&bytes).unwrap();
        let packet = frame.packets(None).next().unwrap().unwrap().verify_icrc().unwrap();
        assert_eq!(packet.headers(), headers.with_pad(3));
        assert_eq!(packet.ecn(), Ecn::Capable0);
    }
}

//= test wire-cnp
#[test]
fn a_congestion_notification_is_a_bth_and_sixteen_zeros() {
    let outer = OuterHeaders { traffic_class: 48 << 2 | 0b10, ..ipv4() };
    let mut headers = headers_of(opcode::CNP);
    headers.bth.becn = true;
    let bytes = sealed(&outer, 1, &headers, b"");
    assert_eq!(bytes[outer.len()..][BTH_LEN..][..CNP_RESERVED_LEN], [0; CNP_RESERVED_LEN]);
    let frame = Frame::parse(&bytes).unwrap();
    let packet = frame.packets(None).next().unwrap().unwrap().verify_icrc().unwrap();
    assert_eq!(packet.headers(), headers);
    assert_eq!(packet.view().len_with_pad(), 12 + 16);
}
