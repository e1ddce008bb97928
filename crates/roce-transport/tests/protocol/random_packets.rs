//! Sequences of packets that are each sound and together senseless.

use proptest::prelude::*;
use roce_transport::AccessFlags;
use roce_wire::{Aeth, AtomicEth, Immediate, InvalidateKey, KnownOpcode, Psn, Reth, Syndrome};

use crate::common::connection::{DEFAULT, FIRST_PSN, Options, PD, connect};
use crate::common::exchange::{Exchange, Kind, sge};
use crate::common::forge;
use crate::common::repeat::for_each_case;
use crate::common::world::World;
use roce_simnet::Rights;

/// One packet, near enough to sense to get past the first checks.
#[derive(Clone, Debug)]
struct Garbage {
    to_first: bool,
    opcode: KnownOpcode,
    /// From what the receiver expects next.
    psn_offset: i32,
    ack_request: bool,
    payload: usize,
    /// 0: writable region, 1: read-only region, 2: no region.
    region: u8,
    offset: u64,
    len: u32,
    syndrome: u8,
    word: u64,
}

fn garbage() -> impl Strategy<Value = Garbage> {
    let opcodes: Vec<_> = KnownOpcode::all().collect();
    let near = prop_oneof![6 => 0..3i32, 3 => -5..12i32, 1 => any::<i32>()];
    let payload = prop_oneof![3 => Just(256usize), 3 => 0..40usize, 1 => 0..1500usize];
    let len = prop_oneof![3 => Just(512u32), 3 => 0..1200u32, 1 => any::<u32>()];
    let offset = prop_oneof![3 => Just(0u64), 2 => 0..1100u64, 1 => any::<u64>()];
    let syndrome = prop_oneof![3 => Just(0x1fu8), 2 => 0x60..0x65u8, 1 => any::<u8>()];
    let front = (any::<bool>(), prop::sample::select(opcodes), near, any::<bool>(), payload);
    (front, 0..3u8, offset, len, syndrome, any::<u64>()).prop_map(
        |(
            (to_first, opcode, psn_offset, ack_request, payload),
            region,
            offset,
            len,
            syndrome,
            word,
        )| {
            Garbage {
                to_first,
                opcode,
                psn_offset,
                ack_request,
                payload,
                region,
                offset,
                len,
                syndrome,
                word,
            }
        },
    )
}

#[test]
fn no_sequence_of_sound_packets_panics_or_touches_what_is_not_its_own() {
    for_each_case(10_000, prop::collection::vec(garbage(), 1..40), |sequence| {
        let mut world = World::pair();
        let options = Options { retry_count: 1, rnr_retry: 1, ..DEFAULT };
        let ends = connect(&mut world, [0, 1], options);
        let regions = [0, 1].map(|node: usize| {
            let memory = &mut world.hosts[node].memory;
            [
                memory.register_filled(PD, 1024, Rights { invalidatable: true, ..Rights::ALL }, 7),
                memory.register_filled(PD, 1024, AccessFlags::REMOTE_READ, 8),
                memory.register_filled(PD, 1024, AccessFlags::LOCAL_WRITE, 9),
            ]
        });
        let secret =
            [0, 1].map(|node: usize| world.hosts[node].memory.bytes(regions[node][1]).to_vec());
        for node in 0..2 {
            for id in 0..3 {
                ends[node].post_recv(&mut world, id, &[sge(regions[node][2], 0, 700)]);
            }
        }
        // Something honest is under way meanwhile.
        for (i, kind) in [Kind::Read, Kind::Write, Kind::FetchAdd].into_iter().enumerate() {
            Exchange::post(&mut world, [ends[i % 2], ends[1 - i % 2]], kind, 700, 2);
        }
        for piece in sequence {
            let to = usize::from(!piece.to_first);
            let first = [FIRST_PSN - 1, FIRST_PSN][to];
            let psn = Psn::wrapping(first.wrapping_add_signed(piece.psn_offset) & 0xff_ffff);
            let mut headers = forge::headers(piece.opcode, ends[to].qpn, psn);
            headers.bth.ack_request = piece.ack_request;
            let (address, key) = match piece.region {
                index @ 0..2 => {
                    let region = regions[to][usize::from(index)];
                    (region.addr.wrapping_add(piece.offset), region.key)
                }
                _ => (piece.offset, piece.word as u32),
            };
            headers.reth = headers.reth.map(|_| Reth { addr: address, rkey: key, len: piece.len });
            headers.atomic_eth = headers.atomic_eth.map(|_| AtomicEth {
                addr: address,
                rkey: key,
                swap_or_add: piece.word,
                compare: piece.word >> 1,
            });
            headers.aeth = headers.aeth.map(|_| Aeth {
                syndrome: Syndrome::from_byte(piece.syndrome),
                msn: piece.word as u32 & 0xff_ffff,
            });
            headers.immediate = headers.immediate.map(|_| Immediate([7; 4]));
            headers.invalidate = headers.invalidate.map(|_| InvalidateKey(key));
            let carries = piece.opcode.info().carries_payload();
            let payload = vec![0xdd; if carries { piece.payload } else { 0 }];
            world.forge(1 - to, to, &forge::packet(&headers, &payload));
            if piece.word % 3 == 0 {
                world.step();
            }
        }
        world.settle();
        world.assert_guards_untouched();
        for node in 0..2 {
            assert_eq!(world.hosts[node].memory.bytes(regions[node][1]), secret[node]);
        }
    });
}
