//! The kinds of memory errors that were proposed as fixes for rxe in 2026, and what holds here for each.
//!
//! | kind | the packet or call that trips it | test |
//! |---|---|---|
//! | the sum of an address and a length exceeds 64 bits, in the check of a region, of pages on demand, of a window | a request at the last addresses of all | [`an_address_and_a_length_whose_sum_exceeds_64_bits_are_refused`]; `no_sum_of_address_and_length_wraps` of roce-engine; `the_whole_address_space_is_a_region_of_which_some_pages_are_present` of roce-verbs |
//! | the length of a receive of a shared queue is read twice, and the program changes it in between | a program that writes its list of elements after the post | `posted-lists-are-copied` in `tests/programs/arguments/requests.c`; each element is read once, into memory of the engine, which no program maps |
//! | the lengths of inline elements are read twice | the same | as above: `post.rs` of roce-ibverbs takes each element once |
//! | resources of the responder are used after they were freed, when `max_dest_rd_atomic` changes | a change while a READ is answered and repeated | [`the_depth_of_a_responder_changes_while_its_answers_are_kept`] |
//! | the opcode is used before the ICRC is checked | a packet with another opcode than its ICRC is of | [`an_opcode_means_nothing_until_the_icrc_is_right`]; `Packet<Unverified>` has no way into the endpoint |
//! | ATOMIC WRITE of other than 8 bytes | payloads of 0, 4 and 16 bytes | `placement::an_atomic_write_of_another_length_or_alignment_is_an_invalid_request_and_stores_nothing` |
//! | a device is used after its network interface, or its namespace, is gone | the interface is removed while requests are outstanding | `tests/tests/it/interface.rs` and `interface_changes.rs` |
//! | a queue is mapped after it was freed | `mmap` of an offset of a destroyed queue | none: no queue is mapped into a program |
//! | reference counts fall below zero | an object is destroyed, detached or acknowledged once more | none: objects are counted by `Arc`; acknowledgements wrap (`acks.rs`), and a multicast group that is left twice is refused (`multicast`) |
//! | a key is refused without an event | a request with a key that opens nothing | `public-fields` in `tests/programs/arguments/fields.c`: IBV_EVENT_QP_ACCESS_ERR |

use roce_transport::{AccessFlags, CompletionStatus, QpAttributes, QpState};
use roce_wire::{NakCode, Psn, Reth, Syndrome, opcode};

use crate::common::connection::{DEFAULT, FIRST_PSN, Options, PD, connect};
use crate::common::exchange::{Exchange, Kind};
use crate::common::forge;
use crate::common::world::{World, seal_one};
use roce_simnet::Rights;

fn first_psn() -> Psn {
    Psn::new(FIRST_PSN).unwrap()
}

#[test]
fn an_address_and_a_length_whose_sum_exceeds_64_bits_are_refused() {
    for len in [1_u32, 8, 64, 4096, 1 << 30] {
        for below in [1, 7, 8, 63, 64, 4095] {
            let mut world = World::pair();
            world.keep_timeline(true);
            let ends = connect(&mut world, [0, 1], DEFAULT);
            let region = world.hosts[1].memory.register_filled(PD, 4096, Rights::ALL, 5);
            let reth = Reth { addr: u64::MAX - below + 1, rkey: region.key, len };
            world.forge(0, 1, &forge::read_request(ends[1].qpn, first_psn(), reth));
            let answer = world.sent(1)[0].headers().aeth.unwrap().syndrome;
            assert_eq!(answer, Syndrome::Nak(NakCode::RemoteAccess), "{len} at -{below}");
            assert_eq!(ends[1].state(&world), QpState::Error);
            world.assert_guards_untouched();
        }
    }
}

#[test]
fn the_depth_of_a_responder_changes_while_its_answers_are_kept() {
    for (before, after) in [(4, 1), (1, 4), (16, 2), (4, 128), (4, 4)] {
        let mut world = World::pair();
        let options = Options { max_rd_atomic: 1, max_dest_rd_atomic: before, ..DEFAULT };
        let ends = connect(&mut world, [0, 1], options);
        let region = world.hosts[1].memory.register_filled(PD, 4096, Rights::ALL, 5);
        let exchange = Exchange::post(&mut world, ends, Kind::Read, 700, 3);
        world.settle();
        exchange.check(&world);
        ends[1].move_to(&mut world, QpState::SendQueueDrain);
        let asked = QpAttributes {
            state: Some(QpState::SendQueueDrain),
            max_dest_rd_atomic: Some(after),
            access: Some(AccessFlags::ALL),
            ..QpAttributes::default()
        };
        ends[1].modify(&mut world, &asked).expect("a queue pair that is drained takes it");
        ends[1].move_to(&mut world, QpState::ReadyToSend);
        // READs that were answered come again, with what was kept of them gone or not.
        let reth = Reth { addr: region.addr, rkey: region.key, len: 64 };
        for psn in 0..3 {
            let psn = first_psn().advanced_by(psn);
            world.forge(0, 1, &forge::read_request(ends[1].qpn, psn, reth));
        }
        assert_eq!(ends[1].state(&world), QpState::ReadyToSend, "{before} {after}");
        let exchange = Exchange::post(&mut world, ends, Kind::Read, 700, 3);
        world.settle();
        exchange.check(&world);
        assert!(ends[0].sent(&world).iter().all(|it| it.status == CompletionStatus::Success));
    }
}

#[test]
fn an_opcode_means_nothing_until_the_icrc_is_right() {
    let mut world = World::pair();
    world.keep_timeline(true);
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let region = world.hosts[1].memory.register_filled(PD, 4096, Rights::ALL, 5);
    let before = world.hosts[1].memory.bytes(region).to_vec();
    let reth = Reth { addr: region.addr, rkey: region.key, len: 32 };
    let write = forge::with_reth(opcode::RC_WRITE_ONLY, ends[1].qpn, first_psn(), reth, &[7; 32]);
    let whole = seal_one(&world.outer(0, 1), 1, &write);
    let at = whole.len() - 4 - write.len();
    assert_eq!(whole[at], write[0], "the opcode is the first byte of the packet");
    for code in (0..=255).filter(|code| *code != write[0]) {
        let mut frame = whole.clone();
        frame[at] = code;
        world.inject(1, [&frame]);
        assert!(world.sent(1).is_empty(), "{code:#04x} was answered");
        assert_eq!(ends[1].state(&world), QpState::ReadyToSend, "{code:#04x}");
    }
    assert_eq!(world.hosts[1].memory.bytes(region), before);
    assert!(world.hosts[1].completions.is_empty());
    world.inject(1, [&whole]);
    assert_eq!(&world.hosts[1].memory.bytes(region)[..32], &[7; 32]);
}
