//! Checks of the message sequence number in responses.

use crate::common::*;
use roce_dissect::{Dissection, Finding};
use roce_wire::{Headers, NakCode, opcode};

/// Indexes of frames with a wrong count, and their findings.
fn wrong(frames: &[Vec<u8>]) -> Vec<(usize, Finding)> {
    let counts = |dissection: &Dissection| {
        let is_it = |finding: &&Finding| finding.name() == "message_count";
        dissection.findings.iter().find(is_it).copied()
    };
    let seen = follow(frames);
    seen.iter().enumerate().filter_map(|(i, seen)| Some((i, counts(seen)?))).collect()
}

#[test]
fn a_response_that_continues_the_count_is_correct() {
    let frames = [send(1), ack_of(1, 0xff_ffff), send(2), ack_of(2, 0), send(3), ack_of(3, 1)];
    assert_eq!(wrong(&frames), []);
}

//= test rc-msn
#[test]
fn a_wrong_count_is_reported_once_and_then_continued() {
    let frames = [send(1), ack_of(1, 7), send(2), ack_of(2, 7), send(3), ack_of(3, 8)];
    assert_eq!(wrong(&frames), [(3, Finding::MessageCount { msn: 7, first: 8, last: 8 })]);
    let seen = follow(&frames);
    assert!(seen[3].summary.ends_with("! counts 7 messages, expected 8"), "{}", seen[3].summary);
}

#[test]
fn a_response_may_count_later_messages_but_not_more_than_were_sent() {
    let asked = || vec![send(1), ack_of(1, 1), send(2), send(3), send(4)];
    for (msn, is_right) in [(1, false), (2, true), (3, true), (4, true), (5, false)] {
        let frames = [asked(), vec![ack_of(2, msn)]].concat();
        assert_eq!(wrong(&frames).is_empty(), is_right, "{msn}");
    }
    // The second response has to be consistent with the first.
    let frames = [asked(), vec![ack_of(2, 3), ack_of(4, 5)]].concat();
    assert_eq!(wrong(&frames), [(6, Finding::MessageCount { msn: 5, first: 4, last: 4 })]);
}

//= test rc-msn
#[test]
fn a_message_counts_with_its_last_packet() {
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

/// Some responders count a READ on arrival, others with its last response.
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
fn a_connection_captured_from_its_setup_counts_from_zero() {
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
fn a_nak_and_packets_missing_from_the_capture_are_no_wrong_count() {
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
    // The responder has 2 and 3, but the capture lacks them.
    let missed = [send(1), ack_of(1, 1), send(4), ack_of(4, 4), send(5), ack_of(5, 5)];
    assert_eq!(wrong(&missed), []);
    // The count continues after both.
    let frames = [&refused[..], &[send(5), ack_of(5, 6)]].concat();
    assert_eq!(wrong(&frames).len(), 1);
    let frames = [&missed[..], &[send(6), ack_of(6, 7)]].concat();
    assert_eq!(wrong(&frames).len(), 1);
}

#[test]
fn the_count_of_a_duplicate_response_is_not_checked() {
    let frames =
        [send(1), ack_of(1, 1), send(2), ack_of(2, 2), ack_of(1, 1), send(3), ack_of(3, 3)];
    assert_eq!(wrong(&frames), []);
}
