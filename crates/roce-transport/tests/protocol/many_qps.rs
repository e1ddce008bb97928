//! Many queue pairs to one peer: together they send no more than its queue holds, each has its
//! turn, and no queue pair waits for what never arrives.

use std::time::Duration;

use roce_fabric::{Fate, Impairment, LinkConfig};
use roce_transport::{CompletionStatus, Endpoint, EndpointConfig, Instant, PeerWindowConfig};
use roce_wire::{PathMtu, Reth};

use crate::common::connection::{DEFAULT, End, Options, connect, timeout};
use crate::common::exchange::{Exchange, Kind};
use crate::common::forge;
use crate::common::world::{World, WorldConfig, test_config};

/// A peer that works off a packet of 4 KiB in 33 µs and whose queue holds so many frames.
fn slow(queue_frames: usize) -> WorldConfig {
    let latency = Duration::from_micros(20);
    let link = LinkConfig { latency, bits_per_sec: Some(1_000_000_000), queue_frames };
    WorldConfig { link, whole_trains: true, batch: 8, ..test_config() }
}

const OPTIONS: Options = Options { path_mtu: PathMtu::B4096, ack_timeout: timeout(14), ..DEFAULT };
/// A first packet and a last one, which share a frame where there are trains.
const LEN: usize = 8 << 10;
/// Bits of a message on the wire, as nanoseconds at 1 Gb/s.
const NANOS_EACH: u64 = (LEN as u64 + 2 * 100) * 8;

/// As many connections from node 0 to `peer`, and so many messages on each.
fn crowd(
    world: &mut World,
    (peer, size): (usize, usize),
    options: Options,
    (kind, count): (Kind, usize),
) -> Vec<Exchange> {
    let ends: Vec<[End; 2]> = (0..size).map(|_| connect(world, [0, peer], options)).collect();
    // One message each before any queue pair has a second.
    let exchanges = ends.into_iter().map(|ends| Exchange::prepare(world, ends, kind, LEN, count));
    let exchanges: Vec<_> = exchanges.collect();
    exchanges.iter().for_each(|it| it.post_receives(world));
    (0..count).for_each(|i| exchanges.iter().for_each(|it| it.post_send(world, i)));
    exchanges
}

/// Two nodes, of which the second one is played by hand. The first sends it so many frames at a time.
fn played_by_hand(frames: u32) -> World {
    let mut config = WorldConfig { train_packets: 1, whole_trains: false, ..slow(128) };
    config.endpoint.peer_window =
        PeerWindowConfig { initial_frames: frames, min_frames: frames, max_frames: frames };
    let mut world = World::new(2, config);
    world.keep_timeline(true);
    world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 100]));
    world
}

fn are_done(world: &World, exchanges: &[Exchange]) -> bool {
    exchanges.iter().all(|it| it.is_done(world))
}

fn done(world: &World, exchanges: &[Exchange]) -> Vec<usize> {
    exchanges.iter().map(|it| it.from.sent(world).len()).collect()
}

#[test]
fn a_crowd_overflows_no_queue_of_the_usual_length_and_takes_turns() {
    for kind in [Kind::Write, Kind::Send, Kind::Read] {
        const EACH: usize = 8;
        let mut world = World::new(2, slow(128));
        let exchanges = crowd(&mut world, (1, 200), OPTIONS, (kind, EACH));
        let all = 200 * EACH;
        world.run_until(|world| done(world, &exchanges).iter().sum::<usize>() >= all / 2);
        let shares = done(&world, &exchanges);
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        // A train holds several SENDs, or as many READs as may be outstanding, but one WRITE,
        // whose first packet is longer than the others.
        let a_turn = match kind {
            Kind::Send => 7,
            Kind::Read => 4,
            _ => 1,
        };
        assert!(most - least <= a_turn, "{kind:?}: {least} to {most} of {EACH}");
        world.run_until(|world| are_done(world, &exchanges));
        exchanges.iter().for_each(|it| it.check(&world));
        let (took, ideal) = (world.now().as_nanos(), all as u64 * NANOS_EACH);
        assert!(took < ideal * 5 / 4, "{kind:?}: {took} of {ideal} ns\n{}", world.report());
        assert_eq!(world.link_stats().overflowed, 0, "{kind:?}\n{}", world.report());
    }
}

#[test]
fn a_queue_pair_with_responses_keeps_its_place_in_the_wait_queue() {
    let mut world = played_by_hand(1);
    let crowd = crowd(&mut world, (1, 3), OPTIONS, (Kind::Write, 1));
    let requests = |world: &World| -> Vec<_> {
        let sent = world.sent(0).into_iter().map(|it| it.headers().bth);
        sent.filter(|it| it.opcode.info().is_request()).map(|it| it.dest_qp).collect()
    };
    let first = crowd[0].to.qpn;
    assert_eq!(requests(&world), [first], "it stands in line again, and the others behind it");
    // Its first packet is answered; meanwhile it is asked something itself.
    let [mine, its] = OPTIONS.first_psn;
    let answer = forge::acknowledge(crowd[0].from.qpn, mine, forge::ACK);
    let reth = Reth { addr: 0, rkey: 0, len: 0 };
    let question = forge::write_only(crowd[0].from.qpn, its, reth, &[]);
    world.forge_batch(1, 0, &[answer, question]);
    assert_eq!(requests(&world), [first; 2], "{}", world.report());
    let answers = world.sent(0).len() - 2;
    assert_eq!(answers, 1, "the peer waits no longer for it");
}

#[test]
fn a_turn_that_the_peer_window_interrupts_continues_before_the_next_one() {
    let mut world = played_by_hand(8);
    let ends = connect(&mut world, [0, 1], OPTIONS);
    let fills = Exchange::prepare(&mut world, ends, Kind::Write, 8, 8);
    fills.post_sends(&mut world);
    let waiting = crowd(&mut world, (1, 3), OPTIONS, (Kind::Write, 1));
    let mut expected = vec![ends[1].qpn; 8];
    let sent = |world: &World| -> Vec<_> {
        world.sent(0).iter().map(|it| it.headers().bth.dest_qp).collect()
    };
    assert_eq!(sent(&world), expected, "the others stand in line");
    let first = OPTIONS.first_psn[0];
    for (answered, turn) in [waiting[0].to, waiting[0].to, waiting[1].to].into_iter().enumerate() {
        let psn = first.advanced_by(answered as u32);
        let answer = forge::acknowledge(ends[0].qpn, psn, forge::ACK);
        world.forge(1, 0, &answer);
        expected.push(turn.qpn);
        assert_eq!(sent(&world), expected, "{}", world.report());
    }
}

#[test]
fn a_waiting_queue_pair_that_is_destroyed_blocks_no_other() {
    let mut world = played_by_hand(1);
    let newcomer = |world: &mut World| {
        let ends = connect(world, [0, 1], OPTIONS);
        Exchange::prepare(world, ends, Kind::Write, 8, 1).post_send(world, 0);
        ends
    };
    let [first, second, third] = [(); 3].map(|()| newcomer(&mut world));
    assert!(world.with(0, |node, _| node.endpoint.destroy_qp(second[0].qpn)));
    let last = newcomer(&mut world);
    for it in [first, third, last] {
        assert_eq!(world.sent(0).last().unwrap().headers().bth.dest_qp, it[1].qpn);
        let psn = OPTIONS.first_psn[0];
        world.forge(1, 0, &forge::acknowledge(it[0].qpn, psn, forge::ACK));
    }
    assert_eq!(world.sent(0).len(), 3, "{}", world.report());
}

#[test]
fn a_full_window_without_waiters_arms_no_timer() {
    let mut world = played_by_hand(1);
    // As long as it exists, so does the peer window.
    let _idle = connect(&mut world, [0, 1], OPTIONS);
    let ends = connect(&mut world, [0, 1], OPTIONS);
    // The first message fills the window, the second waits.
    Exchange::prepare(&mut world, ends, Kind::Write, 8, 2).post_sends(&mut world);
    assert!(world.with(0, |node, _| node.endpoint.destroy_qp(ends[0].qpn)));
    world.settle();
    // Not even the peer timeout was checked a second time.
    assert!(world.now() < Instant::from_nanos(20_000_000), "{}", world.report());
}

#[test]
fn a_crowd_finds_what_fits_into_a_shorter_queue() {
    for queue_frames in [8, 16, 32, 64] {
        let mut world = World::new(2, slow(queue_frames));
        let exchanges = crowd(&mut world, (1, 100), OPTIONS, (Kind::Write, 16));
        world.run_until(|world| are_done(world, &exchanges));
        exchanges.iter().for_each(|it| it.check(&world));
        let (took, ideal) = (world.now().as_nanos(), 1600 * NANOS_EACH);
        let named = format!("queue of {queue_frames}: {took} of {ideal} ns");
        // A peer timeout alone does not shrink the limit, since the peer may just have no processor.
        assert!(took < ideal * 7 / 2, "{named}\n{}", world.report());
    }
}

#[test]
fn the_probes_of_a_crowd_do_not_overflow_the_short_queue_of_a_peer_that_goes_back_n() {
    for size in [100, 105, 110, 120] {
        let mut world = World::new(2, slow(32));
        let config = EndpointConfig { max_reorder_bytes: 0, ..EndpointConfig::default() };
        world.hosts[1].endpoint = Endpoint::with_observer(config, Default::default());
        let exchanges = crowd(&mut world, (1, size), OPTIONS, (Kind::Write, 16));
        world.run_until(|world| are_done(world, &exchanges));
        exchanges.iter().for_each(|it| it.check(&world));
        let (took, ideal) = (world.now().as_nanos(), size as u64 * 16 * NANOS_EACH);
        assert!(took < ideal * 5 / 4, "{size}: {took} of {ideal} ns\n{}", world.report());
    }
}

#[test]
fn a_dead_peer_blocks_no_queue_pair_of_another_peer_and_is_given_up_in_time() {
    let mut world = World::new(3, slow(128));
    world.set_impairment(2, Impairment::scripted(vec![Fate::Drop; 1_000_000]));
    let options = Options { ack_timeout: timeout(13), retry_count: 3, ..OPTIONS };
    let to_dead = crowd(&mut world, (2, 200), options, (Kind::Write, 1));
    let began = world.now();
    let to_living = crowd(&mut world, (1, 100), options, (Kind::Write, 8));
    world.run_until(|world| are_done(world, &to_living));
    to_living.iter().for_each(|it| it.check(&world));
    let (took, ideal) = (nanos_since(&world, began), 1000 * NANOS_EACH);
    assert!(took < ideal * 2, "{took} of {ideal} ns\n{}", world.report());
    world.run_until(|world| are_done(world, &to_dead));
    let timers = Duration::from_nanos(4096 << 13) * 4;
    let took = Duration::from_nanos(nanos_since(&world, began));
    assert!(took < timers * 4 + Duration::from_millis(120), "{took:?}\n{}", world.report());
    for exchange in &to_dead {
        let ends: Vec<_> = exchange.from.sent(&world).iter().map(|it| it.status).collect();
        assert_eq!(ends, [CompletionStatus::RetryExceeded]);
    }
}

#[test]
fn frames_that_get_no_response_block_no_queue_pair() {
    // The queue pairs that sent first have no timer, and all that they sent is lost.
    let mut world = World::new(2, slow(128));
    world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 96]));
    let never = Options { ack_timeout: timeout(0), ..OPTIONS };
    let lost = crowd(&mut world, (1, 48), never, (Kind::Write, 1));
    let began = world.now();
    let others = crowd(&mut world, (1, 48), never, (Kind::Write, 8));
    world.run_until(|world| are_done(world, &others));
    others.iter().for_each(|it| it.check(&world));
    let took = Duration::from_nanos(nanos_since(&world, began));
    assert!(took < Duration::from_millis(120), "{took:?}\n{}", world.report());
    assert!(lost.iter().all(|it| !it.is_done(&world)));
}

fn nanos_since(world: &World, began: Instant) -> u64 {
    world.now().as_nanos() - began.as_nanos()
}
