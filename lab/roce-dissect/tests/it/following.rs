//! Findings that follow from earlier packets.

use crate::common::*;
use roce_dissect::{Connection, Dissector, Finding, Options, RawFrame, Timestamp};
use roce_wire::{NakCode, Operation, Psn, Qpn, opcode};

fn found(frames: &[Vec<u8>]) -> Vec<Vec<&'static str>> {
    trouble(&follow(frames))
}

fn connections(frames: &[Vec<u8>]) -> Vec<Connection> {
    run(frames, |_| ()).connections().collect()
}

#[test]
fn packets_in_order_with_their_responses_have_no_problem() {
    let second = tell(counting(ack(0), 2), &[]);
    let frames = [send(0xff_ffff), tell(ack(0xff_ffff), &[]), send(0), second];
    assert_eq!(found(&frames), vec![[""; 0]; 4]);
    let [connection] = connections(&frames)[..] else { panic!() };
    assert_eq!(connection.a.qp, Qpn::new(REQUESTER));
    assert_eq!(connection.b.qp, Qpn::new(RESPONDER));
    assert_eq!((connection.forward.packets, connection.backward.packets), (2, 2));
    assert_eq!((connection.forward.good_bytes, connection.forward.messages), (8, 2));
    let trips = connection.round_trips.unwrap();
    assert_eq!((trips.count, trips.min.as_nanos()), (2, 1000));
}

//= test rc-psn-order
#[test]
fn a_gap_is_reported_once_and_filled_by_a_retransmission() {
    let frames = [send(1), send(4), send(5), send(2), send(3), send(4), send(5)];
    assert_eq!(
        found(&frames),
        vec![
            vec![],
            vec!["gap"],
            vec!["behind_gap"],
            vec!["retransmission"],
            vec!["retransmission"],
            vec!["retransmission"],
            vec!["retransmission"],
        ]
    );
    let gap = follow(&frames)[1].findings[0];
    assert_eq!(gap, Finding::Gap { expected: Psn::wrapping(2), missing: 2 });
    let [connection] = connections(&frames)[..] else { panic!() };
    assert_eq!((connection.forward.gaps, connection.forward.retransmitted), (1, 4));
    assert_eq!(connection.forward.messages, 5, "each is taken once");
}

#[test]
fn a_packet_that_the_receiver_has_is_a_duplicate() {
    let frames = [send(1), send(2), send(1)];
    assert_eq!(found(&frames)[2], ["duplicate"]);
    assert_eq!(follow(&frames)[2].findings, [Finding::Duplicate { behind: 2 }]);
    let [connection] = connections(&frames)[..] else { panic!() };
    assert_eq!((connection.forward.duplicates, connection.forward.good_bytes), (1, 8));
}

#[test]
fn a_packet_with_a_wrong_icrc_leaves_a_gap() {
    let mut damaged = send(2);
    damaged[60] ^= 1;
    let frames = [send(1), damaged, send(3), send(2)];
    assert_eq!(found(&frames), vec![vec![], vec!["icrc"], vec!["gap"], vec!["retransmission"]]);
}

#[test]
fn a_nak_sets_the_expected_psn_even_if_the_packet_was_captured() {
    let nak = || tell(nak(2, NakCode::PsnSequence), &[]);
    let frames = [send(1), send(2), send(3), nak(), send(2), send(3), tell(ack(3), &[])];
    assert_eq!(
        found(&frames),
        vec![
            vec![],
            vec![],
            vec![],
            vec!["nak"],
            vec!["retransmission"],
            vec!["retransmission"],
            vec![],
        ]
    );
    let last = follow(&frames)[6].findings.clone();
    assert!(matches!(last[..], [Finding::Acknowledges { packets: 2, after: None }]), "{last:?}");
}

#[test]
fn an_rnr_nak_has_a_wait_and_leads_to_a_retransmission() {
    let frames = [send(1), tell(rnr(1), &[]), send(1), tell(ack(1), &[])];
    assert_eq!(found(&frames), vec![vec![], vec!["rnr"], vec!["retransmission"], vec![]]);
    assert!(follow(&frames)[1].summary.contains("wait 640 µs"));
    let [connection] = connections(&frames)[..] else { panic!() };
    assert_eq!(connection.backward.rnrs, 1);
}

#[test]
fn every_nak_code_is_reported() {
    let causes = [
        (NakCode::InvalidRequest, "invalid request"),
        (NakCode::RemoteAccess, "remote access error"),
        (NakCode::RemoteOperational, "remote operational error"),
    ];
    for (code, words) in causes {
        let seen = follow(&[send(1), tell(nak(1, code), &[])]);
        assert!(seen[1].summary.contains(words), "{}", seen[1].summary);
    }
}

#[test]
fn an_ack_counts_all_packets_it_covers_and_an_ack_of_unsent_packets_is_reported() {
    let frames = [send(1), send(2), send(3), tell(ack(3), &[]), tell(ack(9), &[])];
    let seen = follow(&frames);
    assert!(matches!(seen[3].findings[..], [Finding::Acknowledges { packets: 3, .. }]));
    assert_eq!(seen[4].findings, [Finding::GhostAck { ahead: 6 }]);
}

#[test]
fn an_ack_closes_a_gap_that_only_the_capture_has() {
    let frames = [send(1), send(4), tell(ack(4), &[]), send(5)];
    assert_eq!(found(&frames), vec![vec![], vec!["gap"], vec![], vec![]]);
}

//= test rc-opcode-order
#[test]
fn an_opcode_out_of_sequence_is_reported() {
    let first = |psn| ask(headers(opcode::RC_SEND_FIRST, psn), &[0; MTU]);
    let write_last = ask(headers(opcode::RC_WRITE_LAST, 3), b"end!");
    let frames = [send(1), first(2), write_last];
    let seen = follow(&frames);
    let before = Some(opcode::RC_SEND_FIRST.code());
    assert_eq!(seen[2].findings[0], Finding::OpcodeSequence { before });
    let middle = ask(headers(opcode::RC_SEND_MIDDLE, 2), &[0; MTU]);
    let seen = follow(&[send(1), middle]);
    assert_eq!(seen[1].findings[0], Finding::OpcodeSequence { before: None });
}

#[test]
fn a_capture_that_begins_within_a_message_reports_no_problem() {
    let last = ask(headers(opcode::RC_SEND_LAST, 1), b"end!");
    assert_eq!(found(&[last, send(2)]), vec![[""; 0]; 2]);
}

//= test rc-payload-length
#[test]
fn payload_lengths_are_checked_against_the_path_mtu_of_the_first_full_packet() {
    let first = |psn, len| ask(headers(opcode::RC_SEND_FIRST, psn), &vec![0; len]);
    let middle = |psn, len| ask(headers(opcode::RC_SEND_MIDDLE, psn), &vec![0; len]);
    let last = |psn, len| ask(headers(opcode::RC_SEND_LAST, psn), &vec![0; len]);
    let only = |psn, len| ask(headers(opcode::RC_SEND_ONLY, psn), &vec![0; len]);
    let frames = [first(1, 256), middle(2, 512), middle(3, 100), last(4, 0), only(5, 300)];
    assert_eq!(
        found(&frames),
        vec![
            vec![],
            vec!["not_one_mtu"],
            vec!["not_one_mtu"],
            vec!["empty_last"],
            vec!["above_mtu"]
        ]
    );
    assert_eq!(found(&[only(1, 4100)]), vec![vec!["above_mtu"]]);
}

//= test rc-write-length
#[test]
fn a_message_length_that_differs_from_the_reth_is_reported() {
    let frames = |promised| {
        let last = ask(headers(opcode::RC_WRITE_LAST, 2), b"end!");
        [ask(reth(opcode::RC_WRITE_FIRST, 1, promised), &[0; MTU]), last]
    };
    assert_eq!(found(&frames(260)), vec![[""; 0]; 2]);
    let wrong = Finding::MessageLength { promised: 261, carried: 260 };
    assert_eq!(follow(&frames(261))[1].findings[0], wrong);
}

#[test]
fn the_end_of_a_message_has_its_size_time_and_rate() {
    let frames = [
        ask(reth(opcode::RC_WRITE_FIRST, 1, 516), &[0; MTU]),
        ask(headers(opcode::RC_WRITE_MIDDLE, 2), &[0; MTU]),
        ask(headers(opcode::RC_WRITE_LAST, 3), b"end!"),
    ];
    let seen = follow(&frames);
    let Finding::MessageEnd { operation, bytes, packets, took } = seen[2].findings[0] else {
        panic!("{seen:?}")
    };
    assert_eq!((operation, bytes, packets), (Operation::Write, 516, 3));
    assert_eq!(took.as_micros(), 2);
    assert!(seen[2].summary.contains("WRITE of 516 bytes in 3 packets, 2.00 µs, 2.06 Gb/s"));
}

#[test]
fn a_read_is_matched_with_its_response_and_takes_as_many_psns() {
    let answer = |opcode, psn, len| tell(answer(opcode, psn, ACK), &vec![0; len]);
    let plain = |opcode, psn, len| tell(headers(opcode, psn), &vec![0; len]);
    let frames = [
        ask(reth(opcode::RC_READ_REQUEST, 1, 600), &[]),
        answer(opcode::RC_READ_RESPONSE_FIRST, 1, MTU),
        plain(opcode::RC_READ_RESPONSE_MIDDLE, 2, MTU),
        answer(opcode::RC_READ_RESPONSE_LAST, 3, 88),
        send(4),
    ];
    assert_eq!(found(&frames), vec![[""; 0]; 5]);
    let seen = follow(&frames);
    assert!(matches!(
        seen[1].findings[..],
        [Finding::Joined, Finding::Answers { request: 1, .. }]
            | [Finding::Answers { request: 1, .. }]
    ));
    assert!(seen[3].summary.contains("READ of 600 bytes in 3 packets"), "{}", seen[3].summary);
    let [connection] = connections(&frames)[..] else { panic!() };
    assert_eq!(connection.backward.good_bytes, 600);
}

const ACK: roce_wire::Syndrome =
    roce_wire::Syndrome::Ack { credits: roce_wire::Credits::UNLIMITED };

#[test]
fn the_path_mtu_is_learnt_from_the_psn_of_the_request_after_a_read() {
    let read = ask(reth(opcode::RC_READ_REQUEST, 1, 4096), &[]);
    let frames = [read, send(5)];
    assert_eq!(found(&frames), vec![[""; 0]; 2]);
    assert_eq!(connections(&frames)[0].mtu, Some(1024));
}

#[test]
fn a_gap_in_a_read_response_is_reported() {
    let frames = [
        ask(reth(opcode::RC_READ_REQUEST, 1, 768), &[]),
        tell(answer(opcode::RC_READ_RESPONSE_FIRST, 1, ACK), &[0; MTU]),
        tell(answer(opcode::RC_READ_RESPONSE_LAST, 3, ACK), &[0; MTU]),
    ];
    assert_eq!(found(&frames)[2], ["gap"]);
}

#[test]
fn an_atomic_is_matched_with_its_response_and_an_unrequested_one_is_reported() {
    let atomic = |psn| {
        let mut headers = full_headers(opcode::RC_FETCH_ADD);
        headers.bth.psn = Psn::wrapping(psn);
        ask(headers, &[])
    };
    let answer = |psn| {
        let mut headers = full_headers(opcode::RC_ATOMIC_ACKNOWLEDGE);
        headers.bth.psn = Psn::wrapping(psn);
        tell(headers, &[])
    };
    let seen = follow(&[atomic(1), answer(1), answer(1), answer(5)]);
    assert!(matches!(seen[1].findings[..], [Finding::Answers { request: 1, .. }]), "{seen:?}");
    assert_eq!(seen[2].findings, [Finding::Duplicate { behind: 1 }]);
    assert_eq!(seen[3].findings, [Finding::Unrequested]);
}

#[test]
fn a_pause_is_a_stall_only_while_a_response_is_outstanding() {
    let stall = |frames: &[(u64, Vec<u8>)]| {
        let mut dissector = Dissector::new(Options::default());
        let mut seen = Vec::new();
        for (i, (millis, bytes)) in frames.iter().enumerate() {
            let time = Timestamp(millis * 1_000_000);
            let raw = RawFrame { time, ..RawFrame::ethernet(i as u64 + 1, bytes) };
            dissector.handle_frame(raw, |packet| seen.push(packet.dissection()));
        }
        let longest = dissector.connections().next().unwrap().longest_stall;
        (trouble(&seen), longest.as_millis())
    };
    let (found, longest) = stall(&[(0, send(1)), (64, send(1)), (65, tell(ack(1), &[]))]);
    assert_eq!(found, vec![vec![], vec!["stall", "duplicate"], vec![]]);
    assert_eq!(longest, 64);
    let (found, longest) = stall(&[(0, send(1)), (1, tell(ack(1), &[])), (99, send(2))]);
    assert_eq!(found, vec![[""; 0]; 3]);
    assert_eq!(longest, 1);
}

#[test]
fn ecn_marks_and_congestion_notifications_are_counted() {
    let mut marked = send(1);
    marked[15] |= 3;
    marked[24] = 0;
    marked[25] = 0;
    let sum = !marked[14..34]
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum::<u32>();
    let sum = (sum as u16).wrapping_sub(((!sum) >> 16) as u16);
    marked[24..26].copy_from_slice(&sum.to_be_bytes());
    let mut headers = full_headers(opcode::CNP);
    headers.bth.dest_qp = Qpn::new(REQUESTER).unwrap();
    let frames = [marked, tell(ack(1), &[]), tell(headers, &[])];
    assert_eq!(
        found(&frames),
        vec![vec!["congestion_marked"], vec![], vec!["congestion_notified"]]
    );
    let [connection] = connections(&frames)[..] else { panic!() };
    assert_eq!((connection.forward.ecn_marks, connection.backward.cnps), (1, 1));
}

//= test uc-gap
#[test]
fn an_unreliable_connection_continues_after_a_gap_without_the_message() {
    let part = |opcode, psn, len| ask(headers(opcode, psn), &vec![0; len]);
    let frames = [
        part(opcode::UC_SEND_FIRST, 1, MTU),
        part(opcode::UC_SEND_LAST, 3, 4),
        part(opcode::UC_SEND_ONLY, 4, 4),
    ];
    assert_eq!(found(&frames), vec![vec![], vec!["gap", "message_lost"], vec![]]);
}

//= test cm-messages
#[test]
fn connection_management_has_both_queue_pairs_and_their_first_psns() {
    let frames = [
        management(Ip::V4, 0x10, &cm_req(500), false),
        management(Ip::V4, 0x13, &cm_rep(100), true),
        send(101),
    ];
    let seen = follow(&frames);
    assert!(seen[0].summary.contains("CM REQ id 0x194b7b0b"), "{}", seen[0].summary);
    assert!(seen[0].summary.contains("its qp 0x000011 first psn 0x0001f4 mtu 256"));
    assert_eq!(trouble(&seen)[2], ["gap"], "0x64 was to be the first");
    let all = connections(&frames);
    let pair = all.iter().find(|connection| connection.a.qp == Qpn::new(REQUESTER)).unwrap();
    assert_eq!((pair.b.qp, pair.mtu), (Qpn::new(RESPONDER), Some(256)));
}

#[test]
fn two_connections_between_the_same_hosts_are_distinguished_by_their_psns() {
    let other = |mut headers: roce_wire::Headers, qp: u32| {
        headers.bth.dest_qp = Qpn::new(qp).unwrap();
        headers
    };
    let frames = [
        ask(asking(opcode::RC_SEND_ONLY, 100), b"ping"),
        ask(other(asking(opcode::RC_SEND_ONLY, 9000), 0x23), b"ping"),
        tell(other(ack(9000), 0x13), &[]),
        tell(ack(100), &[]),
    ];
    let pairs: Vec<_> =
        connections(&frames).iter().map(|c| (c.a.qp.map(Qpn::get), c.b.qp.map(Qpn::get))).collect();
    assert_eq!(pairs, [(Some(0x11), Some(0x22)), (Some(0x13), Some(0x23))]);
}

#[test]
fn connections_above_the_limit_are_reported_and_not_followed() {
    let mut dissector = Dissector::new(Options { max_flows: 2, ..Options::default() });
    let mut tracked = 0;
    for qp in 2..10 {
        let mut headers = asking(opcode::RC_SEND_ONLY, 1);
        headers.bth.dest_qp = Qpn::new(qp).unwrap();
        let bytes = ask(headers, b"ping");
        dissector.handle_frame(RawFrame::ethernet(1, &bytes), |packet| {
            tracked += usize::from(packet.flow.is_some());
        });
    }
    assert_eq!((tracked, dissector.connections().count()), (2, 2));
}

#[test]
fn a_train_is_followed_packet_by_packet_and_marked_as_a_train() {
    let part = |opcode, psn, len: usize| (headers(opcode, psn), vec![psn as u8; len]);
    let whole = train(
        &there(Ip::V4),
        &[
            part(opcode::RC_SEND_FIRST, 1, MTU),
            part(opcode::RC_SEND_MIDDLE, 2, MTU),
            part(opcode::RC_SEND_MIDDLE, 3, MTU),
            part(opcode::RC_SEND_LAST, 4, 7),
        ],
    );
    let seen = follow(std::slice::from_ref(&whole));
    assert_eq!(trouble(&seen), vec![[""; 0]; 4]);
    assert!(seen[0].summary.contains("(1 of 4 in a train)"), "{}", seen[0].summary);
    assert!(seen[3].summary.contains("SEND of 775 bytes in 4 packets"), "{}", seen[3].summary);

    // One damaged packet leaves the others correct, even if it is the first.
    for damaged in 0..4 {
        let mut frame = whole.clone();
        frame[42 + damaged * 272 + 20 - if damaged == 3 { 4 } else { 0 }] ^= 1;
        let found = trouble(&follow(&[frame]));
        assert_eq!(found.len(), 4);
        let wrong: Vec<bool> = found.iter().map(|names| names.contains(&"icrc")).collect();
        assert_eq!(wrong, (0..4).map(|i| i == damaged).collect::<Vec<_>>());
    }
}

#[test]
fn a_train_with_a_given_segment_length_is_split_there() {
    let part = |psn| (headers(opcode::RC_SEND_ONLY, psn), b"12345678".to_vec());
    let bytes = train(&there(Ip::V6), &[part(1), part(2), part(3)]);
    let raw = RawFrame { segment_len: Some(24), ..RawFrame::ethernet(1, &bytes) };
    let mut dissector = Dissector::new(Options::default());
    dissector.handle_frame(raw, |packet| assert!(packet.roce().unwrap().train.is_some()));
    let totals = dissector.totals();
    assert_eq!((totals.frames, totals.packets, totals.trains, totals.problems), (1, 3, 1, 0));
}

#[test]
fn a_packet_that_ip_or_udp_drops_does_not_reach_the_queue_pair() {
    let mut damaged = send(2);
    damaged[25] ^= 1;
    let frames = [send(1), damaged, send(2)];
    assert_eq!(found(&frames), vec![vec![], vec!["ipv4_checksum"], vec![]]);
}

#[test]
fn a_train_whose_psns_jump_is_split_by_its_icrcs() {
    let acks = [1, 5, 9].map(|psn| (ack(psn), Vec::new()));
    let seen = follow(&[train(&back(Ip::V4), &acks)]);
    assert_eq!(trouble(&seen), vec![[""; 0]; 3]);
}

#[test]
fn a_read_response_of_the_wrong_length_is_reported() {
    let frames = [
        ask(reth(opcode::RC_READ_REQUEST, 1, 100), &[]),
        tell(answer(opcode::RC_READ_RESPONSE_ONLY, 1, ACK), &[0; 40]),
    ];
    let wrong = Finding::MessageLength { promised: 100, carried: 40 };
    assert!(follow(&frames)[1].findings.contains(&wrong));
}

#[test]
fn a_cnp_is_matched_to_the_mark_that_drew_it_and_to_the_sender_that_it_slows_down() {
    let data = |psn, traffic_class| {
        let outer = roce_wire::OuterHeaders { traffic_class, ..there(Ip::V4) };
        frame(&outer, &asking(opcode::RC_SEND_ONLY, psn), b"ping")
    };
    let mut cnp = full_headers(opcode::CNP);
    cnp.bth.dest_qp = Qpn::new(REQUESTER).unwrap();
    let cnp = tell(cnp, &[]);
    // One packet each microsecond.
    let mut frames: Vec<_> = (0..8).map(|psn| data(psn, 0b10)).collect();
    frames.insert(1, tell(ack(0), &[]));
    frames.extend([data(8, 0b11), data(9, 0b11), cnp.clone(), data(10, 0b10), cnp]);
    let [connection] = connections(&frames)[..] else { panic!("two directions of one connection") };
    let reaction = connection.forward_reaction.unwrap();
    assert_eq!((reaction.cnps, reaction.answers), (2, 1), "one of them has no mark before it");
    assert_eq!(reaction.answered_after.unwrap().as_nanos(), 1000);
    assert_eq!(reaction.min_interval.unwrap().as_nanos(), 2000);
    assert!(reaction.rate_before.is_some());
    assert_eq!(reaction.rate_after, None, "one packet has no rate");
    assert_eq!(connection.backward_reaction, None);
}

#[test]
fn a_flush_and_an_atomic_write_are_matched_with_their_empty_responses() {
    for opcode in [opcode::RC_FLUSH, opcode::RC_ATOMIC_WRITE] {
        let request = |psn| {
            let mut headers = full_headers(opcode);
            headers.bth.psn = Psn::wrapping(psn);
            ask(headers, &payload_of(opcode))
        };
        let done = |psn| tell(answer(opcode::RC_READ_RESPONSE_ONLY, psn, ACK), &[]);
        let seen = follow(&[request(1), done(1), done(1), request(2), done(2), done(5)]);
        assert!(matches!(seen[1].findings[..], [Finding::Answers { request: 1, .. }]), "{seen:?}");
        assert_eq!(seen[2].findings, [Finding::Duplicate { behind: 1 }]);
        assert!(matches!(seen[4].findings[..], [Finding::Answers { request: 4, .. }]), "{seen:?}");
        assert_eq!(seen[5].findings, [Finding::Unrequested]);
    }
}

#[test]
fn a_repeated_flush_is_matched_with_its_second_response() {
    let mut flush = full_headers(opcode::RC_FLUSH);
    flush.bth.psn = Psn::wrapping(1);
    let done = || tell(answer(opcode::RC_READ_RESPONSE_ONLY, 1, ACK), &[]);
    let seen = follow(&[ask(flush, &[]), done(), ask(flush, &[]), done()]);
    assert!(matches!(seen[2].findings[..], [Finding::Duplicate { behind: 1 }]), "{seen:?}");
    assert!(matches!(seen[3].findings[..], [Finding::Answers { request: 3, .. }]), "{seen:?}");
}
