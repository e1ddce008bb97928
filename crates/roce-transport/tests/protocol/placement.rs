//! FLUSH and ATOMIC WRITE: rights, lengths, repetitions, and how many may be on their way.

use roce_fabric::{Fate, Impairment};
use roce_transport::{AccessFlags, CompletionStatus, QpState, SendOperation, SendWr};
use roce_wire::{Feth, FlushExtent, NakCode, Psn, Reth, Syndrome, opcode};

use crate::common::connection::{
    DEFAULT, End, FIRST_PSN, Options, PD, connect, connect_each, timeout,
};
use crate::common::exchange::{Exchange, Kind, work};
use crate::common::forge;
use crate::common::world::{Sent, World};
use roce_simnet::{Region, Rights};
use roce_transport::RemoteAddr;

const LEN: usize = 800;

/// Two ends, of which the second has a region with these rights.
fn world_with(rights: Rights, access: AccessFlags) -> (World, [End; 2], Region) {
    let mut world = World::pair();
    world.keep_timeline(true);
    let options = DEFAULT;
    let ends = connect_each(&mut world, [0, 1], [options, Options { access, ..options }]);
    let region = world.hosts[1].memory.register_filled(PD, LEN, rights, 50);
    (world, ends, region)
}

fn first_psn() -> Psn {
    Psn::new(FIRST_PSN).unwrap()
}

fn flush(region: Region, len: u32, placement: u8, extent: FlushExtent) -> SendWr {
    let remote = RemoteAddr { addr: region.addr, rkey: region.key };
    work(SendOperation::Flush { remote, len, placement, extent })
}

/// Status of the only request.
fn status_of(world: &mut World, end: End, request: SendWr) -> CompletionStatus {
    end.post_send(world, request);
    world.settle();
    end.sent(world)[0].status
}

/// What the responder sends when it receives `packet`.
fn answers(world: &mut World, packet: &[u8]) -> Vec<Sent> {
    let before = world.sent(1).len();
    world.forge(0, 1, packet);
    world.sent(1)[before..].to_vec()
}

//= test rc-flush-rights
#[test]
fn a_flush_needs_the_right_of_each_placement_of_queue_pair_and_region() {
    use CompletionStatus::{RemoteAccessError, RemoteInvalidRequest, Success};
    let rights = [AccessFlags::FLUSH_GLOBAL, AccessFlags::FLUSH_PERSISTENT];
    for placement in 0..4 {
        let asked = |index: usize| placement & (1 << index) != 0;
        for (index, right) in rights.into_iter().enumerate() {
            let rest = AccessFlags::ALL - right;
            for (region, qp, refused) in [
                (AccessFlags::ALL, AccessFlags::ALL, Success),
                (rest, AccessFlags::ALL, RemoteAccessError),
                (AccessFlags::ALL, rest, RemoteInvalidRequest),
            ] {
                let (mut world, ends, target) = world_with(region.into(), qp);
                let request = flush(target, 8, placement, FlushExtent::Range);
                let expected = if asked(index) { refused } else { Success };
                assert_eq!(status_of(&mut world, ends[0], request), expected, "{placement}");
            }
        }
    }
}

//= test rc-flush-region
#[test]
fn a_flush_of_a_region_names_no_bytes_and_one_of_a_range_stays_inside() {
    let status = |extent, address: u64, len| {
        let (mut world, ends, target) = world_with(Rights::ALL, AccessFlags::ALL);
        let target = Region { addr: target.addr.wrapping_add(address), ..target };
        status_of(&mut world, ends[0], flush(target, len, Feth::GLOBAL, extent))
    };
    let (range, region) = (FlushExtent::Range, FlushExtent::Region);
    assert_eq!(status(range, 0, LEN as u32), CompletionStatus::Success);
    assert_eq!(status(range, LEN as u64, 0), CompletionStatus::Success);
    assert_eq!(status(range, 1, LEN as u32), CompletionStatus::RemoteAccessError);
    assert_eq!(status(range, 1 << 40, 0), CompletionStatus::RemoteAccessError);
    for address in [0, 1, 1 << 40, u64::MAX] {
        assert_eq!(status(region, address, 123_456_789), CompletionStatus::Success);
    }
    let (mut world, ends, target) = world_with(Rights::ALL, AccessFlags::ALL);
    let unknown = Region { key: target.key ^ 1, ..target };
    let request = flush(unknown, 0, Feth::GLOBAL, FlushExtent::Region);
    assert_eq!(status_of(&mut world, ends[0], request), CompletionStatus::RemoteAccessError);
}

//= test rc-flush-selectivity
#[test]
fn a_reserved_selectivity_level_is_an_invalid_request() {
    let (mut world, ends, target) = world_with(Rights::ALL, AccessFlags::ALL);
    let mut headers = forge::headers(opcode::RC_FLUSH, ends[1].qpn, first_psn());
    headers.reth = Some(Reth { addr: target.addr, rkey: target.key, len: 8 });
    headers.feth = Some(Feth::from_bytes(&[0, 0, 0, 0x21]));
    let refusal = answers(&mut world, &forge::packet(&headers, &[]))[0].headers();
    assert_eq!(refusal.aeth.unwrap().syndrome, forge::nak(NakCode::InvalidRequest));
    assert_eq!(ends[1].state(&world), QpState::Error);
}

//= test rc-atomic-write-length
//= test rc-atomic-write-aligned
#[test]
fn an_atomic_write_of_another_length_or_alignment_is_an_invalid_request_and_stores_nothing() {
    let cases: [(u64, u32, usize); 7] =
        [(0, 8, 0), (0, 8, 4), (0, 8, 16), (0, 0, 0), (0, 16, 8), (0, 0, 8), (4, 8, 8)];
    for (offset, len, payload) in cases {
        let (mut world, ends, target) = world_with(Rights::ALL, AccessFlags::ALL);
        let before = world.hosts[1].memory.bytes(target).to_vec();
        let reth = Reth { addr: target.addr + offset, rkey: target.key, len };
        let (qpn, code) = (ends[1].qpn, opcode::RC_ATOMIC_WRITE);
        let packet = forge::with_reth(code, qpn, first_psn(), reth, &vec![7; payload]);
        let refusal = answers(&mut world, &packet)[0].headers();
        assert_eq!(refusal.aeth.unwrap().syndrome, forge::nak(NakCode::InvalidRequest));
        assert_eq!(world.hosts[1].memory.bytes(target), before, "{offset} {len} {payload}");
        assert_eq!(ends[1].state(&world), QpState::Error);
    }
}

//= test rc-empty-response
#[test]
fn each_is_answered_by_one_read_response_without_bytes() {
    for kind in [Kind::Flush, Kind::AtomicWrite] {
        let (mut world, ends, _) = world_with(Rights::ALL, AccessFlags::ALL);
        let exchange = Exchange::post(&mut world, ends, kind, 100, 9);
        world.settle();
        exchange.check(&world);
        let answers: Vec<_> = world.sent(1).iter().map(Sent::headers).collect();
        assert_eq!(answers.len(), 9, "{}", world.report());
        for (i, answer) in answers.iter().enumerate() {
            assert_eq!(answer.bth.opcode, opcode::RC_READ_RESPONSE_ONLY);
            assert_eq!(answer.bth.psn, first_psn().advanced_by(i as u32));
            assert!(matches!(answer.aeth.unwrap().syndrome, Syndrome::Ack { .. }));
        }
    }
}

//= test rc-duplicate-atomic-write
//= test rc-duplicate-flush
#[test]
fn a_repeated_one_is_not_executed_again_and_gets_the_same_response() {
    for kind in [Kind::Flush, Kind::AtomicWrite] {
        let (mut world, ends, _) = world_with(Rights::ALL, AccessFlags::ALL);
        world.keep_timeline(true);
        let exchange = Exchange::post(&mut world, ends, kind, 100, 4);
        world.settle();
        let requests: Vec<_> = world.sent(0).iter().map(|it| it.packet.clone()).collect();
        for request in requests.into_iter().rev() {
            for _ in 0..3 {
                let again = answers(&mut world, &request);
                assert_eq!(again.len(), 1, "{kind:?}\n{}", world.report());
                assert_eq!(again[0].opcode(), opcode::RC_READ_RESPONSE_ONLY);
                assert_eq!(again[0].headers().bth.psn, forge::parse(&request).bth.psn);
            }
        }
        // Each word was stored once.
        exchange.check(&world);
    }
}

//= test rc-duplicate-unknown
#[test]
fn an_atomic_write_whose_resource_was_evicted_is_never_executed_again() {
    let (mut world, ends, _) = world_with(Rights::ALL, AccessFlags::ALL);
    world.keep_timeline(true);
    let exchange = Exchange::post(&mut world, ends, Kind::AtomicWrite, 8, 1);
    world.settle();
    let request = world.sent(0)[0].packet.clone();
    let after = Exchange::post(&mut world, ends, Kind::AtomicWrite, 8, 50);
    world.settle();
    assert!(answers(&mut world, &request).is_empty(), "{}", world.report());
    exchange.check(&world);
    after.check(&world);
}

//= test rc-empty-response-implied
#[test]
fn an_ack_behind_a_lost_response_completes_the_request_without_a_repetition() {
    for kind in [Kind::Flush, Kind::AtomicWrite] {
        let (mut world, ends, _) = world_with(Rights::ALL, AccessFlags::ALL);
        world.set_impairment(1, Impairment::scripted([Fate::Drop]));
        let lost = Exchange::post(&mut world, ends, kind, 100, 1);
        let behind = Exchange::post(&mut world, ends, Kind::Write, 100, 1);
        world.settle();
        lost.check(&world);
        behind.check(&world);
        assert_eq!(ends[0].counter(&world, "resent_pkts"), 0, "{kind:?}\n{}", world.report());
    }
}

#[test]
fn a_lost_response_with_nothing_behind_it_is_requested_again() {
    for kind in [Kind::Flush, Kind::AtomicWrite] {
        let (mut world, ends, _) = world_with(Rights::ALL, AccessFlags::ALL);
        world.set_impairment(1, Impairment::scripted([Fate::Drop, Fate::Drop]));
        let exchange = Exchange::post(&mut world, ends, kind, 100, 1);
        world.settle();
        exchange.check(&world);
        assert!(ends[0].counter(&world, "resent_pkts") >= 2, "{kind:?}\n{}", world.report());
    }
}

//= test rc-flush-no-resource
#[test]
fn a_peer_may_have_more_flushes_on_their_way_than_reads_were_agreed_upon() {
    for resources in [0, 1, 4] {
        let mut world = World::pair();
        world.keep_timeline(true);
        let options = DEFAULT;
        let few = Options { max_dest_rd_atomic: resources, ..options };
        let ends = connect_each(&mut world, [0, 1], [options, few]);
        let region = world.hosts[1].memory.register_filled(PD, LEN, Rights::ALL, 5);
        let requests: Vec<_> = (0..100)
            .map(|i| {
                let psn = first_psn().advanced_by(i);
                let mut headers = forge::headers(opcode::RC_FLUSH, ends[1].qpn, psn);
                headers.reth = Some(Reth { addr: region.addr, rkey: region.key, len: 8 });
                headers.feth = Some(Feth::new(Feth::GLOBAL, FlushExtent::Range));
                forge::packet(&headers, &[])
            })
            .collect();
        world.forge_batch(0, 1, &requests);
        assert_eq!(world.sent(1).len(), 100, "{resources}: {}", world.report());
        let answers = &world.sent(1);
        assert!(answers.iter().all(|it| it.opcode() == opcode::RC_READ_RESPONSE_ONLY));
        assert_eq!(ends[1].state(&world), QpState::ReadyToSend);
    }
}

#[test]
fn flushes_without_end_in_one_batch_are_refused_and_not_kept() {
    let (mut world, ends, region) = world_with(Rights::ALL, AccessFlags::ALL);
    let requests: Vec<_> = (0..3000)
        .map(|i| {
            let psn = first_psn().advanced_by(i);
            let mut headers = forge::headers(opcode::RC_FLUSH, ends[1].qpn, psn);
            headers.reth = Some(Reth { addr: region.addr, rkey: region.key, len: 8 });
            forge::packet(&headers, &[])
        })
        .collect();
    world.forge_batch(0, 1, &requests);
    let sent = world.sent(1);
    let (refusal, answers) = sent.split_last().unwrap();
    assert_eq!(answers.len(), 1024);
    let refusal = refusal.headers().aeth.unwrap().syndrome;
    assert_eq!(refusal, forge::nak(NakCode::InvalidRequest));
    assert_eq!(ends[1].state(&world), QpState::Error);
}

#[test]
fn a_response_with_bytes_or_of_an_atomic_is_no_success() {
    let cases = [
        (opcode::RC_READ_RESPONSE_ONLY, 8, Some(CompletionStatus::BadResponse)),
        (opcode::RC_READ_RESPONSE_FIRST, 0, Some(CompletionStatus::BadResponse)),
        (opcode::RC_ATOMIC_ACKNOWLEDGE, 0, None),
    ];
    for kind in [Kind::Flush, Kind::AtomicWrite] {
        for (code, len, expected) in cases {
            let mut world = World::pair();
            let options = Options { ack_timeout: timeout(20), ..DEFAULT };
            let ends = connect(&mut world, [0, 1], options);
            world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 1000]));
            Exchange::post(&mut world, ends, kind, 8, 1);
            let data = vec![1; len];
            let packet = forge::response(code, ends[0].qpn, first_psn(), forge::ACK, &data);
            world.forge(1, 0, &packet);
            let status = ends[0].sent(&world).first().map(|it| it.status);
            assert_eq!(status, expected, "{kind:?} answered by {code:?}");
        }
    }
}
