//! Packets of UC and UD that no honest peer sends: dropped, counted, and without effect on others.

use roce_simnet::Rights;
use roce_transport::{AccessFlags, CompletionStatus, QpState};
use roce_wire::{Deth, KnownOpcode, Psn, Reth, Service, opcode};

use crate::common::connection::{DEFAULT, End, FIRST_PSN, connect, of_service};
use crate::common::exchange::{Exchange, Kind, sge};
use crate::common::forge;
use crate::common::world::World;

/// A pair of this service whose node 1 has a region, and so many receives over it.
fn victim(service: Service, receives: u64) -> (World, [End; 2], roce_simnet::Region) {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], of_service(service));
    let region = world.hosts[1].memory.register(4096, Rights::ALL);
    for wr_id in 0..receives {
        ends[1].post_recv(&mut world, wr_id, &[sge(region, 0, 4096)]);
    }
    (world, ends, region)
}

fn first_psn() -> Psn {
    Psn::new(FIRST_PSN).unwrap()
}

/// A connection beside works as ever.
#[track_caller]
fn assert_others_undisturbed(world: &mut World) {
    let ends = connect(world, [0, 1], DEFAULT);
    let exchange = Exchange::post(world, ends, Kind::Send, 1000, 3);
    world.run_until(|world| exchange.is_done(world));
    exchange.check(world);
}

#[test]
fn packets_of_another_service_are_dropped() {
    for service in [Service::Uc, Service::Ud] {
        let (mut world, ends, _) = victim(service, 4);
        for code in KnownOpcode::all().filter(|it| it.info().service != service) {
            let counter = match code.info().service {
                Service::Cnp => "rp_cnp_ignored",
                _ => "wrong_service",
            };
            let before = ends[1].counter(&world, counter);
            let packet = forge::packet(&forge::headers(code, ends[1].qpn, first_psn()), &[]);
            world.forge(0, 1, &packet);
            assert_eq!(ends[1].counter(&world, counter), before + 1, "{code:?}");
        }
        assert_eq!(ends[1].state(&world), QpState::ReadyToSend);
        assert_eq!(ends[1].received(&world), []);
    }
}

/// A sound packet of each opcode that may come first.
fn sound_packets(
    service: Service,
    end: End,
    from: End,
    region: roce_simnet::Region,
) -> Vec<Vec<u8>> {
    let first = |it: &KnownOpcode| it.info().service == service && it.info().position.is_first();
    KnownOpcode::all()
        .filter(first)
        .map(|code| {
            let mut headers = forge::headers(code, end.qpn, first_psn());
            let len = if code.info().position.is_last() { 8 } else { 256 };
            let reth = Reth { addr: region.addr, rkey: region.key, len: 8 };
            let whole =
                if code.info().position.is_last() { reth } else { Reth { len: 300, ..reth } };
            headers.reth = headers.reth.map(|_| whole);
            let deth = Deth { q_key: DEFAULT.q_key, source_qp: from.qpn };
            headers.deth = headers.deth.map(|_| deth);
            forge::packet(&headers, &vec![9; len])
        })
        .collect()
}

#[test]
fn every_bit_flip_and_every_prefix_of_a_packet_does_no_harm() {
    for service in [Service::Uc, Service::Ud] {
        let (world, ends, region) = victim(service, 0);
        for packet in sound_packets(service, ends[1], ends[0], region) {
            drop_all_variants(service, &packet);
        }
        drop(world);
    }
}

/// A packet with each bit of its headers flipped in turn, and each of its prefixes that has a BTH.
fn variants(packet: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let headers = packet.len().min(48);
    let flips = (0..headers * 8).map(|bit| {
        let mut flipped = packet.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    });
    flips.chain((12..packet.len()).map(|len| packet[..len].to_vec()))
}

fn drop_all_variants(service: Service, packet: &[u8]) {
    let (mut world, ends, _) = victim(service, 200);
    for variant in variants(packet) {
        let before = world.hosts[1].completions.len();
        world.forge(0, 1, &variant);
        let new: Vec<_> = world.hosts[1].completions.range(before..).collect();
        assert!(new.len() <= 1, "{new:?}");
        assert!(new.iter().all(|(_, it)| it.status == CompletionStatus::Success), "{new:?}");
        assert_eq!(ends[1].state(&world), QpState::ReadyToSend, "{variant:02x?}");
        // The next one finds the queue pair as it was.
        let info = world.hosts[1].endpoint.query_qp(ends[1].qpn).unwrap();
        if new.len() == 1 || info.receives_posted < 100 {
            (world, _, _) = victim(service, 200);
        }
    }
    world.assert_guards_untouched();
    assert_others_undisturbed(&mut world);
}

/// A message of three packets of 256, 256 and 8 bytes that begins at `psn`.
fn message(
    codes: [KnownOpcode; 3],
    end: End,
    region: roce_simnet::Region,
    psn: Psn,
) -> [Vec<u8>; 3] {
    let lens = [256, 256, 8];
    std::array::from_fn(|index| {
        let psn = psn.advanced_by(index as u32);
        let mut headers = forge::headers(codes[index], end.qpn, psn);
        let reth =
            Reth { addr: region.addr, rkey: region.key, len: lens.iter().sum::<usize>() as u32 };
        headers.reth = headers.reth.map(|_| reth);
        forge::packet(&headers, &vec![9; lens[index]])
    })
}

#[test]
fn every_bit_flip_and_every_prefix_of_a_later_packet_of_a_message_does_no_harm() {
    for codes in [
        [opcode::UC_SEND_FIRST, opcode::UC_SEND_MIDDLE, opcode::UC_SEND_LAST],
        [opcode::UC_SEND_FIRST, opcode::UC_SEND_MIDDLE, opcode::UC_SEND_LAST_IMMEDIATE],
        [opcode::UC_WRITE_FIRST, opcode::UC_WRITE_MIDDLE, opcode::UC_WRITE_LAST],
        [opcode::UC_WRITE_FIRST, opcode::UC_WRITE_MIDDLE, opcode::UC_WRITE_LAST_IMMEDIATE],
    ] {
        for hit in [1, 2] {
            hit_a_later_packet(codes, hit);
        }
    }
}

/// Sends a message whose packet `hit` has a flipped bit or is cut short, for each bit and length, and
/// behind it a sound one.
fn hit_a_later_packet(codes: [KnownOpcode; 3], hit: usize) {
    let (world, ends, region) = victim(Service::Uc, 0);
    let packets = message(codes, ends[1], region, first_psn());
    drop(world);
    // Neither just behind nor a power of two ahead of the first message, so that no flipped bit of a
    // PSN makes a duplicate of it.
    let far = first_psn().advanced_by(0x2a_aaaa);
    for variant in variants(&packets[hit]) {
        let (mut world, ends, region) = victim(Service::Uc, 2);
        for (index, packet) in packets.iter().enumerate() {
            world.forge(0, 1, if index == hit { &variant } else { packet });
        }
        let new = &world.hosts[1].completions;
        assert!(new.len() <= 1, "{new:?}");
        assert!(new.iter().all(|(_, it)| it.status == CompletionStatus::Success), "{new:?}");
        assert_eq!(ends[1].state(&world), QpState::ReadyToSend, "{variant:02x?}");
        let (before, written) = (new.len(), world.hosts[1].memory.bytes_written());
        for packet in message(codes, ends[1], region, far) {
            world.forge(0, 1, &packet);
        }
        let completes = codes[2] != opcode::UC_WRITE_LAST;
        let got = world.hosts[1].completions.len() - before;
        assert_eq!(got, usize::from(completes), "behind {variant:02x?}");
        assert_eq!(world.hosts[1].memory.bytes_written() - written, 520, "behind {variant:02x?}");
        world.assert_guards_untouched();
        assert_others_undisturbed(&mut world);
    }
}

#[test]
fn a_flood_to_a_queue_pair_without_receives_is_counted_and_hurts_no_other() {
    for (service, code) in
        [(Service::Ud, opcode::UD_SEND_ONLY), (Service::Uc, opcode::UC_SEND_ONLY)]
    {
        let (mut world, ends, _) = victim(service, 0);
        let mut headers = forge::headers(code, ends[1].qpn, first_psn());
        let deth = Deth { q_key: DEFAULT.q_key, source_qp: ends[0].qpn };
        headers.deth = headers.deth.map(|_| deth);
        for _ in 0..1000 {
            world.forge(0, 1, &forge::packet(&headers, &[1; 64]));
            headers.bth.psn = headers.bth.psn.advanced_by(1);
        }
        assert_eq!(ends[1].counter(&world, "out_of_buffer"), 1000, "{}", world.report());
        assert_eq!(world.hosts[1].completions, []);
        assert_others_undisturbed(&mut world);
        assert_eq!(ends[1].state(&world), QpState::ReadyToSend);
    }
}

//= test uc-fault-drops
#[test]
fn uc_messages_that_their_headers_or_receives_do_not_allow_are_dropped_alone() {
    let (mut world, ends, region) = victim(Service::Uc, 2);
    let read_only = world.hosts[1].memory.register(4096, AccessFlags::empty());
    let mut psn = first_psn();
    let mut forge_next = |world: &mut World, code, reth: Option<Reth>, len| {
        let mut headers = forge::headers(code, ends[1].qpn, psn);
        headers.reth = reth;
        psn = psn.advanced_by(1);
        world.forge(0, 1, &forge::packet(&headers, &vec![3; len]));
    };
    let reth =
        |region: roce_simnet::Region, len| Some(Reth { addr: region.addr, rkey: region.key, len });
    let written = world.hosts[1].memory.bytes_written();
    for (code, reth, len) in [
        (opcode::UC_WRITE_ONLY, reth(region, 9), 8),
        (opcode::UC_WRITE_ONLY, reth(region, 5000), 256),
        (opcode::UC_WRITE_ONLY, reth(read_only, 8), 8),
        (opcode::UC_WRITE_FIRST, reth(region, 256), 256),
        (opcode::UC_SEND_FIRST, None, 255),
        (opcode::UC_SEND_ONLY, None, 257),
    ] {
        let before = ends[1].counter(&world, "uc_dropped_msgs");
        forge_next(&mut world, code, reth, len);
        assert_eq!(ends[1].counter(&world, "uc_dropped_msgs"), before + 1, "{code:?} {len}");
    }
    for code in [opcode::UC_SEND_MIDDLE, opcode::UC_SEND_LAST, opcode::UC_WRITE_LAST] {
        forge_next(&mut world, code, None, 256);
    }
    assert_eq!(ends[1].counter(&world, "out_of_seq_request"), 3);
    assert_eq!(world.hosts[1].memory.bytes_written(), written, "not a byte");
    forge_next(&mut world, opcode::UC_SEND_ONLY, None, 8);
    assert_eq!(ends[1].received(&world)[0].wr_id, 0, "both receives are left");
    assert_eq!(ends[1].state(&world), QpState::ReadyToSend);
}
