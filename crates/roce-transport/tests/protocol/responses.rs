//! Responses that no honest peer sends: they complete nothing that was not done.

use roce_fabric::{Fate, Impairment};
use roce_transport::{CompletionStatus, QpState};
use roce_wire::{KnownOpcode, NakCode, Psn, Syndrome, opcode};

use crate::common::connection::{DEFAULT, End, FIRST_PSN, Options, connect, timeout};
use crate::common::exchange::{Exchange, Kind};
use crate::common::forge;
use crate::common::world::World;

/// Node 0 has sent `count` messages of `kind` to which the liar alone responds.
fn waiting(kind: Kind, len: usize, count: usize) -> (World, [End; 2], Exchange) {
    let mut world = World::pair();
    world.keep_timeline(true);
    let options = Options { ack_timeout: timeout(20), ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 1000]));
    let exchange = Exchange::post(&mut world, ends, kind, len, count);
    (world, ends, exchange)
}

fn psn(index: i32) -> Psn {
    Psn::wrapping((FIRST_PSN as i32 + index) as u32 & 0xff_ffff)
}

fn moved(world: &mut World, packet: &[u8]) -> Vec<&'static str> {
    let before: Vec<_> = world.hosts[0].endpoint.counters().iter().collect();
    world.forge(1, 0, packet);
    let after = world.hosts[0].endpoint.counters().iter();
    let moved = after.zip(before).filter(|((_, now), (_, then))| now != then);
    moved.map(|((name, _), _)| name).filter(|name| *name != "rcvd_pkts").collect()
}

/// `packet` changes nothing but a counter.
#[track_caller]
fn ignored(world: &mut World, end: End, packet: &[u8]) {
    let sent = world.sent(0).len();
    let moved = moved(world, packet);
    assert_eq!(moved.len(), 1, "one named counter: {moved:?}");
    assert_eq!(end.sent(world), [], "nothing completes");
    assert_eq!(end.state(world), QpState::ReadyToSend);
    assert_eq!(world.sent(0).len(), sent, "nothing is sent again");
    assert_eq!(world.hosts[0].memory.bytes_written(), 0);
}

//= test rc-response-ghost
#[test]
fn an_ack_from_the_future_completes_nothing() {
    let (mut world, ends, _) = waiting(Kind::Write, 600, 2);
    for index in [6, 7, 1000, (Psn::HALF - 1) as i32] {
        let packet = forge::acknowledge(ends[0].qpn, psn(index), forge::ACK);
        ignored(&mut world, ends[0], &packet);
    }
    // The honest one does.
    world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn(5), forge::ACK));
    assert_eq!(ends[0].sent(&world).len(), 2);
}

//= test rc-response-duplicate
#[test]
fn an_ack_from_the_past_completes_nothing() {
    let (mut world, ends, _) = waiting(Kind::Write, 600, 2);
    for index in [-1, -2, -1000, 1 - Psn::HALF as i32] {
        let packet = forge::acknowledge(ends[0].qpn, psn(index), forge::ACK);
        ignored(&mut world, ends[0], &packet);
    }
}

#[test]
fn a_nak_for_a_psn_never_sent_is_ignored() {
    for code in [NakCode::PsnSequence, NakCode::InvalidRequest, NakCode::RemoteAccess] {
        let (mut world, ends, _) = waiting(Kind::Write, 600, 2);
        for index in [7, 1000, -2, -1000] {
            let packet = forge::acknowledge(ends[0].qpn, psn(index), forge::nak(code));
            ignored(&mut world, ends[0], &packet);
        }
    }
    let (mut world, ends, _) = waiting(Kind::Send, 600, 2);
    for index in [6, 1000, -2, -1000] {
        let packet = forge::acknowledge(ends[0].qpn, psn(index), forge::rnr(1));
        ignored(&mut world, ends[0], &packet);
    }
}

#[test]
fn unexpected_responses_are_ignored() {
    for kind in [Kind::Send, Kind::Write] {
        let (mut world, ends, _) = waiting(kind, 600, 2);
        for code in responses() {
            for index in 0..6 {
                let packet = forge::response(code, ends[0].qpn, psn(index), forge::ACK, &[]);
                ignored(&mut world, ends[0], &packet);
            }
        }
    }
    // Nor does a queue pair at rest want any.
    let mut world = World::pair();
    world.keep_timeline(true);
    let ends = connect(&mut world, [0, 1], DEFAULT);
    for code in responses().chain([opcode::RC_ACKNOWLEDGE]) {
        for index in [-1, 0, 1] {
            let packet = forge::response(code, ends[0].qpn, psn(index), forge::ACK, &[]);
            ignored(&mut world, ends[0], &packet);
        }
    }
}

fn responses() -> impl Iterator<Item = KnownOpcode> {
    [
        opcode::RC_READ_RESPONSE_FIRST,
        opcode::RC_READ_RESPONSE_MIDDLE,
        opcode::RC_READ_RESPONSE_LAST,
        opcode::RC_READ_RESPONSE_ONLY,
        opcode::RC_ATOMIC_ACKNOWLEDGE,
    ]
    .into_iter()
}

//= test rc-nak-status
#[test]
fn each_refusal_becomes_its_own_completion_status() {
    let cases = [
        (NakCode::InvalidRequest, CompletionStatus::RemoteInvalidRequest),
        (NakCode::RemoteAccess, CompletionStatus::RemoteAccessError),
        (NakCode::RemoteOperational, CompletionStatus::RemoteOperationError),
    ];
    for (code, status) in cases {
        for kind in [Kind::Send, Kind::Write, Kind::Read, Kind::FetchAdd] {
            let (mut world, ends, _) = waiting(kind, 200, 3);
            // The second is refused: so the first was done. (A READ or atomic says so itself.)
            let second = !matches!(kind, Kind::Read | Kind::FetchAdd);
            let at = psn(i32::from(second));
            world.forge(1, 0, &forge::acknowledge(ends[0].qpn, at, forge::nak(code)));
            let flushed = CompletionStatus::WorkRequestFlushed;
            let statuses: Vec<_> = ends[0].sent(&world).iter().map(|it| it.status).collect();
            let expected = match second {
                true => [CompletionStatus::Success, status, flushed],
                false => [status, flushed, flushed],
            };
            assert_eq!(statuses, expected, "{kind:?}\n{}", world.report());
            assert_eq!(ends[0].state(&world), QpState::Error);
        }
    }
}

#[test]
fn a_syndrome_without_meaning_never_completes_anything_as_a_success() {
    for byte in (0x40..0x60).chain(0x65..=0xff) {
        let (mut world, ends, _) = waiting(Kind::Write, 200, 3);
        let syndrome = Syndrome::from_byte(byte);
        world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn(1), syndrome));
        // A reserved NAK code still acknowledges what came before; nothing else may succeed.
        let successes =
            ends[0].sent(&world).iter().filter(|it| it.status == CompletionStatus::Success).count();
        let may = usize::from(byte >> 5 == 0b011);
        assert!(successes <= may, "{byte:#x}: {}", world.report());
    }
}

//= test rc-read-response-len
#[test]
fn a_read_response_of_the_wrong_length_or_place_ends_the_read_and_touches_nothing_outside() {
    // A READ of 700 bytes at a path MTU of 256: 256, 256, 188.
    let cases: [&[(KnownOpcode, usize)]; 12] = [
        &[(opcode::RC_READ_RESPONSE_ONLY, 700)],
        &[(opcode::RC_READ_RESPONSE_ONLY, 256)],
        &[(opcode::RC_READ_RESPONSE_ONLY, 0)],
        &[(opcode::RC_READ_RESPONSE_FIRST, 255)],
        &[(opcode::RC_READ_RESPONSE_FIRST, 0)],
        &[(opcode::RC_READ_RESPONSE_FIRST, 512)],
        &[(opcode::RC_READ_RESPONSE_FIRST, 256), (opcode::RC_READ_RESPONSE_LAST, 188)],
        &[(opcode::RC_READ_RESPONSE_FIRST, 256), (opcode::RC_READ_RESPONSE_LAST, 256)],
        &[
            (opcode::RC_READ_RESPONSE_FIRST, 256),
            (opcode::RC_READ_RESPONSE_MIDDLE, 256),
            (opcode::RC_READ_RESPONSE_MIDDLE, 188),
        ],
        &[
            (opcode::RC_READ_RESPONSE_FIRST, 256),
            (opcode::RC_READ_RESPONSE_MIDDLE, 256),
            (opcode::RC_READ_RESPONSE_LAST, 189),
        ],
        &[
            (opcode::RC_READ_RESPONSE_FIRST, 256),
            (opcode::RC_READ_RESPONSE_MIDDLE, 256),
            (opcode::RC_READ_RESPONSE_LAST, 187),
        ],
        &[
            (opcode::RC_READ_RESPONSE_FIRST, 256),
            (opcode::RC_READ_RESPONSE_MIDDLE, 256),
            (opcode::RC_READ_RESPONSE_MIDDLE, 256),
        ],
    ];
    for responses in cases {
        let (mut world, ends, _) = waiting(Kind::Read, 700, 1);
        for (i, (code, len)) in responses.iter().enumerate() {
            let data = vec![0xbb; *len];
            let packet = forge::response(*code, ends[0].qpn, psn(i as i32), forge::ACK, &data);
            world.forge(1, 0, &packet);
        }
        let statuses: Vec<_> = ends[0].sent(&world).iter().map(|it| it.status).collect();
        let bad = CompletionStatus::BadResponse;
        assert_eq!(statuses, [bad], "{responses:?}\n{}", world.report());
        assert!(world.hosts[0].memory.bytes_written() <= 700);
        world.assert_guards_untouched();
    }
}

//= test rc-response-kind
#[test]
fn a_read_response_to_an_atomic_or_an_atomic_response_to_a_read_is_no_success() {
    let cases = [
        (Kind::Read, opcode::RC_ATOMIC_ACKNOWLEDGE),
        (Kind::FetchAdd, opcode::RC_READ_RESPONSE_ONLY),
        (Kind::FetchAdd, opcode::RC_READ_RESPONSE_FIRST),
        (Kind::FetchAdd, opcode::RC_ACKNOWLEDGE),
        (Kind::Read, opcode::RC_ACKNOWLEDGE),
    ];
    for (kind, code) in cases {
        let (mut world, ends, _) = waiting(kind, 8, 1);
        let data: &[u8] = if code.info().carries_payload() { &[1; 8] } else { &[] };
        world.forge(1, 0, &forge::response(code, ends[0].qpn, psn(0), forge::ACK, data));
        let succeeded =
            ends[0].sent(&world).iter().any(|it| it.status == CompletionStatus::Success);
        assert!(!succeeded, "{kind:?} answered by {code:?}");
        assert_eq!(world.hosts[0].memory.bytes_written(), 0);
    }
}

//= test rc-implied-nak
#[test]
fn an_ack_behind_a_read_without_response_does_not_complete_the_read() {
    let (mut world, ends, _) = waiting(Kind::Read, 8, 1);
    let behind = Exchange::post(&mut world, ends, Kind::Write, 8, 1);
    world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn(1), forge::ACK));
    assert_eq!(ends[0].sent(&world), [], "{}", world.report());
    // It shows that the response was lost, so the READ is asked for again.
    world.set_impairment(0, Impairment::default());
    world.run_until(|world| behind.is_done(world));
    let statuses: Vec<_> = ends[0].sent(&world).iter().map(|it| it.status).collect();
    assert_eq!(statuses, [CompletionStatus::Success; 2]);
}
