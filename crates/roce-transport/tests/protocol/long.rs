//! The longest messages, over memory that exists only as a rule.

use roce_transport::{
    CompletionStatus, MAX_POSTED_LEN, RemoteAddr, SendOperation, SendWr, SgList, Sge, WrData,
};
use roce_wire::PathMtu;

use crate::common::connection::{DEFAULT, End, Options, PD, connect, timeout};
use crate::common::exchange::{Kind, work};
use crate::common::world::World;
use roce_simnet::{Region, Rights};

fn world(path_mtu: PathMtu, len: u64) -> (World, [End; 2], Region, Region) {
    let mut world = World::pair();
    let options = Options { path_mtu, ack_timeout: timeout(14), ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    let local = world.hosts[0].memory.register_synthetic(PD, len, Rights::ALL, 42);
    let remote = world.hosts[1].memory.register_synthetic(PD, len, Rights::ALL, 42);
    (world, ends, local, remote)
}

fn whole(region: Region) -> Sge {
    Sge { lkey: region.key, addr: region.addr, len: region.len as u32 }
}

fn carry(kind: Kind, len: u64) {
    let (mut world, ends, local, remote) = world(PathMtu::B4096, len);
    let there = RemoteAddr { addr: remote.addr, rkey: remote.key };
    let operation = match kind {
        Kind::Send => SendOperation::Send { immediate: None, invalidate: None },
        Kind::Write => SendOperation::Write { remote: there, immediate: None },
        _ => SendOperation::Read { remote: there },
    };
    ends[1].post_recv(&mut world, 1, &[whole(remote)]);
    let gather = SgList::from(whole(local));
    ends[0].post_send(&mut world, SendWr { data: WrData::Sges(gather), ..work(operation) });
    world.run_until(|world| !world.hosts[0].completions.is_empty());
    assert_eq!(ends[0].outcomes(&world), [(0, CompletionStatus::Success)]);
    let (node, region) = if kind == Kind::Read { (0, local) } else { (1, remote) };
    assert_eq!(world.hosts[node].memory.synthetic_cursor(region), len);
    if kind == Kind::Send {
        assert_eq!(u64::from(ends[1].received(&world)[0].byte_len), len);
    }
    if kind == Kind::Read {
        assert_eq!(u64::from(ends[0].sent(&world)[0].byte_len), len);
    }
}

#[test]
fn the_longest_send_arrives() {
    carry(Kind::Send, MAX_POSTED_LEN);
}

#[test]
fn the_longest_write_arrives() {
    carry(Kind::Write, MAX_POSTED_LEN);
}

#[test]
fn the_longest_read_arrives() {
    carry(Kind::Read, MAX_POSTED_LEN);
}

#[test]
fn one_byte_more_is_refused_and_no_less_whatever_the_operation_and_the_path_mtu() {
    for path_mtu in PathMtu::ALL {
        let (mut world, ends, local, remote) = world(path_mtu, MAX_POSTED_LEN + 1);
        let there = RemoteAddr { addr: remote.addr, rkey: remote.key };
        for operation in [
            SendOperation::Send { immediate: None, invalidate: None },
            SendOperation::Write { remote: there, immediate: None },
            SendOperation::Read { remote: there },
        ] {
            let mut post = |len: u64| {
                let halves = [
                    Sge { len: 1 << 30, ..whole(local) },
                    Sge { len: (len - (1 << 30)) as u32, ..whole(local) },
                ];
                let data = WrData::Sges(SgList::from(halves.as_slice()));
                let now = world.now();
                world.hosts[0].endpoint.post_send(
                    now,
                    ends[0].qpn,
                    SendWr { data, ..work(operation) },
                )
            };
            assert!(post(MAX_POSTED_LEN + 1).is_err(), "{operation:?}, {path_mtu:?}");
            assert!(post(MAX_POSTED_LEN).is_ok(), "{operation:?}, {path_mtu:?}");
        }
    }
}
