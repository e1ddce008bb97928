//! Shared receive queues: order, limit, events, and queue pairs that come and go.

use std::time::Duration;

use proptest::prelude::*;
use roce_simnet::{Region, Rights};
use roce_transport::{
    ApiMisuse, AsyncEvent, CompletionStatus, ModifySrqError, PostError, QpState, RecvWr, SendWr,
    SrqAttributes, SrqHandle, SrqInfo, SrqInit,
};
use roce_wire::{Psn, Service, opcode};

use crate::common::connection::{End, FIRST_PSN, Options, PD, connect_each, of_service};
use crate::common::exchange::{Kind, request, sge};
use crate::common::forge;
use crate::common::repeat::for_each_case;
use crate::common::world::World;

/// Bytes of a receive.
const ROOM: usize = 700;

/// A world of two nodes with a shared receive queue on the second.
fn world_with_srq(max_wr: u32) -> (World, SrqHandle, Region) {
    let mut world = World::pair();
    let init = SrqInit { pd: PD, max_wr, max_sge: 1 };
    let srq = world.hosts[1].endpoint.create_srq(init).unwrap();
    let region = world.hosts[1].memory.register(ROOM, Rights::ALL);
    (world, srq, region)
}

/// Connects a pair of which the second takes from `srq`.
fn connect(world: &mut World, service: Service, srq: SrqHandle) -> [End; 2] {
    let [one, other] = [None, Some(srq)].map(|srq| Options { srq, ..of_service(service) });
    connect_each(world, [0, 1], [one, other])
}

fn try_post(
    world: &mut World,
    srq: SrqHandle,
    wr_id: u64,
    region: Region,
) -> Result<(), PostError> {
    let work = RecvWr::new(wr_id, [sge(region, 0, ROOM)]);
    world.with(1, |node, now| node.endpoint.post_srq_recv(now, srq, work))
}

fn send(world: &mut World, ends: [End; 2], service: Service, id: u64, len: usize) {
    let region = world.hosts[0].memory.register_filled(PD, len, Rights::ALL, id as u8);
    let work = SendWr { wr_id: id, ..request(Kind::Send, region, sge(region, 0, len)) };
    ends[0].try_post_to_peer(world, work, ends[1], &of_service(service)).unwrap();
}

fn info(world: &World, srq: SrqHandle) -> SrqInfo {
    world.hosts[1].endpoint.query_srq(srq).expect("it is there")
}

fn modify(
    world: &mut World,
    srq: SrqHandle,
    attributes: SrqAttributes,
) -> Result<(), ModifySrqError> {
    world.with(1, |node, _| node.endpoint.modify_srq(srq, &attributes))
}

fn set_limit(world: &mut World, srq: SrqHandle, limit: u32) {
    modify(world, srq, SrqAttributes { limit: Some(limit), ..Default::default() }).unwrap();
}

fn events(world: &World, event: AsyncEvent) -> usize {
    world.hosts[1].events.iter().filter(|it| **it == event).count()
}

const SERVICES: [Service; 4] = [Service::Rc, Service::Rc, Service::Ud, Service::Ud];

#[derive(Clone, Debug)]
enum Step {
    Receives(u64),
    /// SENDs of these lengths, each by the queue pair of that number.
    Sends(Vec<(usize, usize)>),
    Limit(u32),
    Resize(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..6u64).prop_map(Step::Receives),
        4 => prop::collection::vec((0..SERVICES.len(), 0..600usize), 1..6).prop_map(Step::Sends),
        2 => (0..12u32).prop_map(Step::Limit),
        1 => (0..20u32).prop_map(Step::Resize),
    ]
}

#[test]
fn queue_pairs_take_from_a_shared_queue_as_the_naive_model_says() {
    for_each_case(1500, prop::collection::vec(step(), 1..25), |steps| {
        let mut max_wr = 16;
        let (mut world, srq, region) = world_with_srq(max_wr);
        let pairs = SERVICES.map(|service| connect(&mut world, service, srq));
        let (mut posted, mut sent, mut limit, mut reached) = (0u64, vec![vec![]; 4], 0, 0);
        for step in steps {
            match step {
                Step::Receives(count) => {
                    for _ in 0..count {
                        let is_full = info(&world, srq).posted >= max_wr;
                        let done = try_post(&mut world, srq, posted, region);
                        assert_eq!(done.is_err(), is_full);
                        posted += u64::from(!is_full);
                    }
                }
                Step::Sends(sends) => {
                    for (qp, len) in sends {
                        let len = if SERVICES[qp] == Service::Ud { len.min(256) } else { len };
                        send(&mut world, pairs[qp], SERVICES[qp], sent[qp].len() as u64, len);
                        sent[qp].push(len as u32);
                    }
                }
                Step::Limit(asked) if asked <= max_wr => {
                    set_limit(&mut world, srq, asked);
                    limit = asked;
                }
                Step::Limit(_) => {}
                Step::Resize(asked) => {
                    let attributes = SrqAttributes { max_wr: Some(asked), ..Default::default() };
                    let is_enough = asked >= info(&world, srq).posted;
                    assert_eq!(modify(&mut world, srq, attributes).is_ok(), is_enough);
                    max_wr = if is_enough { asked } else { max_wr };
                }
            }
            world.run_for(Duration::from_micros(200));
            // Receives are taken in the order in which they were posted, each once.
            let mut taken: Vec<_> = pairs.iter().flat_map(|it| it[1].received(&world)).collect();
            taken.sort_by_key(|it| it.wr_id);
            let left = info(&world, srq).posted;
            assert_eq!(taken.len() as u64 + u64::from(left), posted, "{}", world.report());
            assert!(taken.iter().enumerate().all(|(i, it)| it.wr_id == i as u64));
            assert!(taken.iter().all(|it| it.status == CompletionStatus::Success));
            if left < limit {
                (limit, reached) = (0, reached + 1);
            }
            assert_eq!(info(&world, srq).limit, limit);
            assert_eq!(events(&world, AsyncEvent::SrqLimitReached { srq }), reached);
            // Every queue pair gets its own messages, in order.
            let mut dropped = 0;
            for (qp, sent) in sent.iter().enumerate() {
                let received: Vec<_> =
                    pairs[qp][1].received(&world).iter().map(|it| it.byte_len).collect();
                if SERVICES[qp] == Service::Rc {
                    assert_eq!(received, sent[..received.len()]);
                    assert!(left == 0 || received.len() == sent.len(), "{}", world.report());
                } else {
                    dropped += sent.len() - received.len();
                    let mut all = sent.iter().map(|it| it + 40);
                    assert!(received.iter().all(|it| all.any(|sent| sent == *it)));
                }
            }
            assert_eq!(world.counter(1, "out_of_buffer"), dropped as u64);
        }
        world.assert_guards_untouched();
    });
}

//= test srq-limit
#[test]
fn the_limit_is_reached_once_after_it_was_armed() {
    let (mut world, srq, region) = world_with_srq(8);
    let ends = connect(&mut world, Service::Ud, srq);
    (0..4).for_each(|id| try_post(&mut world, srq, id, region).unwrap());
    let reached = AsyncEvent::SrqLimitReached { srq };
    set_limit(&mut world, srq, 3);
    for (id, expected) in [0, 1, 1].into_iter().enumerate() {
        send(&mut world, ends, Service::Ud, id as u64, 8);
        world.settle();
        assert_eq!(events(&world, reached), expected, "after {id}");
    }
    assert_eq!((info(&world, srq).limit, info(&world, srq).posted), (0, 1));
    set_limit(&mut world, srq, 2);
    assert_eq!(events(&world, reached), 2, "it is below already");
    set_limit(&mut world, srq, 1);
    set_limit(&mut world, srq, 0);
    send(&mut world, ends, Service::Ud, 9, 8);
    world.settle();
    assert_eq!(events(&world, reached), 2, "it was disarmed");
}

//= test srq-modify
#[test]
fn values_that_a_shared_queue_cannot_have_are_refused() {
    let (mut world, srq, region) = world_with_srq(4);
    (0..3).for_each(|id| try_post(&mut world, srq, id, region).unwrap());
    let resized = |max_wr| SrqAttributes { max_wr: Some(max_wr), ..Default::default() };
    let refused = modify(&mut world, srq, resized(2));
    assert_eq!(refused, Err(ModifySrqError::TooSmall { asked: 2, posted: 3 }));
    let refused = modify(&mut world, srq, SrqAttributes { limit: Some(4), ..resized(3) });
    assert_eq!(refused, Err(ModifySrqError::LimitTooLarge { asked: 4, max_wr: 3 }));
    assert_eq!(info(&world, srq).init.max_wr, 4, "as it was");
    modify(&mut world, srq, resized(3)).unwrap();
    let full = PostError::ReceiveQueueFull { capacity: 3 };
    assert_eq!(try_post(&mut world, srq, 3, region), Err(full));
}

//= test srq-last-wqe
#[test]
fn the_event_of_the_last_receive_is_raised_once_and_the_queue_stays_as_it_was() {
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        let (mut world, srq, region) = world_with_srq(4);
        let (ends, others) = (connect(&mut world, service, srq), connect(&mut world, service, srq));
        (0..3).for_each(|id| try_post(&mut world, srq, id, region).unwrap());
        let last = AsyncEvent::LastWqeReached { qpn: ends[1].qpn };
        for _ in 0..2 {
            ends[1].move_to(&mut world, QpState::Error);
            assert_eq!(events(&world, last), 1, "{service:?}");
        }
        assert_eq!((ends[1].received(&world), info(&world, srq).posted), (vec![], 3));
        send(&mut world, others, service, 0, 8);
        world.settle();
        assert_eq!(others[1].received(&world).len(), 1);
        ends[1].move_to(&mut world, QpState::Reset);
        ends[1].move_to(&mut world, QpState::Error);
        assert_eq!(events(&world, last), 2, "a new life");
    }
}

#[test]
fn a_queue_pair_that_fails_in_a_message_flushes_the_receive_it_holds_and_no_other() {
    for (service, code) in
        [(Service::Rc, opcode::RC_SEND_FIRST), (Service::Uc, opcode::UC_SEND_FIRST)]
    {
        let (mut world, srq, region) = world_with_srq(4);
        let (ends, others) = (connect(&mut world, service, srq), connect(&mut world, service, srq));
        (0..3).for_each(|id| try_post(&mut world, srq, id, region).unwrap());
        let first = Psn::new(FIRST_PSN).unwrap();
        let packet = forge::packet(&forge::headers(code, ends[1].qpn, first), &[1; 256]);
        world.forge(0, 1, &packet);
        assert_eq!(info(&world, srq).posted, 2, "{service:?} holds one");
        ends[1].move_to(&mut world, QpState::Error);
        let flushed: Vec<_> =
            ends[1].received(&world).iter().map(|it| (it.wr_id, it.status)).collect();
        assert_eq!(flushed, [(0, CompletionStatus::WorkRequestFlushed)]);
        send(&mut world, others, service, 0, 8);
        world.settle();
        assert_eq!(others[1].received(&world)[0].wr_id, 1);
    }
}

#[test]
fn an_empty_shared_queue_makes_a_reliable_sender_wait() {
    let (mut world, srq, region) = world_with_srq(4);
    let ends = connect(&mut world, Service::Rc, srq);
    send(&mut world, ends, Service::Rc, 0, 600);
    world.run_for(Duration::from_micros(500));
    assert!(world.counter(1, "send_rnr_err") > 1, "{}", world.report());
    try_post(&mut world, srq, 5, region).unwrap();
    world.settle();
    assert_eq!((ends[1].received(&world)[0].wr_id, ends[0].sent(&world).len()), (5, 1));
}

#[test]
fn a_shared_queue_outlives_its_queue_pairs_in_whatever_order_they_go() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
        let (mut world, srq, region) = world_with_srq(4);
        let services = [Service::Rc, Service::Uc, Service::Ud];
        let pairs = services.map(|service| connect(&mut world, service, srq));
        try_post(&mut world, srq, 0, region).unwrap();
        for (gone, index) in order.into_iter().enumerate() {
            let users = 3 - gone as u32;
            let endpoint = &mut world.hosts[1].endpoint;
            assert_eq!(endpoint.destroy_srq(srq), Err(ApiMisuse::SrqInUse { srq, users }));
            assert!(endpoint.destroy_qp(pairs[index][1].qpn));
            assert!(!endpoint.destroy_qp(pairs[index][1].qpn), "and only once");
        }
        let endpoint = &mut world.hosts[1].endpoint;
        assert_eq!(endpoint.destroy_srq(srq), Ok(()));
        assert_eq!(endpoint.destroy_srq(srq), Err(ApiMisuse::UnknownSrq(srq)));
        assert_eq!(try_post(&mut world, srq, 1, region), Err(PostError::UnknownSrq(srq)));
        // The next queue has nothing of the one before, whatever its handle.
        let init = SrqInit { pd: PD, max_wr: 9, max_sge: 1 };
        let next = world.hosts[1].endpoint.create_srq(init).unwrap();
        assert_eq!(info(&world, next), SrqInfo { init, limit: 0, posted: 0, users: 0 });
    }
}

#[test]
fn a_thousand_queue_pairs_take_from_one_queue() {
    let (mut world, srq, region) = world_with_srq(2000);
    let services = [Service::Rc, Service::Ud];
    let pairs: Vec<_> = (0..1000).map(|i| connect(&mut world, services[i % 2], srq)).collect();
    (0..2000).for_each(|id| try_post(&mut world, srq, id, region).unwrap());
    for round in 0..2 {
        for (i, ends) in pairs.iter().enumerate() {
            send(&mut world, *ends, services[i % 2], round, i % 256);
        }
    }
    world.settle();
    let mut taken: Vec<u64> = world.hosts[1].completions.iter().map(|(_, it)| it.wr_id).collect();
    taken.sort_unstable();
    assert!(taken.into_iter().eq(0..2000), "each receive once");
    assert_eq!((info(&world, srq).posted, info(&world, srq).users), (0, 1000));
    assert!(pairs.iter().all(|ends| ends[0].sent(&world).len() == 2));
    assert!(
        world.hosts[1].completions.iter().all(|(_, it)| it.status == CompletionStatus::Success)
    );
}
