//! Keys, bounds, rights, domains: refused before a byte is touched, and told to both sides.

use roce_transport::{AccessFlags, CompletionStatus, PdHandle, QpState, RemoteAddr, SendWr};

use crate::common::connection::{DEFAULT, End, Options, PD, connect, connect_each};
use crate::common::exchange::{self, Kind, sge};
use crate::common::world::World;
use roce_simnet::{Region, Rights};

const REMOTE: [Kind; 7] = [
    Kind::Write,
    Kind::WriteImmediate,
    Kind::Read,
    Kind::CompareSwap,
    Kind::FetchAdd,
    Kind::AtomicWrite,
    Kind::Flush,
];

/// The right that a request needs.
fn right_of(kind: Kind) -> AccessFlags {
    match kind {
        Kind::Write | Kind::WriteImmediate | Kind::AtomicWrite => AccessFlags::REMOTE_WRITE,
        Kind::Read => AccessFlags::REMOTE_READ,
        Kind::Flush => AccessFlags::FLUSH_GLOBAL,
        _ => AccessFlags::REMOTE_ATOMIC,
    }
}

fn is_of_word(kind: Kind) -> bool {
    kind.is_atomic() || kind == Kind::AtomicWrite
}

const LEN: u64 = 800;

/// One request of `kind` for `len` bytes at `remote`.
fn request(kind: Kind, remote: RemoteAddr, local: Region, len: u64) -> SendWr {
    let there = Region { key: remote.rkey, addr: remote.addr, len };
    exchange::request(kind, there, sge(local, 0, len as usize))
}

/// A world where one request is refused, with `status`, and nothing has changed.
#[track_caller]
fn refused(
    world: &mut World,
    ends: [End; 2],
    target: Region,
    bad: SendWr,
    status: CompletionStatus,
) {
    let before = world.hosts[1].memory.bytes(target).to_vec();
    let written: Vec<_> = world.hosts.iter().map(|node| node.memory.bytes_written()).collect();
    ends[0].post_recv(world, 77, &[]);
    ends[1].post_recv(world, 88, &[]);
    ends[0].post_send(world, SendWr { wr_id: 5, ..bad });
    let local = world.hosts[0].memory.register_filled(PD, 8, Rights::ALL, 0);
    let behind = RemoteAddr { addr: target.addr, rkey: target.key };
    ends[0].post_send(world, SendWr { wr_id: 6, ..request(Kind::Write, behind, local, 8) });
    world.settle();
    let outcomes = [(5, status), (6, CompletionStatus::WorkRequestFlushed)];
    assert_eq!(ends[0].outcomes(world), outcomes, "{}", world.report());
    assert_eq!(ends[0].state(world), QpState::Error);
    assert_eq!(world.hosts[1].memory.bytes(target), before, "not one byte has changed");
    assert_eq!(world.hosts[1].memory.atomics_executed(), 0);
    let now_written: Vec<_> = world.hosts.iter().map(|node| node.memory.bytes_written()).collect();
    assert_eq!(now_written, written);
    world.assert_guards_untouched();
    let flushed = ends[0].received(world);
    assert_eq!(flushed.len(), 1, "receives are flushed too");
    assert_eq!(flushed[0].status, CompletionStatus::WorkRequestFlushed);
    // The responder's queue pair is dead as well, and says so.
    assert_eq!(ends[1].state(world), QpState::Error, "{}", world.report());
    assert_eq!(ends[1].received(world).len(), 1);
    assert!(!world.hosts[1].events.is_empty(), "the application is told");
}

/// All rights but one.
fn all_but(right: AccessFlags) -> Rights {
    (AccessFlags::ALL - right).into()
}

fn world_with_target(rights: Rights, pd: PdHandle) -> (World, [End; 2], Region, Region) {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let target = world.hosts[1].memory.register_filled(pd, LEN as usize, rights, 50);
    let local = world.hosts[0].memory.register_filled(PD, 4096, Rights::ALL, 60);
    (world, ends, target, local)
}

fn access_len(kind: Kind) -> u64 {
    if is_of_word(kind) { 8 } else { LEN }
}

//= test rc-remote-key
#[test]
fn an_unknown_key_is_refused() {
    for kind in REMOTE {
        for flip in [1, 0x100, 0x8000_0000] {
            let (mut world, ends, target, local) = world_with_target(Rights::ALL, PD);
            let remote = RemoteAddr { addr: target.addr, rkey: target.key ^ flip };
            let bad = request(kind, remote, local, access_len(kind));
            refused(&mut world, ends, target, bad, CompletionStatus::RemoteAccessError);
        }
    }
}

//= test rc-remote-key
#[test]
fn a_span_that_leaves_its_region_by_one_byte_is_refused_as_a_whole() {
    for kind in REMOTE {
        let len = access_len(kind);
        let step = if is_of_word(kind) { 8 } else { 1 }; // an atomic stays aligned
        let outside = |target: Region| {
            [
                target.addr - step,
                target.addr + LEN - len + step,
                target.addr + LEN,
                target.addr + (1 << 40),
                0,
                u64::MAX - 7,
                (u64::MAX - len + 1) & !7,
            ]
        };
        for i in 0..7 {
            let (mut world, ends, target, local) = world_with_target(Rights::ALL, PD);
            let remote = RemoteAddr { addr: outside(target)[i], rkey: target.key };
            let bad = request(kind, remote, local, len);
            refused(&mut world, ends, target, bad, CompletionStatus::RemoteAccessError);
        }
    }
}

//= test rc-remote-key
//= test rc-atomic-write-right
#[test]
fn a_right_that_the_region_does_not_give_is_refused() {
    for kind in REMOTE {
        let (mut world, ends, target, local) = world_with_target(all_but(right_of(kind)), PD);
        let remote = RemoteAddr { addr: target.addr, rkey: target.key };
        let bad = request(kind, remote, local, access_len(kind));
        refused(&mut world, ends, target, bad, CompletionStatus::RemoteAccessError);
    }
}

//= test rc-remote-key
#[test]
fn a_region_of_another_protection_domain_is_refused() {
    for kind in REMOTE {
        let (mut world, ends, target, local) = world_with_target(Rights::ALL, PdHandle(2));
        let remote = RemoteAddr { addr: target.addr, rkey: target.key };
        let bad = request(kind, remote, local, access_len(kind));
        refused(&mut world, ends, target, bad, CompletionStatus::RemoteAccessError);
    }
}

//= test rc-remote-key
#[test]
fn a_region_that_is_no_longer_registered_is_refused() {
    for kind in REMOTE {
        let (mut world, ends, target, local) = world_with_target(Rights::ALL, PD);
        world.hosts[1].memory.deregister(target);
        let remote = RemoteAddr { addr: target.addr, rkey: target.key };
        let bad = request(kind, remote, local, access_len(kind));
        refused(&mut world, ends, target, bad, CompletionStatus::RemoteAccessError);
    }
}

//= test rc-access-flags
#[test]
fn a_right_that_the_queue_pair_does_not_give_is_an_invalid_request() {
    for kind in REMOTE {
        let without = right_of(kind);
        let mut world = World::pair();
        let options = DEFAULT;
        let strict = Options { access: AccessFlags::ALL.difference(without), ..options };
        let ends = connect_each(&mut world, [0, 1], [options, strict]);
        let target = world.hosts[1].memory.register_filled(PD, LEN as usize, Rights::ALL, 50);
        let local = world.hosts[0].memory.register_filled(PD, 4096, Rights::ALL, 60);
        let remote = RemoteAddr { addr: target.addr, rkey: target.key };
        let bad = request(kind, remote, local, access_len(kind));
        refused(&mut world, ends, target, bad, CompletionStatus::RemoteInvalidRequest);
    }
}

//= test rc-atomic-aligned
//= test rc-atomic-write-aligned
#[test]
fn an_atomic_on_an_address_that_is_not_a_multiple_of_8_is_an_invalid_request() {
    for kind in [Kind::CompareSwap, Kind::FetchAdd, Kind::AtomicWrite] {
        for off in 1..8 {
            let (mut world, ends, target, local) = world_with_target(Rights::ALL, PD);
            let remote = RemoteAddr { addr: target.addr + off, rkey: target.key };
            let bad = request(kind, remote, local, 8);
            refused(&mut world, ends, target, bad, CompletionStatus::RemoteInvalidRequest);
        }
    }
}

//= test rc-send-length
#[test]
fn a_message_longer_than_the_receive_is_refused_and_not_a_byte_lands_outside() {
    for len in [101, 255, 256, 257, 600, 4000] {
        let mut world = World::pair();
        let ends = connect(&mut world, [0, 1], DEFAULT);
        let target = world.hosts[1].memory.register_filled(PD, 1000, Rights::ALL, 50);
        let local = world.hosts[0].memory.register_filled(PD, 4096, Rights::ALL, 60);
        let before = world.hosts[1].memory.bytes(target).to_vec();
        ends[1].post_recv(&mut world, 1, &[sge(target, 0, 100)]);
        ends[1].post_recv(&mut world, 2, &[sge(target, 0, 100)]);
        let nowhere = RemoteAddr { addr: 0, rkey: 0 };
        ends[0].post_send(&mut world, request(Kind::Send, nowhere, local, len));
        world.settle();
        let outcomes = [(0, CompletionStatus::RemoteInvalidRequest)];
        assert_eq!(ends[0].outcomes(&world), outcomes, "{}", world.report());
        let received: Vec<_> =
            ends[1].received(&world).iter().map(|it| (it.wr_id, it.status)).collect();
        let expected =
            [(1, CompletionStatus::LocalLengthError), (2, CompletionStatus::WorkRequestFlushed)];
        assert_eq!(received, expected);
        assert_eq!(&world.hosts[1].memory.bytes(target)[100..], &before[100..]);
        world.assert_guards_untouched();
        assert_eq!([ends[0].state(&world), ends[1].state(&world)], [QpState::Error; 2]);
    }
}

#[test]
fn a_local_key_that_is_wrong_fails_the_work_and_sends_nothing() {
    for kind in [Kind::Send, Kind::Write] {
        let (mut world, ends, target, local) = world_with_target(Rights::ALL, PD);
        world.keep_timeline(true);
        let remote = RemoteAddr { addr: target.addr, rkey: target.key };
        let stranger = Region { key: local.key ^ 1, ..local };
        ends[0].post_send(&mut world, request(kind, remote, stranger, 100));
        world.settle();
        assert_eq!(ends[0].outcomes(&world), [(0, CompletionStatus::LocalProtectionError)]);
        assert_eq!(ends[0].state(&world), QpState::Error);
        assert_eq!(world.sent(0).len(), 0);
        assert_eq!(ends[1].state(&world), QpState::ReadyToSend, "the peer has seen nothing");
    }
}

#[test]
fn a_read_or_atomic_into_memory_that_may_not_be_written_fails_and_writes_nothing() {
    for kind in [Kind::Read, Kind::CompareSwap, Kind::FetchAdd] {
        let (mut world, ends, target, _) = world_with_target(Rights::ALL, PD);
        world.keep_timeline(true);
        let rights = all_but(AccessFlags::LOCAL_WRITE);
        let local = world.hosts[0].memory.register_filled(PD, 4096, rights, 60);
        let remote = RemoteAddr { addr: target.addr, rkey: target.key };
        ends[0].post_send(&mut world, request(kind, remote, local, access_len(kind)));
        world.settle();
        assert_eq!(ends[0].outcomes(&world), [(0, CompletionStatus::LocalProtectionError)]);
        assert_eq!(ends[0].state(&world), QpState::Error);
        assert_eq!(world.hosts[0].memory.bytes_written(), 0);
        assert_eq!(world.sent(0).len(), 0);
        assert_eq!(world.hosts[1].memory.atomics_executed(), 0, "nothing is done that is in vain");
    }
}

#[test]
fn a_receive_into_memory_that_may_not_be_written_fails_on_both_sides() {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let rights = all_but(AccessFlags::LOCAL_WRITE);
    let target = world.hosts[1].memory.register_filled(PD, 1000, rights, 50);
    let local = world.hosts[0].memory.register_filled(PD, 4096, Rights::ALL, 60);
    ends[1].post_recv(&mut world, 1, &[sge(target, 0, 1000)]);
    let nowhere = RemoteAddr { addr: 0, rkey: 0 };
    ends[0].post_send(&mut world, request(Kind::Send, nowhere, local, 600));
    world.settle();
    assert_eq!(ends[0].outcomes(&world), [(0, CompletionStatus::RemoteOperationError)]);
    let received = ends[1].received(&world);
    assert_eq!(received[0].status, CompletionStatus::LocalProtectionError);
    assert_eq!(world.hosts[1].memory.bytes_written(), 0);
}

//= test rc-empty-needs-no-key
#[test]
fn a_read_or_write_of_nothing_needs_no_key() {
    for kind in [Kind::Read, Kind::Write, Kind::WriteImmediate] {
        let (mut world, ends, _, local) = world_with_target(Rights::ALL, PD);
        ends[1].post_recv(&mut world, 1, &[]);
        let nowhere = RemoteAddr { addr: 0x1234, rkey: 0x5678 };
        ends[0].post_send(&mut world, request(kind, nowhere, local, 0));
        world.settle();
        assert_eq!(ends[0].outcomes(&world), [(0, CompletionStatus::Success)], "{kind:?}");
    }
}
