//! The bytes of kept packets: within the budget of the endpoint whatever its peers send, and given back
//! entirely however a queue pair ends.

use roce_fabric::{Fate, Impairment};
use roce_simnet::{Region, Rights};
use roce_transport::{CompletionStatus, EndpointConfig, PeerWindowConfig, QpState};
use roce_wire::{NakCode, PathMtu, Psn, Reth, opcode};

use crate::common::connection::{DEFAULT, End, Options, PD, RECV_CQ, connect, timeout};
use crate::common::exchange::{Exchange, Kind};
use crate::common::forge;
use crate::common::world::{World, WorldConfig, test_config};

const QPS: usize = 64;
const PACKETS: u32 = 60;
const MTU: usize = 1024;
const OPTIONS: Options = Options { path_mtu: PathMtu::B1024, ack_timeout: timeout(20), ..DEFAULT };

/// A queue pair of node 1 that has requested a READ, and the memory that its peer writes.
struct Victim {
    ends: [End; 2],
    target: Region,
    exchange: Exchange,
    /// Bytes charged for the packets that it keeps.
    kept: usize,
}

impl Victim {
    /// Request number `ahead` of the peer: a WRITE of a packet.
    fn request(&self, ahead: u32) -> Vec<u8> {
        let psn = OPTIONS.first_psn[0].advanced_by(ahead);
        let address = self.target.addr + u64::from(ahead) * MTU as u64;
        let reth = Reth { addr: address, rkey: self.target.key, len: MTU as u32 };
        forge::write_only(self.ends[1].qpn, psn, reth, &[ahead as u8; MTU])
    }

    /// Response number `ahead` to the READ.
    fn response(&self, ahead: u32) -> Vec<u8> {
        let psn = self.response_psn(ahead);
        let code = match ahead {
            0 => opcode::RC_READ_RESPONSE_FIRST,
            _ if ahead + 1 == PACKETS => opcode::RC_READ_RESPONSE_LAST,
            _ => opcode::RC_READ_RESPONSE_MIDDLE,
        };
        forge::response(code, self.ends[1].qpn, psn, forge::ACK, &[ahead as u8; MTU])
    }

    fn response_psn(&self, ahead: u32) -> Psn {
        OPTIONS.first_psn[1].advanced_by(ahead)
    }
}

fn victims(max_reorder_bytes: usize) -> (World, Vec<Victim>) {
    let peer_window =
        PeerWindowConfig { initial_frames: 10_000, min_frames: 10_000, max_frames: 10_000 };
    let endpoint = EndpointConfig { max_reorder_bytes, peer_window, ..EndpointConfig::default() };
    let mut world = World::new(2, WorldConfig { endpoint, ..test_config() });
    world.set_impairment(1, Impairment::scripted(vec![Fate::Drop; 100_000]));
    let victims = (0..QPS).map(|_| {
        let ends = connect(&mut world, [0, 1], OPTIONS);
        let len = PACKETS as usize * MTU;
        let target = world.hosts[1].memory.register_filled(PD, len, Rights::ALL, 0xaa);
        let exchange = Exchange::post(&mut world, [ends[1], ends[0]], Kind::Read, len, 1);
        Victim { ends, target, exchange, kept: 0 }
    });
    let victims = victims.collect();
    (world, victims)
}

fn held(world: &World) -> usize {
    world.hosts[1].endpoint.reorder_bytes()
}

/// Sends everything but the first packets to all queue pairs in turn.
fn attack(world: &mut World, victims: &mut [Victim], limit: usize) {
    for ahead in 1..PACKETS {
        for victim in &mut *victims {
            for packet in [victim.request(ahead), victim.response(ahead)] {
                let before = held(world);
                world.forge(0, 1, &packet);
                victim.kept += held(world) - before;
                assert!(held(world) <= limit, "{} of {limit} bytes", held(world));
            }
        }
    }
}

#[test]
fn peers_that_send_all_but_the_first_packet_on_many_queue_pairs_fill_no_more_than_the_budget() {
    let limit = EndpointConfig::default().max_reorder_bytes;
    assert_eq!(limit, 4 << 20);
    let (mut world, mut victims) = victims(limit);
    attack(&mut world, &mut victims, limit);
    let share = limit / 4 * 3;
    assert!(held(&world) <= share && held(&world) > share / 10 * 9, "{} bytes", held(&world));
    assert_eq!(held(&world), victims.iter().map(|it| it.kept).sum());
    let kept = victims.iter().map(|it| it.kept);
    let (least, most) = (kept.clone().min().unwrap(), kept.max().unwrap());
    assert!(most - least <= 2 * MTU + 400, "{least} to {most} bytes each");
    assert!(world.counter(1, "reorder_full") > 0);
}

#[test]
fn with_a_budget_of_zero_many_queue_pairs_keep_nothing() {
    let (mut world, mut victims) = victims(0);
    attack(&mut world, &mut victims, 0);
    assert_eq!(world.counter(1, "reorder_kept"), 0);
    assert_eq!(world.counter(1, "out_of_seq_request"), QPS as u64 * u64::from(PACKETS - 1));
}

/// How a queue pair comes to keep nothing.
#[derive(Clone, Copy, Debug)]
enum Release {
    Error,
    Reset,
    Destroyed,
    /// A request of the peer that cannot be executed.
    BadRequest,
    /// A NAK of the peer that ends the connection.
    FatalNak,
    /// A response that does not match the READ.
    BadResponse,
    /// The missing packets.
    Closed,
}

const RELEASES: [Release; 7] = [
    Release::Error,
    Release::Reset,
    Release::Destroyed,
    Release::BadRequest,
    Release::FatalNak,
    Release::BadResponse,
    Release::Closed,
];

fn release(world: &mut World, victim: &Victim, how: Release) {
    let end = victim.ends[1];
    match how {
        Release::Error => end.move_to(world, QpState::Error),
        Release::Reset => end.move_to(world, QpState::Reset),
        Release::Destroyed => {
            assert!(world.with(1, |node, _| node.endpoint.destroy_qp(end.qpn)));
        }
        Release::BadRequest => {
            let psn = OPTIONS.first_psn[0];
            let headers = forge::headers(opcode::RC_SEND_MIDDLE, end.qpn, psn);
            world.forge(0, 1, &forge::packet(&headers, &[0; MTU]));
            assert_eq!(end.state(world), QpState::Error);
        }
        Release::FatalNak => {
            let nak = forge::nak(NakCode::RemoteAccess);
            world.forge(0, 1, &forge::acknowledge(end.qpn, victim.response_psn(0), nak));
            let statuses: Vec<_> = end.sent(world).iter().map(|it| it.status).collect();
            assert_eq!(statuses, [CompletionStatus::RemoteAccessError]);
        }
        Release::BadResponse => {
            let psn = victim.response_psn(0);
            let code = opcode::RC_READ_RESPONSE_FIRST;
            world.forge(0, 1, &forge::response(code, end.qpn, psn, forge::ACK, &[0; 4]));
            let statuses: Vec<_> = end.sent(world).iter().map(|it| it.status).collect();
            assert_eq!(statuses, [CompletionStatus::BadResponse]);
        }
        Release::Closed => {
            world.forge_batch(0, 1, &[victim.request(0), victim.response(0)]);
            assert_eq!(end.state(world), QpState::ReadyToSend);
            assert!(end.sent(world).is_empty());
            let bytes = world.hosts[1].memory.bytes(victim.exchange.local);
            assert_eq!([bytes[0], bytes[MTU], bytes[2 * MTU]], [0, 1, 2]);
        }
    }
}

#[test]
fn a_queue_pair_gives_back_exactly_what_it_kept_however_it_ends() {
    let limit = EndpointConfig::default().max_reorder_bytes;
    let (mut world, mut victims) = victims(limit);
    attack(&mut world, &mut victims, limit);
    let (ended, rest) = victims.split_at(4 * RELEASES.len());
    for (i, victim) in ended.iter().enumerate() {
        let how = RELEASES[i % RELEASES.len()];
        let before = held(&world);
        release(&mut world, victim, how);
        assert_eq!(before - held(&world), victim.kept, "{how:?}\n{}", world.report());
    }
    assert_eq!(held(&world), rest.iter().map(|it| it.kept).sum());
    world.with(1, |node, now| node.endpoint.handle_cq_overflow(now, RECV_CQ));
    assert_eq!(held(&world), 0);
    // All of the budget is there again: half of it for the first.
    let ends = connect(&mut world, [0, 1], OPTIONS);
    let victim = Victim { ends, kept: 0, ..victims.remove(0) };
    for ahead in 1..3000 {
        world.forge(0, 1, &victim.request(ahead));
    }
    let free = limit / 2 - held(&world);
    assert!(free < 2 * MTU, "{free} bytes less than half");
}

#[test]
fn packets_of_a_queue_pair_that_has_ended_are_not_kept() {
    for how in [Release::Error, Release::Reset, Release::Destroyed, Release::BadRequest] {
        let (mut world, victims) = victims(4 << 20);
        let victim = &victims[0];
        release(&mut world, victim, how);
        for ahead in 1..PACKETS {
            world.forge_batch(0, 1, &[victim.request(ahead), victim.response(ahead)]);
        }
        assert_eq!((held(&world), world.counter(1, "reorder_kept")), (0, 0), "{how:?}");
    }
}
