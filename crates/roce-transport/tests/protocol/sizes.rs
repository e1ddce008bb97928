//! Every path MTU, the sizes around its multiples, and lists of scattered pieces.

use roce_transport::{RecvWr, SendOperation, SendWr, SgList, WrData};
use roce_wire::PathMtu;

use crate::common::connection::{DEFAULT, Options, PD, connect};
use crate::common::exchange::{Exchange, Kind, sge, work};
use crate::common::world::{World, WorldConfig, test_config};
use roce_simnet::Rights;

#[test]
fn every_size_around_a_multiple_of_every_path_mtu_arrives() {
    for path_mtu in PathMtu::ALL {
        let mtu = path_mtu.bytes();
        for kind in Kind::ALL {
            for len in [0, 1, 2, 3, 4, mtu - 1, mtu, mtu + 1, 2 * mtu, 5 * mtu + 3, 70_000] {
                let mut world = World::pair();
                let options = Options { path_mtu, ..DEFAULT };
                let ends = connect(&mut world, [0, 1], options);
                let exchange = Exchange::post(&mut world, ends, kind, len, 2);
                world.run_until(|world| exchange.is_done(world));
                exchange.check(&world);
            }
        }
    }
}

#[test]
fn ipv6_carries_every_operation_too() {
    for kind in Kind::ALL {
        let mut world = World::new(2, WorldConfig { ipv6: true, ..test_config() });
        let ends = connect(&mut world, [0, 1], DEFAULT);
        let exchange = Exchange::post(&mut world, ends, kind, 1000, 3);
        world.run_until(|world| exchange.is_done(world));
        exchange.check(&world);
    }
}

#[test]
fn a_queue_pair_connected_to_itself_carries_every_operation() {
    // Both ends of the connection are one queue pair: what it sends it receives.
    for kind in Kind::ALL {
        let mut world = World::new(1, test_config());
        let end = crate::common::connection::connect_to_itself(&mut world, DEFAULT);
        let exchange = Exchange::post(&mut world, [end, end], kind, 1000, 3);
        world.run_until(|world| exchange.is_done(world));
        exchange.check(&world);
    }
}

#[test]
fn three_nodes_talk_in_a_ring_without_disturbing_each_other() {
    let mut world = World::new(3, test_config());
    let mut exchanges = vec![];
    for (i, kind) in [Kind::Send, Kind::Write, Kind::Read].into_iter().enumerate() {
        let ends = connect(&mut world, [i, (i + 1) % 3], DEFAULT);
        exchanges.push(Exchange::post(&mut world, ends, kind, 5000, 4));
    }
    world.run_until(|world| exchanges.iter().all(|exchange| exchange.is_done(world)));
    exchanges.iter().for_each(|exchange| exchange.check(&world));
}

/// Lengths of `count` pieces that together make `total`, all different where that is possible.
fn pieces(total: usize, count: usize) -> Vec<usize> {
    let mut left = total;
    let mut pieces: Vec<_> = (0..count - 1)
        .map(|i| {
            let piece = (total / count + i * 5 % 7).saturating_sub(3).min(left);
            left -= piece;
            piece
        })
        .collect();
    pieces.push(left);
    pieces
}

#[test]
fn a_message_of_32_pieces_lands_in_32_other_pieces() {
    for total in [32, 255, 256, 257, 4000] {
        let mut world = World::pair();
        let ends = connect(&mut world, [0, 1], DEFAULT);
        let source = world.hosts[0].memory.register_filled(PD, 2 * total + 200, Rights::ALL, 3);
        let target = world.hosts[1].memory.register_filled(PD, 3 * total + 500, Rights::ALL, 9);
        // Pieces with gaps between them, the other end's cut elsewhere.
        let spread = |region, lens: &[usize], gap: usize| -> SgList {
            let mut at = gap;
            let list: Vec<_> = lens
                .iter()
                .map(|len| {
                    at += len + gap;
                    sge(region, at - len - gap, *len)
                })
                .collect();
            SgList::from(list.as_slice())
        };
        let (cut, other_cut) = (pieces(total, 32), pieces(total, 31));
        let gather = spread(source, &cut, 5);
        let mut scatter_lens = other_cut.clone();
        scatter_lens.push(0); // an empty piece at the end is no obstacle
        let recv = RecvWr { wr_id: 7, sg_list: spread(target, &scatter_lens, 11) };
        world.with(1, |node, now| node.endpoint.post_recv(now, ends[1].qpn, recv)).unwrap();
        let send = SendWr {
            data: WrData::Sges(gather),
            ..work(SendOperation::Send { immediate: None, invalidate: None })
        };
        world.with(0, |node, now| node.endpoint.post_send(now, ends[0].qpn, send)).unwrap();
        world.settle();
        let collect = |bytes: &[u8], lens: &[usize], gap: usize| -> Vec<u8> {
            let mut at = gap;
            let mut whole = vec![];
            for len in lens {
                whole.extend_from_slice(&bytes[at..at + len]);
                at += len + gap;
            }
            whole
        };
        let sent = collect(world.hosts[0].memory.bytes(source), &cut, 5);
        let received = collect(world.hosts[1].memory.bytes(target), &other_cut, 11);
        assert_eq!(sent.len(), total);
        assert!(sent == received, "{total} bytes\n{}", world.report());
        assert_eq!(world.hosts[1].memory.bytes_written(), total as u64, "and nothing between them");
        assert_eq!(world.hosts[1].completions[0].1.byte_len as usize, total);
    }
}

#[test]
fn inline_data_is_taken_when_it_is_posted() {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let target = world.hosts[1].memory.register_filled(PD, 300, Rights::ALL, 9);
    let recv = RecvWr { wr_id: 7, sg_list: SgList::from(sge(target, 0, 300)) };
    world.with(1, |node, now| node.endpoint.post_recv(now, ends[1].qpn, recv)).unwrap();
    let mut bytes: Vec<u8> = (0..=255).collect();
    let send = SendWr {
        data: WrData::Inline(bytes.clone().into()),
        ..work(SendOperation::Send { immediate: None, invalidate: None })
    };
    let now = world.now();
    world.hosts[0].endpoint.post_send(now, ends[0].qpn, send).unwrap();
    bytes.reverse();
    world.with(0, |_, _| ());
    world.settle();
    bytes.reverse();
    assert_eq!(&world.hosts[1].memory.bytes(target)[..256], bytes);
}
