//! Order: of execution, of completions, across fences and through a drained send queue.

use std::time::Duration;

use roce_fabric::{Fate, Impairment, LinkConfig};
use roce_transport::{
    AccessFlags, AsyncEvent, CompletionStatus, CqHandle, QpAttributes, QpState, RemoteAddr,
    SendOperation, SendWr, SgList, WrData,
};
use roce_wire::{KnownOpcode, Qpn, opcode};

use crate::common::connection::{DEFAULT, Options, PD, RECV_CQ, connect};
use crate::common::exchange::{Exchange, Kind, sge, work};
use crate::common::world::{World, WorldConfig, test_config};
use roce_simnet::{Region, Rights};

fn slow_world() -> World {
    let link = LinkConfig::with_latency(Duration::from_micros(100));
    let mut world = World::new(2, WorldConfig { link, ..test_config() });
    world.keep_timeline(true);
    world
}

fn read(remote: Region, local: Region) -> SendWr {
    let gather = SgList::from(sge(local, 0, local.len as usize));
    let remote = RemoteAddr { addr: remote.addr, rkey: remote.key };
    SendWr { data: WrData::Sges(gather), ..work(SendOperation::Read { remote }) }
}

fn write(remote: Region, local: Region) -> SendWr {
    let gather = SgList::from(sge(local, 0, local.len as usize));
    let remote = RemoteAddr { addr: remote.addr, rkey: remote.key };
    SendWr { data: WrData::Sges(gather), ..work(SendOperation::Write { remote, immediate: None }) }
}

fn when_sent(world: &World, node: usize, wanted: KnownOpcode) -> Vec<u64> {
    let sent = world.sent(node).into_iter().filter(|it| it.opcode() == wanted);
    sent.map(|it| it.at.as_nanos()).collect()
}

//= test rc-fence
#[test]
fn a_fenced_request_waits_for_every_earlier_read_and_carries_what_it_brought() {
    let mut world = slow_world();
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let local = world.hosts[0].memory.register_filled(PD, 200, Rights::ALL, 1);
    let source = world.hosts[1].memory.register_filled(PD, 200, Rights::ALL, 70);
    let target = world.hosts[1].memory.register_filled(PD, 200, Rights::ALL, 140);
    // Read into local memory, then write that very memory back elsewhere.
    ends[0].post_send(&mut world, read(source, local));
    ends[0].post_send(&mut world, SendWr { fence: true, ..write(target, local) });
    world.settle();
    let memory = &world.hosts[1].memory;
    assert_eq!(memory.bytes(target), memory.bytes(source));
    assert_eq!(when_sent(&world, 0, opcode::RC_READ_REQUEST), [0]);
    assert_eq!(when_sent(&world, 0, opcode::RC_WRITE_ONLY), [200_000]);
}

#[test]
fn without_a_fence_requests_follow_a_read_at_once() {
    let mut world = slow_world();
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let local = world.hosts[0].memory.register_filled(PD, 200, Rights::ALL, 1);
    let source = world.hosts[1].memory.register_filled(PD, 200, Rights::ALL, 70);
    ends[0].post_send(&mut world, read(source, local));
    ends[0].post_send(&mut world, write(source, local));
    world.settle();
    assert_eq!(when_sent(&world, 0, opcode::RC_WRITE_ONLY), [0]);
}

#[test]
fn a_write_that_is_acknowledged_behind_a_read_completes_behind_it() {
    let mut world = slow_world();
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let local = world.hosts[0].memory.register_filled(PD, 2000, Rights::ALL, 1);
    let source = world.hosts[1].memory.register_filled(PD, 2000, Rights::ALL, 70);
    for wr_id in 0..12 {
        let kind = if wr_id % 3 == 0 { read(source, local) } else { write(source, local) };
        ends[0].post_send(&mut world, SendWr { wr_id, ..kind });
    }
    world.settle();
    let expected: Vec<_> = (0..12).map(|id| (id, CompletionStatus::Success)).collect();
    assert_eq!(ends[0].outcomes(&world), expected);
}

#[test]
fn an_unsignaled_request_gets_no_completion_and_is_complete_with_the_next() {
    let mut world = World::pair();
    let options = Options { signal_all: false, ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    let local = world.hosts[0].memory.register_filled(PD, 200, Rights::ALL, 1);
    let target = world.hosts[1].memory.register_filled(PD, 200, Rights::ALL, 70);
    // Far more than the queue holds at once: silent work must free its place too.
    for round in 0..20 {
        for i in 0..100 {
            let signaled = i == 99;
            let wr_id = round * 100 + i;
            let work = SendWr { wr_id, signaled, ..write(target, local) };
            ends[0].post_send(&mut world, work);
        }
        world.settle();
    }
    let expected: Vec<_> =
        (0..20).map(|round| (round * 100 + 99, CompletionStatus::Success)).collect();
    assert_eq!(ends[0].outcomes(&world), expected);
}

//= test rc-unsignaled-failure
#[test]
fn an_unsignaled_request_that_fails_or_is_flushed_gets_a_completion() {
    let mut world = World::pair();
    let options = Options { signal_all: false, ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    let local = world.hosts[0].memory.register_filled(PD, 200, Rights::ALL, 1);
    let closed = world.hosts[1].memory.register_filled(PD, 200, AccessFlags::empty(), 70);
    for wr_id in 0..3 {
        let work = SendWr { wr_id, signaled: false, ..write(closed, local) };
        ends[0].post_send(&mut world, work);
    }
    world.settle();
    let expected = [
        (0, CompletionStatus::RemoteAccessError),
        (1, CompletionStatus::WorkRequestFlushed),
        (2, CompletionStatus::WorkRequestFlushed),
    ];
    assert_eq!(ends[0].outcomes(&world), expected);
}

#[test]
fn a_send_queue_that_is_full_refuses_and_takes_again_after_a_completion() {
    let mut world = slow_world();
    let mut options = DEFAULT;
    options.cap.max_send_wr = 4;
    let ends = connect(&mut world, [0, 1], options);
    let local = world.hosts[0].memory.register_filled(PD, 10, Rights::ALL, 1);
    let target = world.hosts[1].memory.register_filled(PD, 10, Rights::ALL, 70);
    for _ in 0..4 {
        ends[0].post_send(&mut world, write(target, local));
    }
    assert!(ends[0].try_post_send(&mut world, write(target, local)).is_err());
    world.settle();
    ends[0].post_send(&mut world, write(target, local));
}

//= test rc-solicited
#[test]
fn solicited_is_told_to_the_receiver_of_exactly_those_messages() {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let local = world.hosts[0].memory.register_filled(PD, 600, Rights::ALL, 1);
    let target = world.hosts[1].memory.register_filled(PD, 600, Rights::ALL, 1);
    let asked = [true, false, false, true];
    for (i, solicited) in asked.into_iter().enumerate() {
        ends[1].post_recv(&mut world, i as u64, &[sge(target, 0, 600)]);
        let gather = SgList::from(sge(local, 0, 600));
        let send = SendOperation::Send { immediate: None, invalidate: None };
        let send = SendWr { data: WrData::Sges(gather), solicited, ..work(send) };
        ends[0].post_send(&mut world, send);
    }
    world.settle();
    let told: Vec<_> = ends[1].received(&world).iter().map(|it| it.solicited).collect();
    assert_eq!(told, asked);
}

//= test qp-drain
#[test]
fn a_drained_send_queue_finishes_what_was_begun_holds_the_rest_and_goes_on_later() {
    let mut world = slow_world();
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let begun = Exchange::post(&mut world, ends, Kind::Write, 2000, 3);
    let drain = QpAttributes {
        state: Some(QpState::SendQueueDrain),
        sqd_notify: Some(true),
        ..QpAttributes::default()
    };
    ends[0].modify(&mut world, &drain).unwrap();
    let held = Exchange::post(&mut world, ends, Kind::Write, 2000, 3);
    world.settle();
    begun.check(&world);
    assert!(!held.is_done(&world));
    // Changing something while it is drained is no second draining.
    let same = QpAttributes {
        state: Some(QpState::SendQueueDrain),
        retry_count: Some(5),
        ..QpAttributes::default()
    };
    ends[0].modify(&mut world, &same).unwrap();
    let drained = world.hosts[0].events.iter();
    let drained = drained
        .filter(|it| matches!(it, AsyncEvent::SendQueueDrained { qpn } if *qpn == ends[0].qpn));
    assert_eq!(drained.count(), 1);
    // The other direction is not concerned.
    let back = Exchange::post(&mut world, [ends[1], ends[0]], Kind::Send, 2000, 2);
    world.settle();
    back.check(&world);
    assert!(!held.is_done(&world));
    ends[0].move_to(&mut world, QpState::ReadyToSend);
    world.settle();
    held.check(&world);
}

#[test]
fn what_was_sent_once_and_lost_is_begun_and_finished_by_a_drain() {
    let mut world = World::pair();
    world.keep_timeline(true);
    let ends = connect(&mut world, [0, 1], DEFAULT);
    world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 120]));
    let begun = Exchange::post(&mut world, ends, Kind::Write, 40 * 256, 3);
    assert_eq!(world.sent(0).len(), 120);
    // The timer fires; the window is smaller now, and not all of it leaves again at once.
    world.run_until(|world| world.sent(0).len() > 120);
    assert!(world.sent(0).len() < 240, "{}", world.report());
    let held = Exchange::post(&mut world, ends, Kind::Write, 100, 1);
    ends[0].move_to(&mut world, QpState::SendQueueDrain);
    world.settle();
    begun.check(&world);
    assert!(!held.is_done(&world));
}

//= test qp-flush
#[test]
fn a_queue_pair_moved_to_error_flushes_everything_in_order_and_sends_nothing() {
    let mut world = slow_world();
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let local = world.hosts[0].memory.register_filled(PD, 2000, Rights::ALL, 1);
    let target = world.hosts[1].memory.register_filled(PD, 2000, Rights::ALL, 70);
    for wr_id in 0..5 {
        ends[0].post_send(&mut world, SendWr { wr_id, ..write(target, local) });
        ends[0].post_recv(&mut world, wr_id, &[sge(local, 0, 100)]);
    }
    ends[0].move_to(&mut world, QpState::Error);
    let flushed: Vec<_> = (0..5).map(|id| (id, CompletionStatus::WorkRequestFlushed)).collect();
    assert_eq!(ends[0].outcomes(&world), flushed);
    let received = ends[0].received(&world);
    let received: Vec<_> = received.iter().map(|it| (it.wr_id, it.status)).collect();
    assert_eq!(received, flushed);
    // Work posted from now on is taken and flushed.
    ends[0].post_send(&mut world, SendWr { wr_id: 9, ..write(target, local) });
    ends[0].post_recv(&mut world, 9, &[]);
    assert_eq!(ends[0].outcomes(&world)[5..], [(9, CompletionStatus::WorkRequestFlushed)]);
    assert_eq!(ends[0].received(&world).len(), 6);
    let sent = world.sent(0).len();
    world.settle();
    assert_eq!(world.sent(0).len(), sent, "nothing more leaves");
}

//= test rc-local-invalidate
#[test]
fn a_local_invalidation_waits_for_all_work_before_it_and_shuts_the_key() {
    let mut world = slow_world();
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let rights = Rights { invalidatable: true, ..Rights::ALL };
    let local = world.hosts[0].memory.register_filled(PD, 2000, rights, 1);
    let target = world.hosts[1].memory.register_filled(PD, 2000, Rights::ALL, 70);
    let shut = work(SendOperation::LocalInvalidate { key: local.key });
    ends[0].post_send(&mut world, SendWr { wr_id: 1, ..write(target, local) });
    ends[0].post_send(&mut world, SendWr { wr_id: 2, ..shut.clone() });
    ends[0].post_send(&mut world, SendWr { wr_id: 3, ..write(target, local) });
    assert!(world.hosts[0].memory.is_alive(local));
    world.settle();
    let expected = [
        (1, CompletionStatus::Success),
        (2, CompletionStatus::Success),
        (3, CompletionStatus::LocalProtectionError),
    ];
    assert_eq!(ends[0].outcomes(&world), expected);
    assert!(!world.hosts[0].memory.is_alive(local));
    let memory = &world.hosts[1].memory;
    assert_eq!(memory.bytes(target), world.hosts[0].memory.bytes(local), "the first was written");
}

#[test]
fn a_completion_queue_that_overflows_takes_its_queue_pairs_to_error_and_no_others() {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], DEFAULT);
    world.with(0, |node, now| node.endpoint.handle_cq_overflow(now, CqHandle(999)));
    assert_eq!(ends[0].state(&world), QpState::ReadyToSend, "another queue is not our affair");
    world.with(0, |node, now| node.endpoint.handle_cq_overflow(now, RECV_CQ));
    assert_eq!(ends[0].state(&world), QpState::Error);
    assert_eq!(ends[1].state(&world), QpState::ReadyToSend);
    let told = |event: &AsyncEvent| matches!(event, AsyncEvent::CqError { cq: RECV_CQ });
    assert!(world.hosts[0].events.iter().any(told), "{:?}", world.hosts[0].events);
}

#[test]
fn queue_pairs_with_much_to_send_take_turns_train_by_train() {
    let mut world = slow_world();
    let pairs: Vec<_> = (0..4).map(|_| connect(&mut world, [0, 1], DEFAULT)).collect();
    let local = world.hosts[0].memory.register_filled(PD, 100_000, Rights::ALL, 1);
    let target = world.hosts[1].memory.register_filled(PD, 100_000, Rights::ALL, 70);
    // All posted before any may speak.
    let now = world.now();
    for ends in &pairs {
        let endpoint = &mut world.hosts[0].endpoint;
        endpoint.post_send(now, ends[0].qpn, write(target, local)).unwrap();
    }
    world.with(0, |_, _| ());
    let destinations = world.sent(0).into_iter().map(|it| it.headers().bth.dest_qp);
    let mut runs: Vec<(Qpn, usize)> = vec![];
    for dest in destinations {
        match runs.last_mut() {
            Some((last, count)) if *last == dest => *count += 1,
            _ => runs.push((dest, 1)),
        }
    }
    let longest = runs.iter().map(|(_, count)| *count).max();
    // The first packet of a WRITE is longer than the others, and asks for no answer.
    assert!(longest <= Some(65), "no more than a first packet and a train in a row: {runs:?}");
    let first_round: std::collections::BTreeSet<_> =
        runs[..4].iter().map(|(dest, _)| *dest).collect();
    assert_eq!(first_round.len(), 4, "each is heard before any is heard again: {runs:?}");
    world.settle();
    for ends in pairs {
        assert_eq!(ends[0].outcomes(&world), [(0, CompletionStatus::Success)]);
    }
}

#[test]
fn a_queue_pair_that_was_reset_can_be_connected_anew_and_hears_no_ghosts() {
    let mut world = slow_world();
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let lost = Exchange::post(&mut world, ends, Kind::Write, 5000, 3);
    for end in ends {
        end.move_to(&mut world, QpState::Reset);
    }
    assert!(!lost.is_done(&world), "a reset makes no completions");
    let options =
        Options { first_psn: [0x10_0000, 0x20_0000].map(roce_wire::Psn::wrapping), ..DEFAULT };
    crate::common::connection::reconnect(&mut world, ends, options);
    let exchange = Exchange::post(&mut world, ends, Kind::SendImmediate, 5000, 3);
    world.settle();
    exchange.check(&world);
    assert!(!lost.is_done(&world));
}
