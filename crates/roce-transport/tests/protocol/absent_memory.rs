//! Memory whose keys are right and whose pages are gone: both sides are told as by a card, and every
//! other queue pair goes on.

use std::ops::Range;
use std::time::Duration;

use roce_fabric::{Fate, Impairment};
use roce_simnet::{Region, Rights};
use roce_transport::{AsyncEvent, CompletionStatus, QpState, SendWr, WrData};
use roce_wire::{GRH_LEN, NakCode, Service, Syndrome};

use crate::common::connection::{DEFAULT, End, PD, connect, of_service};
use crate::common::exchange::{self, Exchange, Kind, sge};
use crate::common::world::World;

const REMOTE: [Kind; 5] =
    [Kind::Write, Kind::WriteImmediate, Kind::Read, Kind::CompareSwap, Kind::FetchAdd];

/// Three packets of the connection's path MTU, and a part of a fourth.
const LEN: usize = 800;

/// A world with a connection whose memory goes away, and one beside it that stays.
struct Fixture {
    world: World,
    ends: [End; 2],
    beside: [End; 2],
    local: Region,
    remote: Region,
}

fn fixture(service: Service) -> Fixture {
    let mut world = World::pair();
    world.keep_timeline(true);
    let ends = connect(&mut world, [0, 1], of_service(service));
    let beside = connect(&mut world, [0, 1], DEFAULT);
    let local = world.hosts[0].memory.register_filled(PD, LEN, Rights::ALL, 3);
    let remote = world.hosts[1].memory.register_filled(PD, LEN + GRH_LEN, Rights::ALL, 5);
    Fixture { world, ends, beside, local, remote }
}

impl Fixture {
    fn request(&self, kind: Kind) -> SendWr {
        let len = if kind.is_atomic() { 8 } else { LEN };
        exchange::request(kind, self.remote, sge(self.local, 0, len))
    }

    /// Runs the world to its end, with messages of every kind on the connection beside.
    fn settle(&mut self) {
        let exchanges =
            Kind::ALL.map(|kind| Exchange::post(&mut self.world, self.beside, kind, LEN, 10));
        self.world.settle();
        exchanges.iter().for_each(|exchange| exchange.check(&self.world));
        self.world.assert_guards_untouched();
    }

    fn outcomes(&self) -> Vec<(u64, CompletionStatus)> {
        self.ends[0].outcomes(&self.world)
    }
}

/// The bytes of a page that is missing: the first byte of the message, one in its third packet, the last.
fn holes(kind: Kind) -> Vec<Range<u64>> {
    let all = [0..1, 600..601, 799..800];
    all[..if kind.is_atomic() { 1 } else { 3 }].to_vec()
}

//= test rc-nak-remote-operational
#[test]
fn a_request_for_remote_memory_that_is_absent_is_a_remote_operational_error() {
    for kind in REMOTE {
        for hole in holes(kind) {
            let mut it = fixture(Service::Rc);
            it.world.hosts[1].memory.unmap(it.remote, hole.clone());
            it.ends[1].post_recv(&mut it.world, 88, &[]);
            let request = it.request(kind);
            it.ends[0].post_send(&mut it.world, SendWr { wr_id: 5, ..request });
            it.settle();
            let expected = [(5, CompletionStatus::RemoteOperationError)];
            assert_eq!(it.outcomes(), expected, "{kind:?} {hole:?}");
            assert_eq!(it.ends.map(|end| end.state(&it.world)), [QpState::Error; 2]);
            let code = Syndrome::Nak(NakCode::RemoteOperational);
            let refusals = it.world.refusals(1);
            assert_eq!(refusals.iter().filter(|it| it.1 == code).count(), 1, "{refusals:?}");
            let event = AsyncEvent::QpFatal { qpn: it.ends[1].qpn };
            assert!(it.world.hosts[1].events.contains(&event), "the responder's program is told");
            assert_eq!(it.ends[1].counter(&it.world, "nak_remote_operational"), 1);
        }
    }
}

#[test]
fn an_atomic_on_memory_that_is_absent_changes_nothing() {
    for kind in [Kind::CompareSwap, Kind::FetchAdd, Kind::AtomicWrite] {
        let mut it = fixture(Service::Rc);
        let before = it.world.hosts[1].memory.bytes(it.remote).to_vec();
        it.world.hosts[1].memory.unmap(it.remote, 7..8);
        let request = it.request(kind);
        it.ends[0].post_send(&mut it.world, request);
        it.settle();
        assert_eq!(it.world.hosts[1].memory.bytes(it.remote), before);
        assert_eq!(it.world.hosts[1].memory.atomics(it.remote), 0);
    }
}

#[test]
fn a_receive_into_memory_that_is_absent_fails_on_both_sides() {
    for hole in holes(Kind::Send) {
        let mut it = fixture(Service::Rc);
        it.world.hosts[1].memory.unmap(it.remote, hole.clone());
        it.ends[1].post_recv(&mut it.world, 88, &[sge(it.remote, 0, LEN)]);
        let request = it.request(Kind::Send);
        it.ends[0].post_send(&mut it.world, SendWr { wr_id: 5, ..request });
        it.settle();
        assert_eq!(it.outcomes(), [(5, CompletionStatus::RemoteOperationError)], "{hole:?}");
        let received = it.ends[1].received(&it.world)[0];
        let expected = (88, CompletionStatus::LocalProtectionError);
        assert_eq!((received.wr_id, received.status), expected, "{hole:?}");
        assert_eq!(it.ends.map(|end| end.state(&it.world)), [QpState::Error; 2]);
    }
}

#[test]
fn a_request_whose_own_memory_is_absent_is_a_local_protection_error() {
    // What is sent is read; the response to a READ or atomic is written.
    for kind in Kind::ALL.into_iter().filter(|kind| !kind.has_empty_response()) {
        for hole in holes(kind) {
            let mut it = fixture(Service::Rc);
            it.world.hosts[0].memory.unmap(it.local, hole.clone());
            it.ends[1].post_recv(&mut it.world, 88, &[sge(it.remote, 0, LEN)]);
            let request = it.request(kind);
            it.ends[0].post_send(&mut it.world, SendWr { wr_id: 5, ..request });
            it.settle();
            let expected = [(5, CompletionStatus::LocalProtectionError)];
            assert_eq!(it.outcomes(), expected, "{kind:?} {hole:?}");
            assert_eq!(it.ends[0].state(&it.world), QpState::Error);
            assert_eq!(it.ends[1].state(&it.world), QpState::ReadyToSend, "it is not to blame");
        }
    }
}

#[test]
fn a_gather_over_several_pieces_fails_at_the_piece_that_is_absent() {
    for piece in 0..3 {
        let mut it = fixture(Service::Rc);
        it.world.hosts[0].memory.unmap(it.local, 100 * piece + 50..100 * piece + 51);
        it.ends[1].post_recv(&mut it.world, 88, &[sge(it.remote, 0, LEN)]);
        let pieces: Vec<_> = (0..3).map(|i| it.local.piece(100 * i, 100)).collect();
        let request = it.request(Kind::Send);
        let data = WrData::Sges(pieces.as_slice().into());
        it.ends[0].post_send(&mut it.world, SendWr { wr_id: 5, data, ..request });
        it.settle();
        assert_eq!(it.outcomes(), [(5, CompletionStatus::LocalProtectionError)], "{piece}");
    }
}

#[test]
fn requests_before_the_one_that_fails_succeed_and_those_behind_it_are_flushed() {
    let mut it = fixture(Service::Rc);
    let whole = it.world.hosts[0].memory.register_filled(PD, LEN, Rights::ALL, 9);
    it.world.hosts[0].memory.unmap(it.local, 799..800);
    let request = |local| exchange::request(Kind::Write, it.remote, sge(local, 0, LEN));
    let requests = [request(whole), request(it.local), request(whole)];
    for (wr_id, request) in (0..).zip(requests) {
        it.ends[0].post_send(&mut it.world, SendWr { wr_id, ..request });
    }
    it.settle();
    let expected = [
        (0, CompletionStatus::Success),
        (1, CompletionStatus::LocalProtectionError),
        (2, CompletionStatus::WorkRequestFlushed),
    ];
    assert_eq!(it.outcomes(), expected);
}

#[test]
fn memory_that_is_back_before_it_is_accessed_is_memory_as_any_other() {
    for kind in Kind::ALL {
        let mut it = fixture(Service::Rc);
        let exchange = Exchange::prepare(&mut it.world, it.ends, kind, LEN, 3);
        for (node, region) in [(0, exchange.local), (1, exchange.remote)] {
            it.world.hosts[node].memory.unmap(region, 0..region.len);
            it.world.hosts[node].memory.unmap(region, 0..0);
        }
        exchange.post_receives(&mut it.world);
        exchange.post_sends(&mut it.world);
        it.settle();
        exchange.check(&it.world);
    }
}

#[test]
fn a_datagram_from_or_into_memory_that_is_absent_ends_its_own_queue_pair_alone() {
    for is_sender in [true, false] {
        for at in [0, 100] {
            let mut it = fixture(Service::Ud);
            let (node, region) = if is_sender { (0, it.local) } else { (1, it.remote) };
            it.world.hosts[node].memory.unmap(region, at..at + 1);
            it.ends[1].post_recv(&mut it.world, 88, &[sge(it.remote, 0, 240)]);
            let request = exchange::request(Kind::Send, it.remote, sge(it.local, 0, 200));
            let options = of_service(Service::Ud);
            let to = it.ends[1].destination(&it.world, it.ends[0], &options);
            let request = SendWr { wr_id: 5, ..request };
            it.ends[0].try_post_send_to(&mut it.world, request, to).unwrap();
            it.settle();
            let (bad, good) = (CompletionStatus::LocalProtectionError, CompletionStatus::Success);
            assert_eq!(it.outcomes(), [(5, if is_sender { bad } else { good })]);
            let received: Vec<_> =
                it.ends[1].received(&it.world).iter().map(|it| it.status).collect();
            assert_eq!(received, if is_sender { vec![] } else { vec![bad] });
        }
    }
}

#[test]
fn an_unreliable_write_to_absent_memory_is_dropped_and_a_send_fails_its_receive() {
    for (kind, hole) in [(Kind::Write, 600..601), (Kind::Send, 600..601), (Kind::Send, 0..1)] {
        let mut it = fixture(Service::Uc);
        it.world.hosts[1].memory.unmap(it.remote, hole.clone());
        it.ends[1].post_recv(&mut it.world, 88, &[sge(it.remote, 0, LEN)]);
        let request = it.request(kind);
        it.ends[0].post_send(&mut it.world, SendWr { wr_id: 5, ..request });
        it.settle();
        assert_eq!(it.outcomes(), [(5, CompletionStatus::Success)], "UC has no NAK");
        let received: Vec<_> = it.ends[1].received(&it.world).iter().map(|it| it.status).collect();
        let (state, expected) = match kind {
            Kind::Write => (QpState::ReadyToSend, vec![]),
            _ => (QpState::Error, vec![CompletionStatus::LocalProtectionError]),
        };
        assert_eq!((it.ends[1].state(&it.world), received), (state, expected), "{kind:?} {hole:?}");
    }
}

#[test]
fn an_unreliable_message_from_memory_that_is_absent_is_a_local_protection_error() {
    for kind in [Kind::Write, Kind::Send] {
        for hole in holes(kind) {
            let mut it = fixture(Service::Uc);
            it.world.hosts[0].memory.unmap(it.local, hole);
            let request = it.request(kind);
            it.ends[0].post_send(&mut it.world, SendWr { wr_id: 5, ..request });
            it.settle();
            assert_eq!(it.outcomes(), [(5, CompletionStatus::LocalProtectionError)], "{kind:?}");
            let state = it.ends[0].state(&it.world);
            assert_eq!(state, QpState::SendQueueError, "its receives are not affected");
        }
    }
}

#[test]
fn memory_that_vanishes_between_a_read_and_its_repeated_response_fails_the_read() {
    let mut it = fixture(Service::Rc);
    // The response is lost, and the memory is gone when the READ comes again.
    let request = it.request(Kind::Read);
    it.world.set_impairment(1, Impairment::scripted([Fate::Drop; 4]));
    it.ends[0].post_send(&mut it.world, SendWr { wr_id: 5, ..request });
    it.world.run_for(Duration::from_micros(50));
    assert_eq!(it.ends[1].state(&it.world), QpState::ReadyToSend);
    it.world.hosts[1].memory.unmap(it.remote, 0..LEN as u64);
    it.settle();
    assert_eq!(it.outcomes(), [(5, CompletionStatus::RemoteOperationError)]);
    assert_eq!(it.ends[1].state(&it.world), QpState::Error);
    let event = AsyncEvent::QpFatal { qpn: it.ends[1].qpn };
    assert!(it.world.hosts[1].events.contains(&event));
}
