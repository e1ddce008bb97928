//! The longest messages, over memory that exists only as a rule.

use roce_transport::{CompletionStatus, RemoteAddr, SendOperation, SendWr, SgList, Sge, WrData};
use roce_wire::PathMtu;

use crate::common::connection::{End, Options, PD, connect};
use crate::common::exchange::{Kind, work};
use crate::common::world::World;
use roce_simnet::{Region, Rights};

const MAX_LEN: u64 = 1 << 31;

fn world(path_mtu: PathMtu, len: u64) -> (World, [End; 2], Region, Region) {
    let mut world = World::pair();
    let options = Options { path_mtu, ack_timeout: 14, ..Options::default() };
    let ends = connect(&mut world, [0, 1], options);
    let local = world.nodes[0].memory.register_synthetic(PD, len, Rights::ALL, 42);
    let remote = world.nodes[1].memory.register_synthetic(PD, len, Rights::ALL, 42);
    (world, ends, local, remote)
}

fn whole(region: Region) -> Sge {
    Sge { lkey: region.key, addr: region.address, len: region.len as u32 }
}

fn carry(kind: Kind, len: u64) {
    let (mut world, ends, local, remote) = world(PathMtu::B4096, len);
    let there = RemoteAddr { addr: remote.address, rkey: remote.key };
    let operation = match kind {
        Kind::Send => SendOperation::Send { immediate: None, invalidate: None },
        Kind::Write => SendOperation::Write { remote: there, immediate: None },
        _ => SendOperation::Read { remote: there },
    };
    ends[1].post_recv(&mut world, 1, &[whole(remote)]);
    let gather = SgList::from(whole(local));
    ends[0].post_send(&mut world, SendWr { data: WrData::Sges(gather), ..work(operation) });
    world.run_until(|world| !world.nodes[0].completions.is_empty());
    assert_eq!(ends[0].outcomes(&world), [(0, CompletionStatus::Success)]);
    let (node, region) = if kind == Kind::Read { (0, local) } else { (1, remote) };
    assert_eq!(world.nodes[node].memory.synthetic_cursor(region), len);
    if kind == Kind::Send {
        assert_eq!(u64::from(ends[1].received(&world)[0].byte_len), len);
    }
    if kind == Kind::Read {
        assert_eq!(u64::from(ends[0].sent(&world)[0].byte_len), len);
    }
}

#[test]
fn a_send_of_two_gibibytes_arrives() {
    carry(Kind::Send, MAX_LEN);
}

#[test]
fn a_write_of_two_gibibytes_arrives() {
    carry(Kind::Write, MAX_LEN);
}

#[test]
fn a_read_of_two_gibibytes_arrives() {
    carry(Kind::Read, MAX_LEN);
}

#[test]
fn a_message_of_more_than_two_gibibytes_is_refused_when_it_is_posted() {
    let (mut world, ends, local, _) = world(PathMtu::B4096, MAX_LEN + 1);
    let halves = [
        Sge { len: 1 << 31, ..whole(local) },
        Sge { len: 1, addr: local.address + (1 << 31), ..whole(local) },
    ];
    let gather = SgList::from(halves.as_slice());
    let operation = SendOperation::Send { immediate: None, invalidate: None };
    let send = SendWr { data: WrData::Sges(gather), ..work(operation) };
    assert!(ends[0].try_post_send(&mut world, send).is_err());
}

#[test]
fn a_read_of_more_packets_than_half_the_psn_circle_is_refused_when_it_is_posted() {
    let (mut world, ends, local, remote) = world(PathMtu::B256, MAX_LEN);
    let there = RemoteAddr { addr: remote.address, rkey: remote.key };
    let mut read = |len: u32| {
        let gather = SgList::from(Sge { len, ..whole(local) });
        let read =
            SendWr { data: WrData::Sges(gather), ..work(SendOperation::Read { remote: there }) };
        let now = world.now();
        world.nodes[0].endpoint.post_send(now, ends[0].qpn, read)
    };
    let most = ((1 << 23) - 1) * 256;
    assert!(read(most + 1).is_err());
    assert!(read(most).is_ok());
}
