//! Whether answers count the messages that their responder has done with.

mod common;

use common::*;
use roce_dissect::{Dissection, Finding};
use roce_wire::{Headers, NakCode, opcode};

fn ask(headers: Headers, payload: &[u8]) -> Vec<u8> {
    frame(&there(Ip::V4), &headers, payload)
}

fn tell(headers: Headers, payload: &[u8]) -> Vec<u8> {
    frame(&back(Ip::V4), &headers, payload)
}

/// A SEND of one packet that asks for an acknowledgement.
fn send(psn: u32) -> Vec<u8> {
    ask(asking(opcode::RC_SEND_ONLY, psn), b"ping")
}

fn ack_of(psn: u32, msn: u32) -> Vec<u8> {
    tell(counting(ack(psn), msn), &[])
}

/// Frames with a wrong count, from 0, and what is found there.
fn wrong(frames: &[Vec<u8>]) -> Vec<(usize, Finding)> {
    let counts = |dissection: &Dissection| {
        let is_it = |finding: &&Finding| finding.name() == "message_count";
        dissection.findings.iter().find(is_it).copied()
    };
    let seen = follow(frames);
    seen.iter().enumerate().filter_map(|(i, seen)| Some((i, counts(seen)?))).collect()
}

#[test]
fn an_answer_that_counts_on_from_the_one_before_is_right() {
    let frames = [send(1), ack_of(1, 0xff_ffff), send(2), ack_of(2, 0), send(3), ack_of(3, 1)];
    assert_eq!(wrong(&frames), []);
}

#[test]
fn an_answer_that_counts_otherwise_is_found_once_and_learnt_from() {
    let frames = [send(1), ack_of(1, 7), send(2), ack_of(2, 7), send(3), ack_of(3, 8)];
    assert_eq!(wrong(&frames), [(3, Finding::MessageCount { msn: 7, first: 8, last: 8 })]);
    let seen = follow(&frames);
    assert!(seen[3].summary.ends_with("! counts 7 messages, expected 8"), "{}", seen[3].summary);
}

#[test]
fn an_answer_may_count_what_came_since_and_not_what_never_came() {
    let asked = || vec![send(1), ack_of(1, 1), send(2), send(3), send(4)];
    for (msn, is_right) in [(1, false), (2, true), (3, true), (4, true), (5, false)] {
        let frames = [asked(), vec![ack_of(2, msn)]].concat();
        assert_eq!(wrong(&frames).is_empty(), is_right, "{msn}");
    }
    // What the first told has to fit what the next tells.
    let frames = [asked(), vec![ack_of(2, 3), ack_of(4, 5)]].concat();
    assert_eq!(wrong(&frames), [(6, Finding::MessageCount { msn: 5, first: 4, last: 4 })]);
}

#[test]
fn a_message_counts_when_its_last_packet_has_come() {
    let whole = vec![7; MTU];
    let first = Headers {
        bth: asking(opcode::RC_WRITE_FIRST, 2).bth,
        ..reth(opcode::RC_WRITE_FIRST, 2, MTU as u32 + 1)
    };
    for (early, is_right) in [(1, true), (2, false)] {
        let frames = [
            send(1),
            ack_of(1, 1),
            ask(first, &whole),
            ack_of(2, early),
            ask(asking(opcode::RC_WRITE_LAST, 3), &whole[..1]),
            ack_of(3, 2),
        ];
        let found = wrong(&frames);
        assert_eq!(found.first().is_none_or(|(at, _)| *at != 3), is_right, "{found:?}");
    }
}

/// Some responders count a READ when it comes, others when they have answered all of it.
#[test]
fn a_read_may_be_counted_early_or_late() {
    let read = || ask(reth(opcode::RC_READ_REQUEST, 2, MTU as u32 + 1), &[]);
    let whole = vec![7; MTU];
    let part = |opcode, psn, msn| counting(answer(opcode, psn, ack(0).aeth.unwrap().syndrome), msn);
    for (early, late, is_right) in [(1, 2, true), (2, 2, true), (3, 3, false), (0, 2, false)] {
        let frames = [
            send(1),
            ack_of(1, 1),
            read(),
            tell(part(opcode::RC_READ_RESPONSE_FIRST, 2, early), &whole),
            tell(part(opcode::RC_READ_RESPONSE_LAST, 3, late), &whole[..1]),
        ];
        assert_eq!(wrong(&frames).is_empty(), is_right, "{early} {late}: {:?}", wrong(&frames));
    }
}

#[test]
fn a_connection_whose_making_was_seen_counts_from_zero() {
    let making = || {
        vec![
            management(Ip::V4, 0x10, &cm_req(5), false),
            management(Ip::V4, 0x13, &cm_rep(9), true),
        ]
    };
    for (msn, is_right) in [(1, true), (2, false)] {
        let frames = [making(), vec![send(9), ack_of(9, msn)]].concat();
        assert_eq!(wrong(&frames).is_empty(), is_right, "{msn}");
    }
}

#[test]
fn what_was_refused_and_what_was_missed_is_no_reason_to_complain() {
    let refused = [
        send(1),
        ack_of(1, 1),
        send(2),
        send(3),
        tell(counting(nak(2, NakCode::PsnSequence), 1), &[]),
        send(2),
        send(3),
        ack_of(3, 3),
        send(4),
        ack_of(4, 4),
    ];
    assert_eq!(wrong(&refused), []);
    // 2 and 3 are not in the capture, and the responder has them.
    let missed = [send(1), ack_of(1, 1), send(4), ack_of(4, 4), send(5), ack_of(5, 5)];
    assert_eq!(wrong(&missed), []);
    // And both are counted on from.
    let frames = [&refused[..], &[send(5), ack_of(5, 6)]].concat();
    assert_eq!(wrong(&frames).len(), 1);
    let frames = [&missed[..], &[send(6), ack_of(6, 7)]].concat();
    assert_eq!(wrong(&frames).len(), 1);
}

#[test]
fn an_answer_that_tells_nothing_new_is_not_held_to_its_count() {
    let frames =
        [send(1), ack_of(1, 1), send(2), ack_of(2, 2), ack_of(1, 1), send(3), ack_of(3, 3)];
    assert_eq!(wrong(&frames), []);
}
