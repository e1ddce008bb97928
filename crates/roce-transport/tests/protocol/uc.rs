//! UC queue pairs, and what UC and UD have in common: receives, static rate, SQD, a full interface.

use std::time::Duration;

use roce_simnet::{Driver, Rights};
use roce_transport::{
    AccessFlags, AsyncEvent, CompletionStatus, Instant, ModifyError, PostError, QpAttributes,
    QpState, RecvWr, SendWr,
};
use roce_wire::{ICRC_LEN, Psn, Service, opcode};

use crate::common::connection::{End, FIRST_PSN, Options, PD, connect, of_service, receive_only};
use crate::common::exchange::{Kind, request, sge};
use crate::common::forge;
use crate::common::world::{World, WorldConfig, test_config};

const UC: Options = of_service(Service::Uc);

/// Posts `count` SENDs of `len` bytes.
fn post_sends(world: &mut World, ends: [End; 2], options: &Options, count: u64, len: usize) {
    let source = world.hosts[ends[0].node].memory.register_filled(PD, len, Rights::ALL, 1);
    for wr_id in 0..count {
        let work = SendWr { wr_id, ..request(Kind::Send, source, sge(source, 0, len)) };
        ends[0].try_post_to_peer(world, work, ends[1], options).expect("the work is taken");
    }
}

#[test]
fn a_move_to_error_that_is_refused_leaves_the_message_as_it_was() {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], UC);
    let region = world.hosts[1].memory.register(1000, Rights::ALL);
    ends[1].post_recv(&mut world, 1, &[sge(region, 0, 1000)]);
    let first = Psn::new(FIRST_PSN).unwrap();
    let headers = forge::headers(opcode::UC_SEND_FIRST, ends[1].qpn, first);
    world.forge(0, 1, &forge::packet(&headers, &[7; 256]));
    let asked = QpAttributes {
        state: Some(QpState::Error),
        access: Some(AccessFlags::ALL),
        ..QpAttributes::default()
    };
    let refused = ends[1].modify(&mut world, &asked);
    assert!(matches!(refused, Err(ModifyError::UnexpectedAttribute { .. })), "{refused:?}");
    assert_eq!(ends[1].received(&world), []);
    let headers = forge::headers(opcode::UC_SEND_LAST, ends[1].qpn, first.advanced_by(1));
    world.forge(0, 1, &forge::packet(&headers, &[8; 10]));
    let received = ends[1].received(&world);
    assert_eq!((received[0].status, received[0].byte_len), (CompletionStatus::Success, 266));
}

//= test qp-established
#[test]
fn the_first_packet_in_rtr_establishes_a_connection_once_and_datagrams_never() {
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        let (mut world, options) = (World::pair(), of_service(service));
        let ends = connect(&mut world, [0, 1], options);
        // Back to RTR, where the peer sends already.
        ends[1].move_to(&mut world, QpState::Reset);
        let told = world.hosts[1].events.len();
        receive_only(&mut world, ends, options);
        let b = ends[1];
        let region = world.hosts[1].memory.register(1000, Rights::ALL);
        for wr_id in 0..3 {
            b.post_recv(&mut world, wr_id, &[sge(region, 0, 1000)]);
        }
        post_sends(&mut world, ends, &options, 3, 100);
        world.settle();
        assert_eq!((b.state(&world), b.received(&world).len()), (QpState::ReadyToReceive, 3));
        let established = AsyncEvent::CommunicationEstablished { qpn: b.qpn };
        let expected = if service == Service::Ud { vec![] } else { vec![established] };
        assert_eq!(world.hosts[1].events[told..], expected, "{service:?}");
    }
}

#[test]
fn a_queue_pair_that_fails_in_a_message_flushes_its_receive_first() {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], UC);
    let region = world.hosts[1].memory.register(1000, Rights::ALL);
    for wr_id in 0..3 {
        ends[1].post_recv(&mut world, wr_id, &[sge(region, 0, 1000)]);
    }
    let first = Psn::new(FIRST_PSN).unwrap();
    let headers = forge::headers(opcode::UC_SEND_FIRST, ends[1].qpn, first);
    world.forge(0, 1, &forge::packet(&headers, &[7; 256]));
    ends[1].move_to(&mut world, QpState::Error);
    let received: Vec<_> =
        ends[1].received(&world).iter().map(|it| (it.wr_id, it.status)).collect();
    let flushed = CompletionStatus::WorkRequestFlushed;
    assert_eq!(received, [(0, flushed), (1, flushed), (2, flushed)]);
}

//= test uc-no-receive
#[test]
fn messages_without_a_receive_are_dropped_whole_and_those_behind_arrive() {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], UC);
    post_sends(&mut world, ends, &UC, 3, 700);
    world.settle();
    assert_eq!(ends[1].counter(&world, "out_of_buffer"), 3);
    let region = world.hosts[1].memory.register(700, Rights::ALL);
    ends[1].post_recv(&mut world, 1, &[sge(region, 0, 700)]);
    post_sends(&mut world, ends, &UC, 1, 700);
    world.settle();
    assert_eq!(ends[1].received(&world).len(), 1);
    assert_eq!((ends[0].sent(&world).len(), ends[1].state(&world)), (4, QpState::ReadyToSend));
}

#[test]
fn a_message_begun_in_sqd_is_dropped_alone_when_the_interface_stays_full() {
    let mut world = World::pair();
    // A packet of the 256 bytes leaves each 2.7 ms.
    let options = Options { max_rate: Some(100_000), ..UC };
    let ends = connect(&mut world, [0, 1], options);
    let region = world.hosts[1].memory.register(1000, Rights::ALL);
    ends[1].post_recv(&mut world, 7, &[sge(region, 0, 1000)]);
    post_sends(&mut world, ends, &options, 3, 700);
    world.run_for(Duration::from_micros(100));
    ends[0].move_to(&mut world, QpState::SendQueueDrain);
    world.hosts[0].driver.full_until = Driver::FOR_EVER;
    world.settle();
    let ended = |world: &World| ends[0].outcomes(world).iter().map(|it| it.0).collect::<Vec<_>>();
    assert_eq!((ended(&world), ends[0].counter(&world, "unsent_dropped")), (vec![0], 1));
    world.hosts[0].driver.full_until = Instant::default();
    ends[0].move_to(&mut world, QpState::ReadyToSend);
    world.settle();
    assert_eq!((ended(&world), ends[0].counter(&world, "unsent_dropped")), (vec![0, 1, 2], 1));
    assert_eq!(ends[1].received(&world).len(), 1, "the second, in the receive of the first");
}

#[test]
fn requests_end_a_second_after_the_interface_takes_no_more() {
    for service in [Service::Uc, Service::Ud] {
        let mut world = World::pair();
        let options = of_service(service);
        let ends = connect(&mut world, [0, 1], options);
        world.hosts[0].driver.full_until = Driver::FOR_EVER;
        let began = world.now();
        post_sends(&mut world, ends, &options, 3, 100);
        world.run_until(|world| ends[0].sent(world).len() == 3);
        assert_eq!(world.now().saturating_since(began), Duration::from_secs(1));
        assert_eq!(ends[0].counter(&world, "unsent_dropped"), 3);
        // What is posted afterwards leaves as ever.
        world.hosts[0].driver.full_until = Instant::default();
        post_sends(&mut world, ends, &options, 2, 100);
        world.settle();
        assert_eq!(ends[1].counter(&world, "out_of_buffer"), 2, "{}", world.report());
        assert_eq!(ends[0].sent(&world).len(), 5);
    }
}

/// Lets the driver take one train, with its transmit queue suspended for the rest of the time or not.
fn take_one(world: &mut World, is_suspended: bool) {
    world.with(0, |node, _| {
        node.endpoint.resume_transmit(Driver::QUEUE);
        let Driver { takes_one, full_until, suspended_until, .. } = &mut node.driver;
        (*takes_one, *full_until, *suspended_until) = (true, Driver::FOR_EVER, Instant::default());
    });
    if is_suspended {
        world.with(0, |node, _| {
            let Driver { full_until, suspended_until, .. } = &mut node.driver;
            (*full_until, *suspended_until) = (Instant::default(), Driver::FOR_EVER);
        });
    }
}

#[test]
fn requests_wait_for_their_turn_as_long_as_the_interface_takes_frames() {
    const INTERVAL: Duration = Duration::from_millis(400);
    for (service, is_suspended) in
        [(Service::Uc, false), (Service::Ud, false), (Service::Uc, true), (Service::Ud, true)]
    {
        let mut world = World::pair();
        let options = of_service(service);
        let pairs: Vec<_> = (0..8).map(|_| connect(&mut world, [0, 1], options)).collect();
        let post_to_all = |world: &mut World| {
            pairs.iter().for_each(|ends| post_sends(world, *ends, &options, 1, 100));
        };
        let counter = |world: &World, name| pairs[0][0].counter(world, name);
        world.hosts[0].driver.full_until = Driver::FOR_EVER;
        post_to_all(&mut world);
        // A turn round all of them takes three seconds.
        for turn in 0..8 {
            assert_eq!(counter(&world, "rdma_sends"), turn, "{service:?} {is_suspended}");
            take_one(&mut world, is_suspended);
            world.run_for(INTERVAL);
        }
        let all = |world: &World| pairs.iter().all(|ends| ends[0].sent(world).len() == 1);
        assert!(all(&world), "{}", world.report());
        assert_eq!(counter(&world, "unsent_dropped"), 0, "{service:?} {is_suspended}");
        // Once it takes none, requests are dropped, and do not count as sent.
        post_to_all(&mut world);
        world.run_for(Duration::from_millis(1001));
        assert_eq!(counter(&world, "unsent_dropped"), 8, "{service:?} {is_suspended}");
        assert_eq!(counter(&world, "rdma_sends"), 8);
    }
}

#[test]
fn a_queue_pair_without_acknowledgements_has_packets_under_way_while_it_may_send() {
    for service in [Service::Uc, Service::Ud] {
        let mut world = World::pair();
        let ends = connect(&mut world, [0, 1], of_service(service));
        let has_outstanding =
            |world: &mut World| world.with(0, |node, _| node.endpoint.has_outstanding(ends[0].qpn));
        assert!(has_outstanding(&mut world));
        ends[0].move_to(&mut world, QpState::SendQueueDrain);
        assert!(has_outstanding(&mut world));
        ends[0].move_to(&mut world, QpState::Error);
        assert!(!has_outstanding(&mut world), "{service:?}: what is flushed waits for nothing");
    }
}

#[test]
fn receives_of_unfinished_messages_count_as_posted() {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], UC);
    let region = world.hosts[1].memory.register(1000, Rights::ALL);
    let receive = || RecvWr { wr_id: 0, sg_list: sge(region, 0, 1000).into() };
    let post = |world: &mut World| {
        world.with(1, |node, now| node.endpoint.post_recv(now, ends[1].qpn, receive()))
    };
    let mut posted = 0;
    while post(&mut world).is_ok() {
        posted += 1;
    }
    let first = Psn::new(FIRST_PSN).unwrap();
    let begin = |world: &mut World, psn| {
        let headers = forge::headers(opcode::UC_SEND_FIRST, ends[1].qpn, psn);
        world.forge(0, 1, &forge::packet(&headers, &[7; 256]));
    };
    begin(&mut world, first);
    // It may be put back, as it is when another message begins.
    assert!(matches!(post(&mut world), Err(PostError::ReceiveQueueFull { .. })));
    begin(&mut world, first.advanced_by(1));
    let headers = forge::headers(opcode::UC_SEND_LAST, ends[1].qpn, first.advanced_by(2));
    world.forge(0, 1, &forge::packet(&headers, &[8; 10]));
    assert_eq!(ends[1].received(&world).len(), 1);
    post(&mut world).expect("one was used");
    assert!(posted > 0 && post(&mut world).is_err());
}

#[test]
fn bytes_never_exceed_the_static_rate_by_more_than_a_train() {
    for (service, rate, len, count) in [
        (Service::Uc, 50_000, 700, 20),
        (Service::Uc, 3_000_000, 5000, 20),
        (Service::Uc, 7_000_000_000, 1, 200),
        (Service::Ud, 40_000, 256, 40),
        (Service::Ud, 9_000_000_000, 3, 200),
    ] {
        let mut world = World::new(2, WorldConfig { train_packets: 16, ..test_config() });
        let options = Options { max_rate: Some(rate), ..of_service(service) };
        let ends = connect(&mut world, [0, 1], options);
        world.keep_timeline(true);
        post_sends(&mut world, ends, &options, count, len);
        world.settle();
        assert_eq!(ends[0].sent(&world).len() as u64, count);
        assert_eq!(ends[0].counter(&world, "unsent_dropped"), 0);
        let sent = &world.sent(0);
        let packet = |it: &crate::common::world::Sent| (it.packet.len() + ICRC_LEN) as u128;
        let longest = sent.iter().map(packet).max().unwrap();
        let train = (u128::from(rate) / 1000 / 256).clamp(1, 16) * longest;
        for (i, start) in sent.iter().enumerate() {
            let mut bytes = 0;
            for it in &sent[i..] {
                bytes += packet(it);
                let nanos = it.at.saturating_since(start.at).as_nanos();
                assert!(bytes <= nanos * u128::from(rate) / 1_000_000_000 + train, "{rate}");
            }
        }
        let whole: u128 = sent.iter().map(packet).sum();
        let took = sent.last().unwrap().at.saturating_since(sent[0].at).as_nanos();
        assert!(took <= whole * 1_000_000_000 * 2 / u128::from(rate) + 200, "nor by far less");
    }
}
