//! Findings about malformed packets, one check each.

use crate::common::*;
use roce_dissect::{Action, Finding, LinkType, RawFrame, Severity};
use roce_wire::{Bth, KnownOpcode, NakCode, Pad, opcode};

fn names(frame: &[u8]) -> Vec<&'static str> {
    alone(frame).findings.iter().map(Finding::name).collect()
}

/// A SEND of five bytes, changed, with its ICRC recomputed.
fn resealed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = sample(opcode::RC_SEND_ONLY, Ip::V4);
    change(&mut frame);
    reseal(&mut frame);
    frame
}

fn reseal(frame: &mut [u8]) {
    let end = frame.len() - 4;
    let udp = frame[34..42].try_into().unwrap();
    let id = u16::from_be_bytes([frame[18], frame[19]]);
    let icrc = roce_wire::expected_icrc(&frame[14..34], udp, id, &frame[42..end]).unwrap();
    frame[end..].copy_from_slice(&icrc.to_le_bytes());
}

#[test]
fn a_correct_packet_of_any_opcode_and_encapsulation_has_no_finding() {
    for opcode in KnownOpcode::all() {
        for frame in [sample(opcode, Ip::V4), sample(opcode, Ip::V6), sample_v1(opcode)] {
            for tags in 0..=2 {
                assert_eq!(names(&tagged(frame.clone(), tags)), [""; 0], "{opcode}");
            }
        }
    }
}

#[test]
fn a_wrong_icrc_is_reported_with_the_correct_one() {
    let mut frame = sample(opcode::RC_SEND_ONLY, Ip::V4);
    let end = frame.len();
    let right = u32::from_le_bytes(frame[end - 4..].try_into().unwrap());
    frame[end - 1] ^= 0x80;
    let findings = alone(&frame).findings;
    assert_eq!(findings, [Finding::Icrc { carried: right ^ 0x8000_0000, expected: right }]);
    assert_eq!(findings[0].severity(), Severity::Problem);
}

#[test]
fn a_flip_of_any_bit_that_the_icrc_covers_is_found() {
    let good = sample(opcode::RC_SEND_ONLY, Ip::V4);
    for bit in 8 * 42..8 * good.len() {
        let mut frame = good.clone();
        frame[bit / 8] ^= 1 << (bit % 8);
        // The ICRC covers byte 4 of the BTH as ones: routers may change it.
        let covered = bit / 8 != 42 + 4;
        assert_eq!(names(&frame).contains(&"icrc"), covered, "bit {bit}");
    }
}

#[test]
fn an_ipv4_header_checksum_is_checked_and_the_right_one_said() {
    let mut frame = sample(opcode::RC_SEND_ONLY, Ip::V4);
    let right = u16::from_be_bytes([frame[24], frame[25]]);
    frame[24] ^= 0x10;
    let wrong = Finding::Ipv4Checksum { carried: right ^ 0x1000, expected: right };
    assert_eq!(alone(&frame).findings, [wrong]);
}

#[test]
fn an_ipv4_header_checksum_of_zero_is_a_network_cards_to_fill_in() {
    let mut frame = sample(opcode::RC_SEND_ONLY, Ip::V4);
    frame[24..26].fill(0);
    let seen = alone(&frame);
    assert_eq!(seen.findings, []);
    let ip = seen.layers.iter().find(|layer| layer.name == "IPv4").unwrap();
    assert!(ip.field("checksum").unwrap().note.starts_with("offloaded"));
}

fn udp_sum(frame: &[u8], payload: bool) -> u16 {
    let mut sum: u32 = 17 + (frame.len() as u32 - 34);
    let end = if payload { frame.len() } else { 34 };
    let words = frame[26..34].chunks(2).chain(if payload {
        frame[34..40].chunks(2).chain(frame[42..end].chunks(2))
    } else {
        frame[34..34].chunks(2).chain(frame[34..34].chunks(2))
    });
    for word in words {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[test]
fn a_udp_checksum_is_correct_wrong_or_offloaded() {
    let plain = sample(opcode::RC_SEND_ONLY, Ip::V4);
    let with = |checksum: u16| {
        let mut frame = plain.clone();
        frame[40..42].copy_from_slice(&checksum.to_be_bytes());
        frame
    };
    let right = !udp_sum(&plain, true);
    let note = |frame: &[u8]| {
        let layers = alone(frame).layers;
        let udp = layers.into_iter().find(|layer| layer.name == "UDP").unwrap();
        udp.field("checksum").unwrap().note.to_string()
    };
    assert_eq!(note(&plain), "none: the ICRC covers the packet");
    assert_eq!(note(&with(right)), "right");
    assert!(note(&with(udp_sum(&plain, false))).starts_with("offloaded"));
    assert_eq!(names(&with(udp_sum(&plain, false))), [""; 0]);
    let wrong = Finding::UdpChecksum { carried: right ^ 1, expected: right };
    assert_eq!(alone(&with(right ^ 1)).findings, [wrong]);
}

#[test]
fn lengths_that_disagree_are_reported() {
    // The UDP length is more, or less, than the IP payload.
    for change in [-4i16, 4] {
        let frame = {
            let mut frame = sample(opcode::RC_SEND_ONLY, Ip::V4);
            let udp = u16::from_be_bytes([frame[38], frame[39]]).wrapping_add_signed(change);
            frame[38..40].copy_from_slice(&udp.to_be_bytes());
            frame
        };
        assert!(names(&frame).contains(&"udp_length"), "{change}");
    }
    // The IP length exceeds the frame.
    let mut frame = sample(opcode::RC_SEND_ONLY, Ip::V4);
    frame.truncate(frame.len() - 4);
    assert!(names(&frame).contains(&"ip_length"));
}

#[test]
fn a_payload_on_an_opcode_without_one_is_reported() {
    let frame = {
        let mut headers = ack(1);
        headers.bth.opcode = opcode::RC_SEND_ONLY;
        headers.aeth = None;
        let mut frame = frame(&back(Ip::V4), &headers, &[0x1f, 0, 0, 1, 9, 9, 9, 9]);
        frame[42] = opcode::RC_ACKNOWLEDGE.code().0;
        reseal(&mut frame);
        frame
    };
    assert_eq!(names(&frame), ["drop_unexpected_payload"]);
}

//= test wire-pad
#[test]
fn a_pad_that_is_not_zero_or_exceeds_the_payload_is_reported() {
    let not_zero = resealed(|frame| {
        let end = frame.len();
        frame[end - 5] = 1;
    });
    assert_eq!(names(&not_zero), ["pad_not_zero"]);
    assert_eq!(Finding::PadNotZero.severity(), Severity::Notice);
    let mut headers = headers(opcode::RC_SEND_ONLY, 1);
    headers.bth.pad = Pad::new(3).unwrap();
    let mut frame = frame(&there(Ip::V4), &headers, &[]);
    frame[43] |= 0x30;
    reseal(&mut frame);
    assert_eq!(names(&frame), ["drop_pad"]);
}

//= test wire-bth-reserved
#[test]
fn reserved_bits_are_reported_and_harmless() {
    for (at, mask) in [(42 + 4, 0x10u8), (42 + 8, 0x01)] {
        let frame = resealed(|frame| frame[at] |= mask);
        assert_eq!(names(&frame), ["reserved_bits"]);
        assert_eq!(alone(&frame).findings[0].severity(), Severity::Notice);
    }
    let mut cnp = sample(opcode::CNP, Ip::V4);
    cnp[42 + 20] = 7;
    reseal(&mut cnp);
    assert_eq!(names(&cnp), ["reserved_bits"]);
}

#[test]
fn an_unknown_opcode_and_an_unknown_version_are_reported() {
    assert_eq!(names(&resealed(|frame| frame[42] = 0x15)), ["drop_unknown_opcode"]);
    assert_eq!(names(&resealed(|frame| frame[43] |= 0x02)), ["drop_bth_version"]);
}

#[test]
fn a_snaplen_leaves_the_headers_readable_and_the_icrc_unchecked() {
    let whole = sample(opcode::RC_WRITE_FIRST, Ip::V4);
    for len in 1..whole.len() {
        let raw =
            RawFrame { original_len: whole.len() as u32, ..RawFrame::ethernet(1, &whole[..len]) };
        let mut dissector = roce_dissect::Dissector::new(roce_dissect::Options::default());
        let mut seen = 0;
        dissector.handle_frame(raw, |packet| {
            seen += 1;
            assert!(packet.findings.iter().any(|f| f.name() == "truncated"), "{len}");
            if let Some(roce) = packet.roce() {
                assert_eq!(roce.headers.is_some(), len >= 70, "{len}");
                let wrong = packet.findings.iter().find(|f| f.severity() == Severity::Problem);
                assert_eq!(wrong.is_some(), len < 70, "{len}: {wrong:?}");
                assert_eq!(roce.psn().is_some(), len >= 54);
            }
            assert!(packet.layers().iter().all(|layer| layer.range.end <= len));
        });
        assert_eq!(seen, 1);
    }
}

#[test]
fn other_protocols_are_named() {
    let mut arp = vec![0xff; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(alone(&arp).summary, "ARP");
    let mut tcp = sample(opcode::RC_SEND_ONLY, Ip::V4);
    tcp[23] = 6;
    assert_eq!(alone(&tcp).summary, "10.9.0.2 > 10.9.0.1 TCP");
    let mut dns = sample(opcode::RC_SEND_ONLY, Ip::V6);
    dns[56..58].copy_from_slice(&[0, 53]);
    assert_eq!(alone(&dns).summary, "fd00:9::2 > fd00:9::1 UDP 53823 > 53");
    assert_eq!(alone_on(LinkType::Other(105), &dns).summary, "link type 105 is not read");
}

//= test wire-fragment-dropped
#[test]
fn a_fragment_is_reported() {
    let mut first = sample(opcode::RC_SEND_ONLY, Ip::V4);
    first[20] |= 0x20;
    assert!(names(&first).contains(&"fragment"));
    let mut later = sample(opcode::RC_SEND_ONLY, Ip::V4);
    later[21] = 9;
    assert_eq!(alone(&later).summary, "10.9.0.2 > 10.9.0.1 IP fragment");
}

#[test]
fn pause_frames_are_described() {
    assert_eq!(alone(&pause(7)).summary, "pause 7 quanta");
    assert_eq!(alone(&pause(0)).summary, "pause ends");
    assert_eq!(alone(&pfc()).summary, "PFC priority 3 pauses 65535 quanta priority 4 goes on");
    assert_eq!(alone(&tagged(pause(7), 1)).summary, "pause 7 quanta");
    assert_eq!(names(&pfc()[..20]), ["drop_short_ethernet"]);
    let mut reserved = pfc();
    reserved[16] = 1;
    assert_eq!(names(&reserved), ["reserved_bits"]);
}

#[test]
fn an_explanation_gives_the_first_reason_to_drop() {
    let mut action = None;
    let mut wrong = sample(opcode::RC_SEND_ONLY, Ip::V4);
    wrong[60] ^= 1;
    run(&[wrong], |packet| action = Some(packet.explain()));
    let explanation = action.unwrap();
    assert_eq!(explanation.action, Action::Drop);
    assert!(explanation.reasons.last().unwrap().starts_with("ICRC:"), "{explanation:?}");
}

#[test]
fn an_explanation_follows_from_the_receivers_state() {
    let send = |psn| frame(&there(Ip::V4), &asking(opcode::RC_SEND_ONLY, psn), b"ping");
    let read = |psn| frame(&there(Ip::V4), &reth(opcode::RC_READ_REQUEST, psn, 4), &[]);
    let answer = |headers| frame(&back(Ip::V4), &headers, &[]);
    let middle = frame(&there(Ip::V4), &headers(opcode::RC_SEND_MIDDLE, 3), &[0; MTU]);
    let ud = sample(opcode::UD_SEND_ONLY, Ip::V4);
    let cases = [
        (send(1), Action::Accept, "4 bytes go to a posted receive"),
        (send(2), Action::Accept, "as requested"),
        (send(1), Action::Repeat, "repeats the acknowledgement"),
        (send(5), Action::Nak, "NAK PSN sequence error for 0x000003"),
        (send(6), Action::KeepOrDrop, "until 0x000003 arrives"),
        (middle, Action::Accept, "bytes go to a posted receive"),
        (answer(nak(3, NakCode::PsnSequence)), Action::Accept, "retransmits 0x000003"),
        (read(3), Action::Accept, "reads the memory and sends"),
        (read(3), Action::Repeat, "reads the memory again"),
        (answer(rnr(3)), Action::Accept, "waits 640 µs"),
        (answer(ack(200)), Action::Drop, "never sent"),
        (ud, Action::Accept, "next posted receive"),
        (sample(opcode::CNP, Ip::V4), Action::Accept, "reduces its rate"),
        (pfc(), Action::Ignore, "stops sending"),
    ];
    let frames: Vec<Vec<u8>> = cases.iter().map(|case| case.0.clone()).collect();
    let mut explanations = Vec::new();
    run(&frames, |packet| explanations.push(packet.explain()));
    for ((_, action, words), explanation) in cases.iter().zip(&explanations) {
        assert_eq!(explanation.action, *action, "{explanation:?}");
        assert!(explanation.verdict.contains(words), "{words}: {explanation:?}");
    }
}

#[test]
fn the_first_packet_of_a_capture_may_begin_a_message_or_continue_one() {
    let cases = [
        (sample(opcode::RC_SEND_ONLY, Ip::V4), "Opcode: begins a message."),
        (sample(opcode::RC_SEND_FIRST, Ip::V4), "Opcode: begins a message."),
        (sample(opcode::RC_SEND_MIDDLE, Ip::V4), "Opcode: the first packet of the message was not"),
    ];
    for (frame, expected) in cases {
        run(&[frame], |packet| {
            let reasons = packet.explain().reasons;
            assert!(reasons.iter().any(|reason| reason.starts_with(expected)), "{reasons:?}");
        });
    }
}

#[test]
fn headers_are_read_as_they_were_written() {
    let bth: Bth = full_headers(opcode::RC_WRITE_ONLY_IMMEDIATE).bth;
    run(&[sample(opcode::RC_WRITE_ONLY_IMMEDIATE, Ip::V6)], |packet| {
        let roce = packet.roce().unwrap();
        let mut read = roce.headers.unwrap();
        read.bth.pad = bth.pad;
        assert_eq!(read, full_headers(opcode::RC_WRITE_ONLY_IMMEDIATE));
        assert_eq!(roce.payload, b"hello");
    });
}

#[test]
fn an_atomic_write_or_flush_that_a_responder_refuses_is_explained() {
    let action = |change: &dyn Fn(&mut roce_wire::Headers), payload: &[u8]| {
        let opcode = match payload {
            [] => opcode::RC_FLUSH,
            _ => opcode::RC_ATOMIC_WRITE,
        };
        let mut headers = full_headers(opcode);
        change(&mut headers);
        let mut action = None;
        let packet = frame(&there(Ip::V4), &headers, payload);
        run(&[packet], |packet| action = Some(packet.explain().action));
        action.unwrap()
    };
    let address = |address| {
        move |headers: &mut roce_wire::Headers| {
            headers.reth = headers.reth.map(|reth| roce_wire::Reth { addr: address, ..reth });
        }
    };
    assert_eq!(action(&|_| (), b"one word"), Action::Accept);
    assert_eq!(action(&|_| (), b"more than a word"), Action::Nak);
    assert_eq!(action(&address(0x1004), b"one word"), Action::Nak);
    assert_eq!(action(&|_| (), b""), Action::Accept);
    let reserved = |headers: &mut roce_wire::Headers| {
        headers.feth = Some(roce_wire::Feth::from_bytes(&[0, 0, 0, 0x21]));
    };
    assert_eq!(action(&reserved, b""), Action::Nak);
}
