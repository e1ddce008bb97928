//! Requests that arrive again, long after they were done: answered again, never done again.

use roce_transport::QpState;
use roce_wire::{Aeth, Psn, Qpn, Reth, Syndrome, opcode};

use crate::common::connection::{DEFAULT, End, connect};
use crate::common::exchange::{Exchange, Kind};
use crate::common::forge;
use crate::common::world::{Sent, World};

/// A finished exchange, with everything both sides sent.
fn finished(kind: Kind, len: usize, count: usize) -> (World, [End; 2], Exchange) {
    let mut world = World::pair();
    world.keep_timeline(true);
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let exchange = Exchange::post(&mut world, ends, kind, len, count);
    world.settle();
    exchange.check(&world);
    (world, ends, exchange)
}

/// What the responder answers when `packet` comes again.
fn replay(world: &mut World, packet: &[u8]) -> Vec<Sent> {
    let before = world.sent(1).len();
    world.forge(0, 1, packet);
    world.sent(1)[before..].to_vec()
}

fn requests(world: &World) -> Vec<Vec<u8>> {
    world.sent(0).iter().map(|it| it.packet.clone()).collect()
}

//= test rc-duplicate-atomic
#[test]
fn a_repeated_atomic_is_not_executed_again_and_gets_the_same_response() {
    for kind in [Kind::FetchAdd, Kind::CompareSwap] {
        let (mut world, _, exchange) = finished(kind, 8, 4);
        let answers: Vec<_> = world.sent(1).iter().map(|it| it.packet.clone()).collect();
        assert_eq!(answers.len(), 4);
        for (request, answer) in requests(&world).iter().zip(answers) {
            for _ in 0..3 {
                let again = replay(&mut world, request);
                assert_eq!(again.len(), 1, "{}", world.report());
                let (again, first) = (again[0].headers(), forge::parse(&answer));
                assert_eq!(again.atomic_ack, first.atomic_ack);
                assert_eq!(again.bth.psn, first.bth.psn);
                assert_eq!(again.bth.opcode, opcode::RC_ATOMIC_ACKNOWLEDGE);
            }
        }
        exchange.check(&world);
        assert!(world.counter(1, "duplicate_request") >= 12);
    }
}

//= test rc-duplicate-unknown
#[test]
fn an_atomic_whose_resource_was_evicted_is_never_executed_again() {
    let (mut world, ends, exchange) = finished(Kind::FetchAdd, 8, 1);
    let request = requests(&world)[0].clone();
    let after = Exchange::post(&mut world, ends, Kind::FetchAdd, 8, 50);
    world.settle();
    replay(&mut world, &request);
    world.settle();
    let bytes = world.hosts[1].memory.bytes(exchange.remote).to_vec();
    assert_eq!(bytes[..8], 1u64.to_ne_bytes(), "executed once");
    after.check(&world);
}

//= test rc-duplicate-read
#[test]
fn a_repeated_read_returns_the_current_bytes() {
    let (mut world, _, exchange) = finished(Kind::Read, 1000, 1);
    world.hosts[1].memory.bytes_mut(exchange.remote).fill(0xee);
    let request = requests(&world)[0].clone();
    let first: Vec<_> = world.sent(1).iter().map(Sent::headers).collect();
    let again = replay(&mut world, &request);
    let headers: Vec<_> = again.iter().map(Sent::headers).collect();
    let psns = |all: &[roce_wire::Headers]| -> Vec<_> {
        all.iter().map(|it| (it.bth.psn, it.bth.opcode)).collect()
    };
    assert_eq!(psns(&headers), psns(&first));
    assert!(again.iter().all(|it| it.packet.ends_with(&[0xee; 200])), "fresh bytes");
}

//= test rc-read-psns
//= test rc-duplicate-read
#[test]
fn a_read_may_be_repeated_from_the_middle() {
    // What a requester sends that has two packets of four.
    let (mut world, ends, exchange) = finished(Kind::Read, 1000, 1);
    let first_psn = forge::parse(&requests(&world)[0]).bth.psn;
    let reth = Reth { addr: exchange.remote.addr + 512, rkey: exchange.remote.key, len: 488 };
    let psn = first_psn.advanced_by(2);
    let again = replay(&mut world, &forge::read_request(ends[1].qpn, psn, reth));
    let psns: Vec<_> = again.iter().map(|it| it.headers().bth.psn).collect();
    assert_eq!(psns, [psn, psn.advanced_by(1)], "{}", world.report());
    let bytes = world.hosts[1].memory.bytes(exchange.remote);
    assert!(again[0].packet.ends_with(&bytes[512..768]));
    assert!(again[1].packet.ends_with(&bytes[768..]));
}

//= test rc-duplicate-read
#[test]
fn a_duplicate_read_of_other_bytes_is_dropped() {
    let (mut world, ends, exchange) = finished(Kind::Read, 1000, 3);
    let first_psn = forge::parse(&requests(&world)[0]).bth.psn;
    let first = Reth { addr: exchange.remote.addr, rkey: exchange.remote.key, len: 1000 };
    let others = [
        Reth { len: 1001, ..first },
        Reth { len: 3000, ..first },
        Reth { len: 0x8000_0000, ..first },
        Reth { addr: first.addr + 1, len: 999, ..first },
        Reth { addr: first.addr - 1, ..first },
        Reth { rkey: first.rkey ^ 1, ..first },
    ];
    for (i, other) in others.into_iter().enumerate() {
        let again = replay(&mut world, &forge::read_request(ends[1].qpn, first_psn, other));
        assert_eq!(again.len(), 0, "{other:?}");
        assert_eq!(ends[1].counter(&world, "unknown_duplicate"), i as u64 + 1);
        assert_eq!(ends[1].state(&world), QpState::ReadyToSend);
    }
}

//= test rc-duplicate-write
#[test]
fn a_write_or_send_that_arrives_again_is_acknowledged_and_changes_nothing() {
    for kind in [Kind::Send, Kind::SendImmediate, Kind::Write, Kind::WriteImmediate] {
        let (mut world, ends, exchange) = finished(kind, 600, 2);
        let last = forge::parse(requests(&world).last().unwrap()).bth.psn;
        let completions = world.hosts[1].completions.len();
        world.hosts[1].memory.bytes_mut(exchange.remote).fill(0xee);
        // A receive waits; no duplicate may take it.
        ends[1].post_recv(&mut world, 99, &[]);
        for request in requests(&world) {
            let again = replay(&mut world, &request);
            if forge::parse(&request).bth.ack_request {
                assert_eq!(again.len(), 1, "{kind:?}");
            }
            for answer in again {
                let headers = answer.headers();
                assert_eq!(headers.bth.opcode, opcode::RC_ACKNOWLEDGE);
                let Some(Aeth { syndrome: Syndrome::Ack { .. }, .. }) = headers.aeth else {
                    panic!("a duplicate is acknowledged, not refused: {headers:?}");
                };
                assert_eq!(headers.bth.psn, last, "everything that was executed");
            }
        }
        assert!(world.hosts[1].memory.bytes(exchange.remote).iter().all(|it| *it == 0xee));
        assert_eq!(world.hosts[1].completions.len(), completions);
    }
}

//= test rc-duplicate-region
#[test]
fn a_duplicate_is_known_for_half_the_circle() {
    let (mut world, ends, _) = finished(Kind::Write, 10, 1);
    let expected = forge::parse(&requests(&world)[0]).bth.psn.advanced_by(1);
    let dest: Qpn = ends[1].qpn;
    for back in [1, 2, 1000, Psn::HALF - 1] {
        let psn = Psn::wrapping(expected.get().wrapping_sub(back));
        let reth = Reth { addr: 0, rkey: 0, len: 4 };
        let again = replay(&mut world, &forge::write_only(dest, psn, reth, &[1; 4]));
        assert_eq!(again.len(), 1, "{back} back");
        let aeth = again[0].headers().aeth.unwrap();
        assert!(matches!(aeth.syndrome, Syndrome::Ack { .. }), "{back} back: {aeth:?}");
    }
    for ahead in [1, 2, 1000, Psn::HALF - 1] {
        let psn = expected.advanced_by(ahead);
        let reth = Reth { addr: 0, rkey: 0, len: 4 };
        let again = replay(&mut world, &forge::write_only(dest, psn, reth, &[1; 4]));
        for answer in again {
            let headers = answer.headers();
            assert_eq!(headers.aeth.unwrap().syndrome, forge::nak(roce_wire::NakCode::PsnSequence));
            assert_eq!(headers.bth.psn, expected);
        }
    }
}
