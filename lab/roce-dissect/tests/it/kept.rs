//! Receivers that keep packets behind a gap.

use crate::common::*;
use roce_dissect::{Connection, Finding};
use roce_wire::{GapReport, GapRun, MAX_GAP_REPORT_LEN, NakCode, Psn, Qpn, opcode};

fn nak_of(psn: u32, msn: u32) -> Vec<u8> {
    tell(counting(nak(psn, NakCode::PsnSequence), msn), &[])
}

fn gap_report(psn: u32, runs: &[(u16, u16)]) -> Vec<u8> {
    let runs = runs.iter().map(|&(missing, kept)| GapRun { missing, kept });
    let mut payload = [0; MAX_GAP_REPORT_LEN];
    let len = GapReport::write(runs, &mut payload);
    let mut headers = headers(opcode::GAP_REPORT, psn);
    headers.bth.dest_qp = Qpn::new(REQUESTER).unwrap();
    tell(headers, &payload[..len])
}

fn found(frames: &[Vec<u8>]) -> Vec<Vec<&'static str>> {
    trouble(&follow(frames))
}

/// Bytes and messages that the receiver accepted.
fn accepted(frames: &[Vec<u8>]) -> (u64, u64) {
    let connection: Connection = run(frames, |_| ()).connections().next().unwrap();
    (connection.forward.good_bytes, connection.forward.messages)
}

#[test]
fn an_ack_that_jumps_over_packets_behind_a_gap_shows_that_they_were_kept() {
    let frames =
        [send(1), ack_of(1, 1), send(3), send(4), send(2), ack_of(4, 4), send(5), ack_of(5, 5)];
    let names = vec!["gap", "behind_gap", "retransmission"];
    let seen = found(&frames);
    assert_eq!(seen[2..5].concat(), names);
    assert_eq!([&seen[..2], &seen[5..]].concat().concat(), [""; 0]);
    assert_eq!(accepted(&frames), (20, 5));
    let text = &follow(&frames)[3].summary;
    assert!(text.ends_with("! kept or dropped: 0x000002 is still missing"), "{text}");
}

#[test]
fn new_packets_behind_a_repaired_gap_follow_those_that_were_kept() {
    let frames = [send(1), send(3), send(4), send(2), send(5)];
    assert_eq!(found(&frames)[4], [""; 0]);
    assert_eq!(accepted(&frames), (20, 5));
}

/// A capture before the loss has the packet that the receiver asks for.
#[test]
fn a_nak_for_a_captured_packet_neither_loses_nor_repeats_what_was_kept() {
    let sent = [send(1), ack_of(1, 1), send(2), send(3), send(4), nak_of(2, 1), send(5)];
    let kept = [&sent[..], &[send(2), ack_of(5, 5), send(6), ack_of(6, 6)]].concat();
    let seen = found(&kept);
    assert_eq!(seen[6], ["behind_gap"]);
    assert_eq!(seen[7], ["retransmission"]);
    assert_eq!(seen[8..].concat(), [""; 0]);
    assert_eq!(accepted(&kept), (24, 6));
    // The same from a receiver that drops them, and so from a requester that sends them again.
    let dropped = [&sent[..], &[send(2), send(3), send(4), send(5), ack_of(5, 5)]].concat();
    assert_eq!(found(&dropped)[7..11].concat(), ["retransmission"; 4]);
    assert_eq!(accepted(&dropped), (20, 5), "each byte once");
}

#[test]
fn an_assumption_that_packets_were_kept_ends_with_a_nak() {
    let frames =
        [send(1), send(3), send(4), send(2), send(5), nak_of(3, 2), send(3), send(4), send(5)];
    let seen = found(&frames);
    assert_eq!(seen[6..].concat(), ["retransmission"; 3]);
    assert_eq!(accepted(&frames), (20, 5));
}

#[test]
fn a_second_gap_behind_the_first_is_reported_with_its_own_packets() {
    let frames = [send(1), send(3), send(6), send(2), send(7)];
    let gap = |expected, missing| Finding::Gap { expected: Psn::wrapping(expected), missing };
    let seen = follow(&frames);
    assert_eq!(seen[1].findings, [gap(2, 1)]);
    assert_eq!(seen[4].findings, [gap(4, 2)], "3 and 6 are in the capture");
    assert_eq!(accepted(&frames[..4]), (8, 2), "3 may have been dropped");
}

#[test]
fn a_gap_report_says_which_captured_packets_are_missing() {
    let sent = [send(1), ack_of(1, 1), send(2), send(3), send(4), send(5)];
    let frames =
        [&sent[..], &[gap_report(2, &[(1, 1), (1, 1)]), send(2), send(4), send(6), ack_of(6, 6)]]
            .concat();
    let seen = found(&frames);
    assert_eq!(seen[7..9].concat(), ["retransmission"; 2]);
    assert_eq!(seen[9..].concat(), [""; 0]);
    assert_eq!(accepted(&frames), (24, 6));
    let open = [&sent[..], &[gap_report(2, &[(1, 1), (1, 1)]), send(2), send(6)]].concat();
    assert_eq!(found(&open)[8], ["gap"], "4 has not been sent again");
}

#[test]
fn a_gap_report_of_packets_that_were_never_sent_or_are_acknowledged_changes_nothing() {
    for report in [gap_report(9, &[(1, 1)]), gap_report(1, &[(1, 1)]), gap_report(0, &[])] {
        let frames = [send(1), ack_of(1, 1), send(2), report, send(3)];
        assert_eq!(found(&frames).concat(), [""; 0]);
        assert_eq!(accepted(&frames), (12, 3));
    }
}

#[test]
fn packets_that_the_capture_lacks_do_not_count_and_those_behind_them_do() {
    let frames = [send(1), send(4), ack_of(4, 4), send(5)];
    assert_eq!(accepted(&frames), (12, 3));
}

#[test]
fn a_read_that_was_kept_is_answered_without_a_second_request() {
    let read = ask(reth(opcode::RC_READ_REQUEST, 3, 88), &[]);
    let syndrome = ack(0).aeth.unwrap().syndrome;
    let data = tell(answer(opcode::RC_READ_RESPONSE_ONLY, 3, syndrome), &[0; 88]);
    let frames = [send(1), read, send(2), data, send(4)];
    let seen = found(&frames);
    assert_eq!(seen[1], ["gap"]);
    assert_eq!(seen[3..].concat(), [""; 0]);
    let connection = run(&frames, |_| ()).connections().next().unwrap();
    assert_eq!((connection.backward.good_bytes, connection.forward.messages), (88, 4));
}
