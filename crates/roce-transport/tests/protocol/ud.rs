//! Datagrams: Q_Keys, lengths, receives, memory, and what ends a queue pair or does not.

use roce_simnet::Rights;
use roce_transport::{
    AccessFlags, Completion, CompletionStatus, Destination, PostError, QpAttributes, QpState,
    SendOperation, SendWr, WrData,
};
use roce_wire::{Deth, GRH_LEN, GSI_Q_KEY, PathMtu, Psn, Qpn, Service, opcode};

use crate::common::connection::{
    End, Options, PD, RECV_CQ, connect, connect_to_itself, of_service,
};
use crate::common::exchange::{Kind, request, sge, work};
use crate::common::forge;
use crate::common::messages::assert_grh;
use crate::common::world::{World, WorldConfig, test_config};

const UD: Options = of_service(Service::Ud);

/// Two queue pairs of datagrams, and where the second is reached by the first.
fn pair(options: Options) -> (World, [End; 2], Destination) {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], options);
    let to = ends[1].destination(&world, ends[0], &options);
    (world, ends, to)
}

fn inline(wr_id: u64, bytes: &[u8]) -> SendWr {
    SendWr { wr_id, data: WrData::Inline(bytes.into()), ..work(SendOperation::send()) }
}

/// Posts so many receives, each of `len` bytes with the GRH.
fn post_receives(world: &mut World, end: End, count: u64, len: usize) {
    let region = world.hosts[end.node].memory.register(len, Rights::ALL);
    for wr_id in 0..count {
        end.post_recv(world, wr_id, &[sge(region, 0, len)]);
    }
}

fn statuses(completions: &[Completion]) -> Vec<(u64, CompletionStatus)> {
    completions.iter().map(|it| (it.wr_id, it.status)).collect()
}

//= test ud-length
#[test]
fn a_datagram_may_be_as_long_as_the_mtu_of_its_path_and_no_longer() {
    for mtu in [PathMtu::B256, PathMtu::B1024, PathMtu::B4096] {
        let options = Options { path_mtu: mtu, ..UD };
        let (mut world, ends, to) = pair(options);
        let len = mtu.bytes();
        let source = world.hosts[0].memory.register_filled(PD, len + 1, Rights::ALL, 3);
        let target = world.hosts[1].memory.register(GRH_LEN + len, Rights::ALL);
        let datagram = |len| request(Kind::Send, target, sge(source, 0, len));
        let refused = ends[0].try_post_send_to(&mut world, datagram(len + 1), to);
        assert_eq!(refused, Err(PostError::DatagramTooLong { len: len as u64 + 1, mtu: len }));
        for (number, len) in [len, len - 1, 257.min(len)].into_iter().enumerate() {
            ends[1].post_recv(&mut world, 0, &[sge(target, 0, GRH_LEN + len)]);
            ends[0].try_post_send_to(&mut world, datagram(len), to).unwrap();
            world.settle();
            let received = ends[1].received(&world)[number];
            assert_eq!(received.status, CompletionStatus::Success);
            assert_eq!(received.byte_len as usize, GRH_LEN + len);
            let bytes = &world.hosts[1].memory.bytes(target)[GRH_LEN..][..len];
            assert_eq!(bytes, &world.hosts[0].memory.bytes(source)[..len]);
            let info = world.hosts[0].endpoint.query_qp(ends[0].qpn).unwrap();
            assert_eq!((ends[0].sent(&world).len(), info.sends_outstanding), (number + 1, 0));
            assert_eq!(ends[0].counter(&world, "unsent_dropped"), 0, "it ended since it was sent");
        }
    }
}

//= test ud-psn
#[test]
fn each_datagram_uses_one_psn() {
    let options = Options { path_mtu: PathMtu::B1024, ..UD };
    let (mut world, ends, to) = pair(options);
    world.keep_timeline(true);
    let source = world.hosts[0].memory.register(1024, Rights::ALL);
    for len in [1024, 0, 300, 1000] {
        let datagram = request(Kind::Send, source, sge(source, 0, len));
        ends[0].try_post_send_to(&mut world, datagram, to).unwrap();
    }
    let psns: Vec<_> = world.sent(0).iter().map(|it| it.headers().bth.psn.get()).collect();
    assert_eq!(psns, [0xff_fffe, 0xff_ffff, 0, 1]);
    let lengths = world.sent(0).into_iter().map(|it| it.packet.len() - it.headers().len());
    assert_eq!(lengths.collect::<Vec<_>>(), [1024, 0, 300, 1000]);
}

//= test ud-q-key
#[test]
fn only_the_queue_pairs_own_q_key_is_taken() {
    let (mut world, ends, to) = pair(UD);
    post_receives(&mut world, ends[1], 8, 100);
    for q_key in [0, UD.q_key ^ 1, UD.q_key ^ 1 << 30] {
        ends[0]
            .try_post_send_to(&mut world, inline(0, b"lie"), Destination { q_key, ..to })
            .unwrap();
    }
    world.settle();
    assert_eq!((ends[1].counter(&world, "bad_qkey"), ends[1].received(&world).len()), (3, 0));
    // Nothing on the wire has the top bit for a meaning.
    let mut headers = forge::headers(opcode::UD_SEND_ONLY, ends[1].qpn, Psn::ZERO);
    headers.deth = Some(Deth { q_key: UD.q_key | 1 << 31, source_qp: ends[0].qpn });
    world.forge(0, 1, &forge::packet(&headers, b"top"));
    assert_eq!(ends[1].counter(&world, "bad_qkey"), 4);
    headers.deth = Some(Deth { q_key: UD.q_key, source_qp: ends[0].qpn });
    world.forge(0, 1, &forge::packet(&headers, b"right"));
    assert_eq!(ends[1].received(&world).len(), 1);
}

//= test ud-own-q-key
#[test]
fn a_q_key_with_the_top_bit_stands_for_the_queue_pairs_own() {
    let (mut world, ends, to) = pair(UD);
    world.keep_timeline(true);
    post_receives(&mut world, ends[1], 2, 100);
    let own = Destination { q_key: 0x8000_0000, ..to };
    ends[0].try_post_send_to(&mut world, inline(0, b"own"), own).unwrap();
    world.settle();
    assert_eq!(world.sent(0)[0].headers().deth.unwrap().q_key, UD.q_key);
    assert_eq!(ends[1].received(&world).len(), 1);
    // The queue pair's own may be changed, and may have the bit itself.
    for end in ends {
        let q_key = Some(0x8123_4567);
        end.modify(&mut world, &QpAttributes { q_key, ..QpAttributes::default() }).unwrap();
    }
    ends[0].try_post_send_to(&mut world, inline(0, b"own"), own).unwrap();
    world.settle();
    assert_eq!(world.sent(0)[1].headers().deth.unwrap().q_key, 0x8123_4567);
    assert_eq!(ends[1].received(&world).len(), 2);
}

//= test ud-receive-length
#[test]
fn a_receive_that_is_too_short_fails_alone() {
    let (mut world, ends, to) = pair(UD);
    for (wr_id, len) in [(0, 0), (1, 39), (2, 40), (3, 44), (4, 45)] {
        let region = world.hosts[1].memory.register(len, Rights::ALL);
        ends[1].post_recv(&mut world, wr_id, &[sge(region, 0, len)]);
        ends[0].try_post_send_to(&mut world, inline(wr_id, b"12345"), to).unwrap();
    }
    world.settle();
    let short = CompletionStatus::LocalLengthError;
    let expected = [(0, short), (1, short), (2, short), (3, short), (4, CompletionStatus::Success)];
    assert_eq!(statuses(&ends[1].received(&world)), expected);
    assert_eq!(ends[1].state(&world), QpState::ReadyToSend);
    world.assert_guards_untouched();
}

//= test ud-no-receive
#[test]
fn a_datagram_without_a_receive_is_dropped_and_counted() {
    let (mut world, ends, to) = pair(UD);
    for wr_id in 0..5 {
        ends[0].try_post_send_to(&mut world, inline(wr_id, b"early"), to).unwrap();
    }
    world.settle();
    assert_eq!(ends[1].counter(&world, "out_of_buffer"), 5);
    post_receives(&mut world, ends[1], 1, 100);
    ends[0].try_post_send_to(&mut world, inline(5, b"in time"), to).unwrap();
    world.settle();
    assert_eq!(statuses(&ends[1].received(&world)), [(0, CompletionStatus::Success)]);
    assert_eq!(ends[0].sent(&world).len(), 6, "the sender is told nothing");
}

//= test qp-send-queue-error
#[test]
fn bad_local_memory_fails_its_request_flushes_the_others_and_sending_starts_again_by_modify() {
    for service in [Service::Ud, Service::Uc] {
        let options = of_service(service);
        let mut world = World::pair();
        let ends = connect(&mut world, [0, 1], options);
        post_receives(&mut world, ends[1], 3, 100);
        world.hosts[0].driver.full_until = world.now() + std::time::Duration::from_micros(5);
        let post = |world: &mut World, wr_id, lkey| {
            let mut datagram = inline(wr_id, b"good");
            if let Some(key) = lkey {
                let bad = roce_transport::Sge { lkey: key, addr: 0, len: 4 };
                datagram.data = WrData::Sges([bad].into());
            }
            ends[0].try_post_to_peer(world, datagram, ends[1], &options).unwrap();
        };
        for (wr_id, key) in [(0, None), (1, Some(0xbad)), (2, None), (3, Some(0xbad))] {
            post(&mut world, wr_id, key);
        }
        world.settle();
        let (good, bad, flushed) = (
            CompletionStatus::Success,
            CompletionStatus::LocalProtectionError,
            CompletionStatus::WorkRequestFlushed,
        );
        let expected = [(0, good), (1, bad), (2, flushed), (3, flushed)];
        assert_eq!(ends[0].outcomes(&world), expected, "{service:?}");
        assert_eq!(ends[0].state(&world), QpState::SendQueueError);
        // In SQE what is posted is flushed, and receiving goes on.
        post(&mut world, 4, None);
        assert_eq!(ends[0].outcomes(&world)[4], (4, flushed));
        post_receives(&mut world, ends[0], 1, 100);
        ends[1].try_post_to_peer(&mut world, inline(0, b"hello"), ends[0], &options).unwrap();
        world.settle();
        assert_eq!(statuses(&ends[0].received(&world)), [(0, good)]);
        ends[0].move_to(&mut world, QpState::ReadyToSend);
        post(&mut world, 5, None);
        world.settle();
        assert_eq!(ends[0].outcomes(&world)[5], (5, good));
        let received = statuses(&ends[1].received(&world));
        assert_eq!(received, [(0, good), (1, good)], "{service:?}\n{}", world.report());
    }
}

#[test]
fn a_receive_of_bad_memory_ends_the_queue_pair() {
    let (mut world, ends, to) = pair(UD);
    let region = world.hosts[1].memory.register(100, AccessFlags::empty());
    for wr_id in 0..3 {
        ends[1].post_recv(&mut world, wr_id, &[sge(region, 0, 100)]);
    }
    ends[0].try_post_send_to(&mut world, inline(0, b"hello"), to).unwrap();
    world.settle();
    let (bad, flushed) =
        (CompletionStatus::LocalProtectionError, CompletionStatus::WorkRequestFlushed);
    let expected = [(0, bad), (1, flushed), (2, flushed)];
    assert_eq!(statuses(&ends[1].received(&world)), expected);
    assert_eq!(ends[1].state(&world), QpState::Error);
}

#[test]
fn datagrams_to_many_places_leave_in_order_and_reach_each() {
    let mut world = World::new(4, test_config());
    let ends: Vec<End> = [[0, 1], [2, 3], [1, 2]]
        .into_iter()
        .flat_map(|nodes| connect(&mut world, nodes, UD))
        .collect();
    for end in &ends {
        post_receives(&mut world, *end, 64, 100);
    }
    for wr_id in 0..60u64 {
        let to = ends[1 + (wr_id * 7 % 5) as usize].destination(&world, ends[0], &UD);
        let datagram = inline(wr_id, &wr_id.to_be_bytes()[..wr_id as usize % 9]);
        ends[0].try_post_send_to(&mut world, datagram, to).unwrap();
    }
    world.settle();
    let sent: Vec<_> = ends[0].sent(&world).iter().map(|it| it.wr_id).collect();
    assert_eq!(sent, (0..60).collect::<Vec<_>>());
    for (i, end) in ends.iter().enumerate().skip(1) {
        let lengths: Vec<_> =
            end.received(&world).iter().map(|it| it.byte_len as u64 - 40).collect();
        let theirs = (0..60u64).filter(|it| 1 + it * 7 % 5 == i as u64);
        assert_eq!(lengths, theirs.map(|it| it % 9).collect::<Vec<_>>());
    }
}

//= test wire-network-header
#[test]
fn a_queue_pair_sends_datagrams_to_itself() {
    for ipv6 in [false, true] {
        let mut world = World::new(1, WorldConfig { ipv6, ..test_config() });
        let end = connect_to_itself(&mut world, UD);
        let region = world.hosts[0].memory.register(100, Rights::ALL);
        end.post_recv(&mut world, 9, &[sge(region, 0, 100)]);
        let to = end.destination(&world, end, &UD);
        end.try_post_send_to(&mut world, inline(1, b"me"), to).unwrap();
        world.settle();
        let received = end.received(&world);
        assert_eq!((received.len(), received[0].source_qpn), (1, Some(end.qpn)));
        assert_eq!(received[0].is_over_ipv6, ipv6);
        let bytes = world.hosts[0].memory.bytes(region);
        assert_eq!(&bytes[40..42], b"me");
        assert_grh(&world, [end, end], &bytes[..40], opcode::UD_SEND_ONLY, 2);
    }
}

//= test wire-qpn-gsi
//= test ud-length
//= test ud-q-key-gsi
#[test]
fn the_management_queue_pair_has_a_q_key_of_its_own_and_takes_short_messages_only() {
    let (mut world, ends, _) = pair(UD);
    let gsi = End { node: 0, qpn: Qpn::GSI };
    crate::common::connection::create(&mut world, 0, Qpn::GSI, &UD);
    ends[1].move_to(&mut world, QpState::Reset);
    crate::common::connection::reconnect(&mut world, [gsi, ends[1]], UD);
    world.keep_timeline(true);
    let options = Options { path_mtu: PathMtu::B1024, ..UD };
    let to = ends[1].destination(&world, gsi, &options);
    let source = world.hosts[0].memory.register(300, Rights::ALL);
    let datagram = |len| request(Kind::Send, source, sge(source, 0, len));
    let refused = gsi.try_post_send_to(&mut world, datagram(257), to);
    assert_eq!(refused, Err(PostError::DatagramTooLong { len: 257, mtu: 256 }));
    gsi.try_post_send_to(&mut world, datagram(256), to).unwrap();
    assert_eq!(world.sent(0)[0].headers().deth.unwrap().q_key, GSI_Q_KEY);
    post_receives(&mut world, gsi, 2, 300);
    let back = Destination { q_key: UD.q_key, ..gsi.destination(&world, ends[1], &UD) };
    ends[1].try_post_send_to(&mut world, inline(0, b"key"), back).unwrap();
    world.settle();
    assert_eq!(gsi.counter(&world, "bad_qkey"), 1);
    let forged = {
        let mut headers = forge::headers(opcode::UD_SEND_ONLY, Qpn::GSI, Psn::ZERO);
        headers.deth = Some(Deth { q_key: GSI_Q_KEY, source_qp: Qpn::GSI });
        forge::packet(&headers, &[0; 256])
    };
    world.forge(1, 0, &forged);
    assert_eq!(gsi.received(&world).len(), 1);
}

//= test qp-operations-of-service
#[test]
fn requests_that_datagrams_do_not_have_are_refused() {
    let (mut world, ends, to) = pair(UD);
    let region = world.hosts[0].memory.register(300, Rights::ALL);
    for kind in Kind::ALL {
        let posted =
            ends[0].try_post_send_to(&mut world, request(kind, region, sge(region, 0, 8)), to);
        match kind {
            Kind::Send | Kind::SendImmediate => assert_eq!(posted, Ok(())),
            _ => assert!(matches!(posted, Err(PostError::NotOfService { .. })), "{posted:?}"),
        }
    }
    let refused = ends[0].try_post_send(&mut world, inline(0, b""));
    assert_eq!(refused, Err(PostError::NoDestination));
    for service in [Service::Rc, Service::Uc] {
        let mut world = World::pair();
        let ends = connect(&mut world, [0, 1], of_service(service));
        let refused = ends[0].try_post_send_to(&mut world, inline(0, b""), to);
        assert_eq!(refused, Err(PostError::UnexpectedDestination(service)));
    }
}

#[test]
fn an_overflow_of_the_completion_queue_flushes_requests_and_destinations() {
    let (mut world, ends, to) = pair(UD);
    post_receives(&mut world, ends[0], 2, 100);
    world.hosts[0].driver.full_until = world.now() + std::time::Duration::from_secs(9);
    for wr_id in 0..3 {
        ends[0].try_post_send_to(&mut world, inline(wr_id, b"late"), to).unwrap();
    }
    world.with(0, |node, now| node.endpoint.handle_cq_overflow(now, RECV_CQ));
    let flushed = CompletionStatus::WorkRequestFlushed;
    assert_eq!(ends[0].outcomes(&world), [(0, flushed), (1, flushed), (2, flushed)]);
    assert_eq!(statuses(&ends[0].received(&world)), [(0, flushed), (1, flushed)]);
    ends[0].try_post_send_to(&mut world, inline(3, b"later"), to).unwrap();
    assert_eq!(ends[0].outcomes(&world)[3], (3, flushed));
    world.settle();
    assert_eq!(ends[1].counter(&world, "out_of_buffer"), 0, "nothing left");
}
