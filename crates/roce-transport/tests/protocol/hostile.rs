//! Requests that no honest peer sends: dropped or refused as the standard says, and counted.

use std::net::{IpAddr, Ipv4Addr};

use roce_transport::{CompletionStatus, QpState};
use roce_wire::{
    BTH_LEN, InvalidateKey, KnownOpcode, NakCode, Operation, PathMtu, Psn, Qpn, Reth, Service,
    Syndrome, opcode,
};

use crate::common::connection::{DEFAULT, End, FIRST_PSN, PD, connect, create};
use crate::common::exchange::sge;
use crate::common::forge;
use crate::common::world::{Sent, World, seal_one};
use roce_simnet::{Region, Rights};

/// A connected pair whose node 1 has a region and receives, and is about to be lied to.
fn victim() -> (World, [End; 2], Region) {
    let mut world = World::pair();
    world.keep_timeline(true);
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let region = world.hosts[1].memory.register_filled(PD, 4096, Rights::ALL, 5);
    for wr_id in 0..4 {
        ends[1].post_recv(&mut world, wr_id, &[sge(region, 0, 4096)]);
    }
    (world, ends, region)
}

fn expected() -> Psn {
    Psn::new(FIRST_PSN).unwrap()
}

/// Runs `lie` and returns which counters of node 1 moved, apart from those of any packet.
fn counted(world: &mut World, lie: impl FnOnce(&mut World)) -> Vec<&'static str> {
    let before: Vec<_> = world.hosts[1].endpoint.counters().iter().collect();
    lie(world);
    let after = world.hosts[1].endpoint.counters().iter();
    let moved = after.zip(before).filter(|((_, now), (_, then))| now != then);
    moved
        .map(|((name, _), _)| name)
        .filter(|name| !["rcvd_pkts", "sent_pkts", "rcvd_bytes", "sent_bytes"].contains(name))
        .collect()
}

/// Gives node 1 a packet that it must drop: no answer, no change, but a counter.
#[track_caller]
fn dropped(world: &mut World, lie: impl FnOnce(&mut World)) -> &'static str {
    let (sent, completions) = (world.sent(1).len(), world.hosts[1].completions.len());
    let written = world.hosts[1].memory.bytes_written();
    let moved = counted(world, lie);
    assert_eq!(moved.len(), 1, "one named counter: {moved:?}\n{}", world.report());
    assert_eq!(world.sent(1).len(), sent, "no answer");
    assert_eq!(world.hosts[1].completions.len(), completions);
    assert_eq!(world.hosts[1].memory.bytes_written(), written);
    moved[0]
}

/// Gives node 1 a packet that it must refuse; returns the answers.
#[track_caller]
fn refused(world: &mut World, end: End, packet: &[u8], code: NakCode) {
    let before = world.sent(1).len();
    let moved = counted(world, |world| world.forge(0, 1, packet));
    assert!(!moved.is_empty(), "counted\n{}", world.report());
    let answers: Vec<_> = world.sent(1)[before..].iter().map(Sent::headers).collect();
    let psn = forge::parse(packet).bth.psn;
    let syndromes: Vec<_> =
        answers.iter().map(|it| (it.bth.psn, it.aeth.map(|it| it.syndrome))).collect();
    let nak = (psn, Some(Syndrome::Nak(code)));
    assert_eq!(syndromes, [nak], "{:?}\n{}", forge::parse(packet).bth.opcode, world.report());
    assert_eq!(end.state(world), QpState::Error);
    world.assert_guards_untouched();
}

//= test wire-qpn-multicast
#[test]
fn a_packet_for_a_queue_pair_that_is_not_there_is_dropped() {
    let (mut world, ends, _) = victim();
    for qpn in [0, 1, 2, 0x12_0304, ends[1].qpn.get() ^ 1, 0xff_ffff] {
        let packet = forge::send_only(Qpn::new(qpn).unwrap(), expected(), b"who?");
        let counter = dropped(&mut world, |world| world.forge(0, 1, &packet));
        assert_eq!(counter, "unknown_qp");
    }
}

//= test qp-partition
#[test]
fn a_packet_of_another_partition_is_dropped() {
    let (mut world, ends, _) = victim();
    for key in [0, 1, 0x7ffe, 0x8000, 0xfffe] {
        let mut headers = forge::headers(opcode::RC_SEND_ONLY, ends[1].qpn, expected());
        headers.bth.partition_key = key;
        let packet = forge::packet(&headers, b"stranger");
        assert_eq!(dropped(&mut world, |world| world.forge(0, 1, &packet)), "bad_pkey");
    }
    // A limited member of the default partition is welcome.
    let mut headers = forge::headers(opcode::RC_SEND_ONLY, ends[1].qpn, expected());
    headers.bth.partition_key = 0x7fff;
    world.forge(0, 1, &forge::packet(&headers, b"limited"));
    assert_eq!(ends[1].received(&world).len(), 1);
}

//= test qp-addresses
#[test]
fn the_right_packet_from_or_to_the_wrong_address_is_dropped() {
    let (mut world, ends, _) = victim();
    let packet = forge::send_only(ends[1].qpn, expected(), b"liar");
    let stranger = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 77));
    let mut from = world.outer(0, 1);
    from.source = stranger;
    let mut to = world.outer(0, 1);
    to.destination = stranger;
    for (outer, counter) in [(from, "wrong_source"), (to, "wrong_destination")] {
        let frame = seal_one(&outer, 1, &packet);
        assert_eq!(dropped(&mut world, |world| world.inject(1, [&frame])), counter);
    }
    world.forge(0, 1, &packet);
    assert_eq!(ends[1].received(&world).len(), 1, "the same from the right address is taken");
}

#[test]
fn a_packet_of_another_service_is_dropped() {
    let (mut world, ends, _) = victim();
    for opcode in KnownOpcode::all().filter(|it| it.info().service != Service::Rc) {
        let packet = forge::packet(&forge::headers(opcode, ends[1].qpn, expected()), &[]);
        let counter = dropped(&mut world, |world| world.forge(0, 1, &packet));
        let expected = match opcode.info().service {
            Service::Cnp => "rp_cnp_handled",
            Service::Extension => "gap_report_ignored",
            _ => "wrong_service",
        };
        assert_eq!(counter, expected);
    }
}

//= test qp-state-admits
#[test]
fn a_queue_pair_that_may_not_receive_yet_or_any_more_drops_requests() {
    let (mut world, ends, _) = victim();
    let fresh = End { node: 1, qpn: Qpn::new(0x999).unwrap() };
    create(&mut world, 1, fresh.qpn, &DEFAULT);
    let packet = forge::send_only(fresh.qpn, expected(), b"early");
    assert_eq!(dropped(&mut world, |world| world.forge(0, 1, &packet)), "wrong_state");
    ends[1].move_to(&mut world, QpState::Error);
    let packet = forge::send_only(ends[1].qpn, expected(), b"late");
    assert_eq!(dropped(&mut world, |world| world.forge(0, 1, &packet)), "wrong_state");
}

/// Requests of one packet whose length is a lie.
fn lying_lengths(dest: Qpn, region: Region) -> Vec<Vec<u8>> {
    let mtu = PathMtu::B256.bytes();
    let psn = expected();
    let write = |code, len: usize, carried: usize| {
        let reth = Reth { addr: region.addr, rkey: region.key, len: len as u32 };
        forge::with_reth(code, dest, psn, reth, &vec![9; carried])
    };
    let send =
        |code, carried: usize| forge::packet(&forge::headers(code, dest, psn), &vec![9; carried]);
    vec![
        // Longer than the path MTU.
        send(opcode::RC_SEND_ONLY, mtu + 1),
        send(opcode::RC_SEND_ONLY, 4096),
        send(opcode::RC_SEND_FIRST, mtu + 4),
        write(opcode::RC_WRITE_ONLY, mtu + 1, mtu + 1),
        // A packet that is not the last must be full.
        send(opcode::RC_SEND_FIRST, mtu - 1),
        send(opcode::RC_SEND_FIRST, 0),
        write(opcode::RC_WRITE_FIRST, 2 * mtu, mtu - 4),
        write(opcode::RC_WRITE_FIRST, 2 * mtu, 0),
        // What is carried is not what the RETH says.
        write(opcode::RC_WRITE_ONLY, 100, 99),
        write(opcode::RC_WRITE_ONLY, 100, 101),
        write(opcode::RC_WRITE_ONLY, 0, 4),
        write(opcode::RC_WRITE_ONLY, 4, 0),
        write(opcode::RC_WRITE_FIRST, mtu, mtu),
        write(opcode::RC_WRITE_FIRST, 10, mtu),
    ]
}

//= test rc-payload-length
//= test rc-write-length
#[test]
fn a_length_that_disagrees_with_path_mtu_or_reth_is_an_invalid_request() {
    let count = lying_lengths(Qpn::GSI, victim().2).len();
    for i in 0..count {
        let (mut world, ends, region) = victim();
        let before = world.hosts[1].memory.bytes(region).to_vec();
        let packet = &lying_lengths(ends[1].qpn, region)[i];
        refused(&mut world, ends[1], packet, NakCode::InvalidRequest);
        assert_eq!(world.hosts[1].memory.bytes(region), before, "not a byte");
    }
}

//= test rc-message-length
#[test]
fn a_request_for_more_than_2_to_the_31_bytes_is_an_invalid_request() {
    for code in [opcode::RC_READ_REQUEST, opcode::RC_WRITE_FIRST] {
        let (mut world, ends, region) = victim();
        let reth = Reth { addr: region.addr, rkey: region.key, len: (1 << 31) + 1 };
        let carried = if code == opcode::RC_WRITE_FIRST { PathMtu::B256.bytes() } else { 0 };
        let packet = forge::with_reth(code, ends[1].qpn, expected(), reth, &vec![9; carried]);
        refused(&mut world, ends[1], &packet, NakCode::InvalidRequest);
    }
}

//= test rc-write-length
#[test]
fn a_message_longer_or_shorter_than_its_reth_is_an_invalid_request() {
    let mtu = PathMtu::B256.bytes();
    // FIRST says `len`; then packets of the given opcodes and lengths, the last one refused.
    let middle = (opcode::RC_WRITE_MIDDLE, mtu);
    let cases: [(usize, &[(KnownOpcode, usize)]); 6] = [
        (mtu + 10, &[(opcode::RC_WRITE_LAST, 11)]),
        (mtu + 10, &[(opcode::RC_WRITE_LAST, 9)]),
        (mtu + 10, &[(opcode::RC_WRITE_LAST, 0)]),
        (mtu + 10, &[middle]),
        (3 * mtu, &[(opcode::RC_WRITE_LAST, mtu)]),
        (3 * mtu, &[middle, (opcode::RC_WRITE_LAST, mtu - 1)]),
    ];
    for (len, packets) in cases {
        let (mut world, ends, region) = victim();
        let reth = Reth { addr: region.addr, rkey: region.key, len: len as u32 };
        let first =
            forge::with_reth(opcode::RC_WRITE_FIRST, ends[1].qpn, expected(), reth, &vec![9; mtu]);
        world.forge(0, 1, &first);
        for (i, (code, carried)) in packets.iter().enumerate() {
            let psn = expected().advanced_by(i as u32 + 1);
            let headers = forge::headers(*code, ends[1].qpn, psn);
            let packet = forge::packet(&headers, &vec![9; *carried]);
            if i + 1 == packets.len() {
                refused(&mut world, ends[1], &packet, NakCode::InvalidRequest);
            } else {
                world.forge(0, 1, &packet);
                assert_eq!(ends[1].state(&world), QpState::ReadyToSend);
            }
        }
        let beyond = &world.hosts[1].memory.bytes(region)[len..];
        assert!(beyond.iter().any(|it| *it != 9), "nothing beyond the RETH was written");
    }
}

//= test rc-payload-length
#[test]
fn a_message_in_pieces_of_the_wrong_length_is_an_invalid_request() {
    let mtu = PathMtu::B256.bytes();
    let (middle, last) = (opcode::RC_SEND_MIDDLE, opcode::RC_SEND_LAST);
    for (code, carried) in [
        (middle, 0),
        (middle, mtu - 4),
        (middle, mtu + 4),
        (last, 0),
        (last, mtu + 1),
        (opcode::RC_SEND_LAST_IMMEDIATE, 0),
    ] {
        let (mut world, ends, _) = victim();
        let first = forge::headers(opcode::RC_SEND_FIRST, ends[1].qpn, expected());
        world.forge(0, 1, &forge::packet(&first, &vec![9; mtu]));
        let next = forge::headers(code, ends[1].qpn, expected().advanced_by(1));
        let packet = forge::packet(&next, &vec![9; carried]);
        refused(&mut world, ends[1], &packet, NakCode::InvalidRequest);
    }
}

//= test rc-opcode-order
#[test]
fn opcodes_that_may_not_follow_each_other_are_an_invalid_request() {
    let requests = || {
        KnownOpcode::all().filter(|it| it.info().service == Service::Rc && it.info().is_request())
    };
    let mtu = PathMtu::B256.bytes();
    let build = |opcode: KnownOpcode, dest, psn, region: Region| {
        let info = opcode.info();
        let mut headers = forge::headers(opcode, dest, psn);
        let long = if info.position.opens() { 2 * mtu } else { 8 };
        let span = (region.addr, region.key);
        headers.reth = headers.reth.map(|_| Reth { addr: span.0, rkey: span.1, len: long as u32 });
        headers.atomic_eth =
            headers.atomic_eth.map(|it| roce_wire::AtomicEth { addr: span.0, rkey: span.1, ..it });
        headers.invalidate = headers.invalidate.map(|_| InvalidateKey(region.key));
        let carried = match info.operation {
            Operation::Send | Operation::Write if info.position.opens() => mtu,
            // The rest of a message whose first packet said two path MTUs.
            Operation::Write if !info.position.is_first() => mtu,
            Operation::Send | Operation::Write | Operation::AtomicWrite => 8,
            _ => 0,
        };
        forge::packet(&headers, &vec![9; carried])
    };
    let mut tried = 0;
    for first in [None].into_iter().chain(requests().map(Some)) {
        if first.is_some_and(|it| !it.info().may_follow(None)) {
            continue;
        }
        for second in requests() {
            if second.info().may_follow(first.map(KnownOpcode::info)) {
                continue;
            }
            let (mut world, ends, region) = victim();
            let mut psn = expected();
            if let Some(first) = first {
                let rights = Rights { invalidatable: true, ..Rights::ALL };
                let doomed = world.hosts[1].memory.register_filled(PD, 64, rights, 5);
                let opens = first.info().position.opens();
                let target = if opens { region } else { doomed };
                world.forge(0, 1, &build(first, ends[1].qpn, psn, target));
                assert_eq!(ends[1].state(&world), QpState::ReadyToSend, "{first:?} alone is sound");
                psn = psn.advanced_by(1);
            }
            let packet = build(second, ends[1].qpn, psn, region);
            refused(&mut world, ends[1], &packet, NakCode::InvalidRequest);
            tried += 1;
        }
    }
    assert!(tried > 50, "{tried} pairs");
}

//= test rc-gap-nak
#[test]
fn a_request_from_the_future_is_refused_once_until_the_gap_closes() {
    let (mut world, ends, region) = victim();
    let late = forge::send_only(ends[1].qpn, expected().advanced_by(3), b"three");
    for _ in 0..5 {
        world.forge(0, 1, &late);
    }
    let naks: Vec<_> = world.sent(1).iter().map(Sent::headers).collect();
    assert_eq!(naks.len(), 1, "{}", world.report());
    assert_eq!(naks[0].bth.psn, expected());
    assert_eq!(naks[0].aeth.unwrap().syndrome, forge::nak(NakCode::PsnSequence));
    assert_eq!(ends[1].counter(&world, "out_of_seq_request"), 5);
    world.forge(0, 1, &forge::send_only(ends[1].qpn, expected(), b"zero"));
    world.forge(0, 1, &late);
    let naks = world.sent(1).into_iter().filter(|it| {
        it.headers().aeth.is_some_and(|it| it.syndrome == forge::nak(NakCode::PsnSequence))
    });
    assert_eq!(naks.count(), 2, "a new gap, a new refusal");
    assert_eq!(ends[1].state(&world), QpState::ReadyToSend);
    assert_eq!(&world.hosts[1].memory.bytes(region)[..4], b"zero");
}

//= test rc-invalidate-failed
#[test]
fn an_invalidation_of_a_key_that_may_not_be_invalidated_fails_the_receive() {
    for which in 0..2 {
        let (mut world, ends, region) = victim();
        let key = [region.key, region.key ^ 1][which];
        let packet = forge::send_invalidate(ends[1].qpn, expected(), key, b"shut it");
        world.forge(0, 1, &packet);
        assert!(world.hosts[1].memory.is_alive(region));
        let received = ends[1].received(&world);
        assert_eq!(received[0].status, CompletionStatus::RemoteInvalidRequest, "{received:?}");
        assert_eq!(ends[1].state(&world), QpState::Error);
    }
}

//= test rc-invalidate-failed
#[test]
fn sends_before_one_whose_key_cannot_be_invalidated_are_acknowledged() {
    let (mut world, ends, region) = victim();
    let without_ack_request = |mut packet: Vec<u8>| {
        let mut headers = forge::parse(&packet);
        headers.bth.ack_request = false;
        packet[..BTH_LEN].copy_from_slice(&headers.bth.to_bytes());
        packet
    };
    let packets = [
        forge::send_only(ends[1].qpn, expected(), b"zero"),
        forge::send_only(ends[1].qpn, expected().advanced_by(1), b"one"),
        forge::send_invalidate(ends[1].qpn, expected().advanced_by(2), region.key, b"two"),
    ]
    .map(without_ack_request);
    world.forge_batch(0, 1, &packets);
    assert_eq!(ends[1].state(&world), QpState::Error);
    let answers: Vec<_> = world.sent(1).iter().map(Sent::headers).collect();
    let answers: Vec<_> =
        answers.iter().map(|it| (it.bth.psn, it.aeth.unwrap().syndrome)).collect();
    let [(psn, Syndrome::Ack { .. })] = answers[..] else { panic!("{answers:?}") };
    assert_eq!(psn, expected().advanced_by(2), "rxe acknowledges the one that fails too");
}

#[test]
fn reserved_bits_and_marks_do_not_matter() {
    let (mut world, ends, _) = victim();
    let mut headers = forge::headers(opcode::RC_SEND_ONLY, ends[1].qpn, expected());
    headers.bth.migration_request = true;
    headers.bth.fecn = true;
    headers.bth.becn = true;
    let mut packet = forge::packet(&headers, b"marked");
    packet[4] |= 0x3f; // reserved beside FECN and BECN
    packet[8] |= 0x7f; // reserved beside AckReq
    world.forge(0, 1, &packet);
    assert_eq!(ends[1].received(&world).len(), 1, "{}", world.report());
}
