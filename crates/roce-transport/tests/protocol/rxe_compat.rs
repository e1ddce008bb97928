//! What a peer on the kernel's rxe does and a tidy peer would not: all of it must be survived.

use std::time::Duration;

use roce_fabric::{Fate, Impairment};
use roce_transport::{CompletionStatus, QpState};
use roce_wire::{NakCode, Psn, RnrTimer, opcode};

use crate::common::connection::{DEFAULT, End, FIRST_PSN, Options, connect, timeout};
use crate::common::exchange::{Exchange, Kind};
use crate::common::forge;
use crate::common::world::World;

/// Node 0 has sent what was posted; node 1 is played by hand.
fn scripted(kind: Kind, len: usize, count: usize) -> (World, [End; 2], Exchange) {
    scripted_with(DEFAULT, kind, len, count)
}

fn scripted_with(
    options: Options,
    kind: Kind,
    len: usize,
    count: usize,
) -> (World, [End; 2], Exchange) {
    let mut world = World::pair();
    world.keep_timeline(true);
    let options = Options { ack_timeout: timeout(14), ..options }; // 67 ms
    let ends = connect(&mut world, [0, 1], options);
    world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 1000]));
    let exchange = Exchange::post(&mut world, ends, kind, len, count);
    (world, ends, exchange)
}

fn psn(index: u32) -> Psn {
    Psn::new(FIRST_PSN).unwrap().advanced_by(index)
}

fn sent_psns(world: &World, from: usize) -> Vec<Psn> {
    world.sent(0)[from..].iter().map(|it| it.headers().bth.psn).collect()
}

//= test rc-rnr-wait
#[test]
fn the_sequence_nak_that_follows_an_rnr_nak_does_not_cut_the_wait_short() {
    let (mut world, ends, _) = scripted(Kind::Send, 100, 3);
    let before = world.sent(0).len();
    world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn(0), forge::rnr(14))); // 1.28 ms
    let nak = forge::nak(NakCode::PsnSequence);
    world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn(0), nak));
    let wait = RnrTimer::new(14).unwrap().duration();
    world.run_for(wait - Duration::from_micros(1));
    assert_eq!(world.sent(0).len(), before, "it waits");
    world.run_for(wait);
    assert_eq!(sent_psns(&world, before).first(), Some(&psn(0)), "and then begins there");
    assert_eq!(ends[0].state(&world), QpState::ReadyToSend);
}

//= test rc-rnr-then-nak
#[test]
fn the_sequence_nak_that_follows_an_rnr_nak_costs_no_retry() {
    let options = Options { retry_count: 0, ..DEFAULT };
    let (mut world, ends, _) = scripted_with(options, Kind::Send, 100, 3);
    for _ in 0..20 {
        world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn(0), forge::rnr(14)));
        let nak = forge::nak(NakCode::PsnSequence);
        world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn(0), nak));
        world.run_for(Duration::from_millis(2));
        assert_eq!(ends[0].state(&world), QpState::ReadyToSend, "{}", world.report());
    }
}

//= test rc-rnr-then-nak
#[test]
fn the_sequence_nak_that_arrives_after_the_wait_of_an_rnr_nak_costs_no_retry() {
    let options = Options { retry_count: 0, ..DEFAULT };
    let (mut world, ends, _) = scripted_with(options, Kind::Send, 100, 3);
    for _ in 0..20 {
        world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn(0), forge::rnr(1)));
        let before = world.sent(0).len();
        world.run_for(Duration::from_micros(100));
        assert!(world.sent(0).len() > before, "the wait is over");
        let nak = forge::nak(NakCode::PsnSequence);
        world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn(0), nak));
        assert_eq!(ends[0].state(&world), QpState::ReadyToSend, "{}", world.report());
    }
}

#[test]
fn an_acknowledgement_ends_the_wait_that_an_old_rnr_nak_began() {
    let (mut world, ends, _) = scripted(Kind::Send, 100, 1);
    world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn(0), forge::rnr(0))); // 655 ms
    world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn(0), forge::ACK));
    assert_eq!(ends[0].sent(&world).len(), 1);
    let before = world.sent(0).len();
    Exchange::post(&mut world, ends, Kind::Write, 100, 1);
    assert_eq!(sent_psns(&world, before), [psn(1)], "at once");
}

#[test]
fn an_acknowledgement_of_a_duplicate_carries_an_old_psn_and_does_no_harm() {
    let (mut world, ends, _) = scripted(Kind::Write, 100, 4);
    world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn(2), forge::ACK));
    assert_eq!(ends[0].sent(&world).len(), 3);
    for old in
        [psn(2), psn(1), psn(0), Psn::new(FIRST_PSN - 1).unwrap(), Psn::new(0xff_ffff).unwrap()]
    {
        world.forge(1, 0, &forge::acknowledge(ends[0].qpn, old, forge::ACK));
    }
    assert_eq!(ends[0].sent(&world).len(), 3);
    world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn(3), forge::ACK));
    assert_eq!(ends[0].sent(&world).len(), 4);
}

#[test]
fn a_second_sequence_nak_for_the_same_psn_does_not_send_everything_twice() {
    let (mut world, ends, _) = scripted(Kind::Write, 256 * 20, 1);
    let nak = forge::acknowledge(ends[0].qpn, psn(5), forge::nak(NakCode::PsnSequence));
    let before = world.sent(0).len();
    world.forge(1, 0, &nak);
    let once = world.sent(0).len() - before;
    assert_eq!(sent_psns(&world, before).first(), Some(&psn(5)));
    world.forge(1, 0, &nak);
    let twice = world.sent(0).len() - before - once;
    assert!(twice < once, "{twice} after {once}");
}

//= test rc-ack-coalesced
#[test]
fn one_ack_for_the_last_of_several_messages_completes_them_all() {
    let (mut world, ends, _) = scripted(Kind::Send, 300, 8);
    world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn(15), forge::ACK));
    let expected = (0..8).map(|_| CompletionStatus::Success).collect::<Vec<_>>();
    let statuses: Vec<_> = ends[0].sent(&world).iter().map(|it| it.status).collect();
    assert_eq!(statuses, expected);
}

#[test]
fn an_ack_may_carry_any_message_number() {
    for msn in [0, 1, 77, 0xff_ffff] {
        let (mut world, ends, _) = scripted(Kind::Send, 300, 2);
        let mut headers = forge::headers(opcode::RC_ACKNOWLEDGE, ends[0].qpn, psn(3));
        headers.aeth = Some(roce_wire::Aeth { syndrome: forge::ACK, msn });
        world.forge(1, 0, &forge::packet(&headers, &[]));
        assert_eq!(ends[0].sent(&world).len(), 2, "message number {msn:#x}");
    }
}

//= test rc-read-response-restart
#[test]
fn the_response_to_a_repeated_read_may_start_with_a_first_middle_or_last_packet() {
    // Seven packets; the first three arrive, then nothing, then the rest in rxe's two ways.
    for restart in [opcode::RC_READ_RESPONSE_MIDDLE, opcode::RC_READ_RESPONSE_FIRST] {
        let len = 6 * 256 + 10;
        let (mut world, ends, exchange) = scripted(Kind::Read, len, 1);
        let bytes = world.hosts[1].memory.bytes(exchange.remote).to_vec();
        let respond = |world: &mut World, code, index: usize| {
            let end = (index * 256 + 256).min(len);
            let data = &bytes[index * 256..end];
            let packet = forge::response(code, ends[0].qpn, psn(index as u32), forge::ACK, data);
            world.forge(1, 0, &packet);
        };
        respond(&mut world, opcode::RC_READ_RESPONSE_FIRST, 0);
        respond(&mut world, opcode::RC_READ_RESPONSE_MIDDLE, 1);
        respond(&mut world, opcode::RC_READ_RESPONSE_MIDDLE, 2);
        let before = world.sent(0).len();
        world.run_until(|world| world.sent(0).len() > before);
        let again = world.sent(0)[before].headers();
        assert_eq!(again.bth.opcode, opcode::RC_READ_REQUEST);
        let reth = again.reth.unwrap();
        let first = again.bth.psn.distance_from(psn(0)) as usize;
        assert!(first <= 3, "nothing that came is skipped: {again:?}");
        assert_eq!(reth.addr, exchange.remote.addr + 256 * first as u64);
        assert_eq!(reth.len as usize, len - 256 * first);
        respond(&mut world, restart, first);
        for index in first + 1..6 {
            respond(&mut world, opcode::RC_READ_RESPONSE_MIDDLE, index);
        }
        respond(&mut world, opcode::RC_READ_RESPONSE_LAST, 6);
        exchange.check(&world);
    }
}

#[test]
fn the_response_to_a_repeated_last_packet_may_be_last_or_only() {
    for restart in [opcode::RC_READ_RESPONSE_LAST, opcode::RC_READ_RESPONSE_ONLY] {
        let (mut world, ends, exchange) = scripted(Kind::Read, 300, 1);
        let bytes = world.hosts[1].memory.bytes(exchange.remote).to_vec();
        let first = opcode::RC_READ_RESPONSE_FIRST;
        world.forge(1, 0, &forge::response(first, ends[0].qpn, psn(0), forge::ACK, &bytes[..256]));
        let before = world.sent(0).len();
        world.run_until(|world| world.sent(0).len() > before);
        let again = world.sent(0)[before].headers();
        assert_eq!(again.bth.psn, psn(1), "only what is missing is asked for");
        world.forge(
            1,
            0,
            &forge::response(restart, ends[0].qpn, psn(1), forge::ACK, &bytes[256..]),
        );
        exchange.check(&world);
    }
}

#[test]
fn a_peer_that_sends_everything_twice_without_any_loss_does_no_harm() {
    for kind in Kind::ALL {
        let mut world = World::pair();
        let ends = connect(&mut world, [0, 1], DEFAULT);
        let twice = || Impairment::scripted(vec![Fate::Duplicate(Duration::from_micros(3)); 500]);
        world.set_impairment(0, twice());
        world.set_impairment(1, twice());
        let exchange = Exchange::post(&mut world, ends, kind, 1000, 5);
        world.settle();
        exchange.check(&world);
    }
}

//= test rc-msn
//= test rc-ack-requested
#[test]
fn a_request_without_ack_req_is_executed_and_the_next_ack_covers_it() {
    let mut world = World::pair();
    world.keep_timeline(true);
    let ends = connect(&mut world, [0, 1], DEFAULT);
    for id in 0..2 {
        ends[1].post_recv(&mut world, id, &[]);
    }
    let mut no_ack_req = forge::headers(opcode::RC_SEND_ONLY, ends[1].qpn, psn(0));
    no_ack_req.bth.ack_request = false;
    world.forge(0, 1, &forge::packet(&no_ack_req, &[]));
    assert_eq!(ends[1].received(&world).len(), 1);
    world.forge(0, 1, &forge::send_only(ends[1].qpn, psn(1), &[]));
    let last = world.sent(1).last().unwrap().headers();
    assert_eq!((last.bth.opcode, last.bth.psn), (opcode::RC_ACKNOWLEDGE, psn(1)));
    assert_eq!(last.aeth.unwrap().msn, 2, "two messages are done");
}
