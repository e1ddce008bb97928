//! An application that calls anything at any time: refused or done, never a panic.

use proptest::prelude::*;
use roce_fabric::{Impairment, ImpairmentRates};
use roce_transport::{AckTimeout, QpAttributes, QpState, RecvWr};
use roce_wire::{PathMtu, Psn, RnrTimer, Service};

use crate::common::connection::{
    DEFAULT, End, Options, PD, RECV_CQ, connect, create, of_service, timeout,
};
use crate::common::exchange::{Kind, request, sge};
use crate::common::repeat::for_each_case;
use crate::common::world::World;
use roce_simnet::Rights;

#[derive(Clone, Debug)]
enum Call {
    PostSend {
        kind: Kind,
        len: usize,
        good_key: bool,
    },
    PostRecv {
        len: usize,
    },
    /// To any state, with the attributes whose bits are set.
    Modify {
        state: QpState,
        with: u32,
    },
    Destroy,
    Create,
    Overflow,
    Deregister,
    Timeout,
    Step,
}

fn call() -> impl Strategy<Value = (usize, Call)> {
    let kind = prop::sample::select(&Kind::ALL[..]);
    let state = prop::sample::select(&QpState::ALL[..]);
    let call = prop_oneof![
        8 => (kind, 0..2000usize, prop::bool::weighted(0.9))
            .prop_map(|(kind, len, good_key)| Call::PostSend { kind, len, good_key }),
        4 => (0..2000usize).prop_map(|len| Call::PostRecv { len }),
        3 => (state, any::<u32>()).prop_map(|(state, with)| Call::Modify { state, with }),
        3 => (prop::sample::select(&QpState::ALL[..]), Just(0))
            .prop_map(|(state, with)| Call::Modify { state, with }),
        1 => Just(Call::Destroy),
        1 => Just(Call::Create),
        1 => Just(Call::Overflow),
        1 => Just(Call::Deregister),
        2 => Just(Call::Timeout),
        12 => Just(Call::Step),
    ];
    (0..2usize, call)
}

fn attributes(world: &World, end: End, peer: End, state: QpState, with: u32) -> QpAttributes {
    let bit = |index: u32| with >> index & 1 == 1;
    let path = peer.destination(world, end, &DEFAULT).path;
    QpAttributes {
        state: Some(state),
        current_state: bit(0).then_some(QpState::ReadyToSend),
        access: bit(1).then_some(roce_transport::AccessFlags::ALL),
        pkey_index: bit(2).then_some(0),
        port: bit(3).then_some(1),
        path: bit(4).then_some(path),
        path_mtu: bit(5).then_some(PathMtu::B512),
        dest_qpn: bit(6).then_some(peer.qpn),
        rq_psn: bit(7).then_some(Psn::wrapping(with >> 8)),
        sq_psn: bit(8).then_some(Psn::wrapping(with >> 7)),
        max_rd_atomic: bit(9).then_some((with >> 24) as u8),
        max_dest_rd_atomic: bit(10).then_some((with >> 23) as u8),
        min_rnr_timer: RnrTimer::new((with >> 11 & 0x1f) as u8).filter(|_| bit(16)),
        ack_timeout: AckTimeout::new((with >> 12 & 0xf) as u8).filter(|_| bit(17)),
        retry_count: bit(18).then_some((with >> 13 & 0xf) as u8),
        rnr_retry: bit(19).then_some((with >> 14 & 0xf) as u8),
        sqd_notify: bit(20).then_some(bit(21)),
        q_key: bit(22).then_some(with),
        gap_reports: bit(23).then_some(bit(24)),
    }
}

#[test]
fn no_sequence_of_calls_panics_or_leaves_a_request_without_an_end() {
    let services = [Service::Rc, Service::Rc, Service::Uc, Service::Ud];
    let service = prop::sample::select(services.to_vec());
    let strategy = (any::<u64>(), service, prop::collection::vec(call(), 1..60));
    for_each_case(5000, strategy, |(seed, service, calls)| {
        let mut world = World::pair();
        let options = Options {
            retry_count: 2,
            rnr_retry: 2,
            ack_timeout: timeout(4),
            ..of_service(service)
        };
        let ends = connect(&mut world, [0, 1], options);
        let lossy = ImpairmentRates { drop: 0.05, duplicate: 0.05, ..ImpairmentRates::default() };
        world.set_impairment(0, Impairment::random(seed, lossy));
        let regions = [0, 1]
            .map(|node: usize| world.hosts[node].memory.register_filled(PD, 2000, Rights::ALL, 9));
        // Work taken since the queue pair was last made or reset: it must end.
        let mut taken = [vec![], vec![]];
        for (id, (side, call)) in calls.into_iter().enumerate() {
            let (end, peer, id) = (ends[side], ends[1 - side], id as u64);
            match call {
                Call::PostSend { kind, len, good_key } => {
                    let mut remote = regions[1 - side];
                    remote.key ^= u32::from(!good_key);
                    let len = if kind.is_atomic() { 8 } else { len };
                    let mut work = request(kind, remote, sge(regions[side], 0, len));
                    work.wr_id = id;
                    if end.try_post_to_peer(&mut world, work, peer, &options).is_ok() {
                        taken[side].push(id);
                    }
                }
                Call::PostRecv { len } => {
                    let work = RecvWr { wr_id: id, sg_list: sge(regions[side], 0, len).into() };
                    let posted =
                        world.with(side, |node, now| node.endpoint.post_recv(now, end.qpn, work));
                    if posted.is_ok() {
                        taken[side].push(id);
                    }
                }
                Call::Modify { state, with } => {
                    let attributes = attributes(&world, end, peer, state, with);
                    if end.modify(&mut world, &attributes).is_ok() && state == QpState::Reset {
                        taken[side].clear();
                    }
                }
                Call::Destroy => {
                    world.with(side, |node, _| node.endpoint.destroy_qp(end.qpn));
                    taken[side].clear();
                }
                Call::Create => {
                    if world.hosts[side].endpoint.query_qp(end.qpn).is_none() {
                        create(&mut world, side, end.qpn, &options);
                    }
                }
                Call::Overflow => {
                    world.with(side, |node, now| node.endpoint.handle_cq_overflow(now, RECV_CQ));
                }
                Call::Deregister => world.hosts[side].memory.deregister(regions[side]),
                Call::Timeout => world.with(side, |node, now| node.endpoint.handle_timeout(now)),
                Call::Step => {
                    world.step();
                }
            }
        }
        world.settle();
        // The end: whatever is still queued is flushed, and everything has ended exactly once.
        for (side, end) in ends.into_iter().enumerate() {
            if world.hosts[side].endpoint.query_qp(end.qpn).is_some() {
                end.move_to(&mut world, QpState::Error);
            }
            for id in &taken[side] {
                let ended = world.hosts[side].completions.iter();
                let ended = ended.filter(|(_, completion)| completion.wr_id == *id).count();
                assert_eq!(ended, 1, "request {id} of side {side}\n{}", world.report());
            }
        }
        world.assert_guards_untouched();
    });
}
