//! Packets to queue pair 1 where that is the device's own.

use roce_wire::{Bth, Deth, GSI_Q_KEY, opcode};

use super::*;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// Passes a packet with `len` bytes of payload to an endpoint.
fn receive(endpoint: &mut Endpoint, bth: Bth, q_key: u32, len: usize) {
    let outer = OuterHeaders::new(REMOTE, LOCAL);
    let deth = Some(Deth { q_key, source_qp: Qpn::GSI });
    let headers = Headers { deth, ..Headers::new(bth) };
    let padded = len.next_multiple_of(4);
    let mut packet = vec![0; headers.len() + padded + ICRC_LEN];
    packet[headers.len()..][..len].fill(0x5a);
    let segment_len = headers.emit_around(&mut packet, len);
    let frame = sealed(&outer, &packet[..segment_len - ICRC_LEN]).unwrap();
    let frame = Frame::parse(&frame).unwrap();
    let packet = frame.packet().unwrap().verify_icrc().unwrap();
    endpoint.handle_packet(NOW, &packet, &mut Bytes(Vec::new()));
}

fn to_queue_pair_1() -> Bth {
    Bth::new(opcode::UD_SEND_ONLY, Qpn::GSI, Psn::ZERO)
}

//= test gsi-datagrams
#[test]
fn a_management_datagram_is_kept_only_if_partition_q_key_and_length_are_right() {
    let mut endpoint = Endpoint::new(EndpointConfig::default());
    receive(&mut endpoint, to_queue_pair_1(), GSI_Q_KEY, 256);
    assert_eq!((endpoint.counters().unknown_qp, endpoint.poll_management()), (1, None));

    endpoint.take_management().unwrap();
    receive(&mut endpoint, to_queue_pair_1(), GSI_Q_KEY, 256);
    let datagram = endpoint.poll_management().expect("a datagram");
    assert_eq!((datagram.local, datagram.remote), (LOCAL, REMOTE));
    assert_eq!(*datagram.payload, [0x5a; 256]);

    let elsewhere = Bth { partition_key: 0x1234, ..to_queue_pair_1() };
    receive(&mut endpoint, elsewhere, GSI_Q_KEY, 256);
    receive(&mut endpoint, to_queue_pair_1(), 0x0123_4567, 256);
    for len in [0, 252, 255, 260, 1024] {
        receive(&mut endpoint, to_queue_pair_1(), GSI_Q_KEY, len);
    }
    assert_eq!(endpoint.poll_management(), None);
    let counters = endpoint.counters();
    assert_eq!((counters.bad_pkey, counters.bad_qkey, counters.management_length), (1, 1, 5));
}

#[test]
fn the_datagrams_of_a_batch_beyond_the_limit_are_dropped_under_a_counter() {
    let mut endpoint = Endpoint::new(EndpointConfig::default());
    endpoint.take_management().unwrap();
    for _ in 0..MAX_MANAGEMENT_DATAGRAMS + 3 {
        receive(&mut endpoint, to_queue_pair_1(), GSI_Q_KEY, 256);
    }
    let kept = std::iter::from_fn(|| endpoint.poll_management()).count();
    assert_eq!((kept, endpoint.counters().management_full), (MAX_MANAGEMENT_DATAGRAMS, 3));
    receive(&mut endpoint, to_queue_pair_1(), GSI_Q_KEY, 256);
    assert!(endpoint.poll_management().is_some());
}

#[test]
fn queue_pair_1_is_the_devices_or_the_programs() {
    let init = QpInit::new(Service::Ud, PD, CqHandle(1));
    let exists = ApiMisuse::QpExists(Qpn::GSI);
    let mut own = Endpoint::new(EndpointConfig::default());
    own.take_management().unwrap();
    assert_eq!(own.create_qp(Qpn::GSI, init), Err(exists));

    let mut of_program = Endpoint::new(EndpointConfig::default());
    of_program.create_qp(Qpn::GSI, init).unwrap();
    assert_eq!(of_program.take_management(), Err(exists));
    assert!(!of_program.takes_management());
}
