//! Outer headers: link types, VLAN tags, options, extension headers.

use crate::common::*;
use roce_dissect::{Finding, IcrcSkipped, LinkType, Severity};
use roce_wire::{KnownOpcode, opcode};

/// The same IP packet after another link header.
fn relinked(link: LinkType, frame: &[u8]) -> Vec<u8> {
    let (ether_type, ip) = (&frame[12..14], &frame[14..]);
    let head: Vec<u8> = match link {
        LinkType::LinuxCooked => {
            [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 2, 0, 0][..], ether_type].concat()
        }
        LinkType::LinuxCooked2 => {
            [ether_type, &[0, 0, 0, 0, 0, 7, 0, 1, 4, 6, 2, 0, 0, 0, 0, 2, 0, 0]].concat()
        }
        _ => Vec::new(),
    };
    [&head, ip].concat()
}

#[test]
fn every_link_type_yields_the_same_packet() {
    for ip in [Ip::V4, Ip::V6] {
        let frame = sample(opcode::RC_WRITE_ONLY, ip);
        let ethernet = alone(&frame);
        for link in [LinkType::LinuxCooked, LinkType::LinuxCooked2, LinkType::RawIp] {
            let seen = alone_on(link, &relinked(link, &frame));
            assert_eq!(seen.summary, ethernet.summary, "{link}");
            let names = |d: &roce_dissect::Dissection| {
                d.layers
                    .iter()
                    .map(|l| l.name)
                    .filter(|n| !n.contains("ooked") && *n != "Ethernet")
                    .collect::<Vec<_>>()
            };
            assert_eq!(names(&seen), names(&ethernet), "{link}");
        }
    }
}

#[test]
fn vlan_tags_are_layers_and_a_third_is_too_many() {
    let frame = sample(opcode::RC_SEND_ONLY, Ip::V4);
    for tags in 0..=2 {
        let seen = alone(&tagged(frame.clone(), tags));
        assert_eq!(seen.layers.iter().filter(|layer| layer.name == "VLAN").count(), tags);
        assert_eq!(seen.findings, []);
    }
    assert_eq!(alone(&tagged(frame, 3)).findings[0].name(), "drop_vlan_tags");
}

#[test]
fn ipv4_options_are_read_past_and_leave_the_icrc_unchecked() {
    let mut frame = sample(opcode::RC_SEND_ONLY, Ip::V4);
    frame.splice(34..34, [1, 1, 1, 0]); // no operation, three times, and the end
    frame[14] = 0x46;
    let len = u16::from_be_bytes([frame[16], frame[17]]) + 4;
    frame[16..18].copy_from_slice(&len.to_be_bytes());
    frame[24..26].fill(0);
    let mut sum: u32 =
        frame[14..38].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    sum = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let seen = alone(&frame);
    assert_eq!(seen.findings, [Finding::IcrcUnchecked(IcrcSkipped::Ipv4Options)]);
    assert!(seen.layers.iter().any(|layer| layer.name == "IPv4 options"));
    assert!(seen.summary.contains("RC SEND Only"));
}

#[test]
fn ipv6_extension_headers_are_read_past_and_leave_the_icrc_unchecked() {
    let with = |next: u8, headers: &[u8]| {
        let mut frame = sample(opcode::RC_SEND_ONLY, Ip::V6);
        frame.splice(54..54, headers.iter().copied());
        frame[20] = next;
        let len = u16::from_be_bytes([frame[18], frame[19]]) + headers.len() as u16;
        frame[18..20].copy_from_slice(&len.to_be_bytes());
        frame
    };
    let hop_by_hop = [17, 0, 1, 4, 0, 0, 0, 0];
    let two = [[60, 0, 1, 4, 0, 0, 0, 0], hop_by_hop].concat();
    for frame in [with(0, &hop_by_hop), with(0, &two)] {
        let seen = alone(&frame);
        assert_eq!(seen.findings, [Finding::IcrcUnchecked(IcrcSkipped::Ipv6Extensions)]);
        assert!(seen.summary.contains("RC SEND Only"), "{}", seen.summary);
    }
    // A fragment header of the first fragment, and of a later one.
    let first = alone(&with(44, &[17, 0, 0, 1, 0, 0, 0, 7]));
    assert!(first.findings.contains(&Finding::Fragment));
    assert!(alone(&with(44, &[17, 0, 1, 0, 0, 0, 0, 7])).summary.contains("IP fragment"));
}

#[test]
fn the_layers_cover_the_frame_without_a_gap_and_match_its_bytes() {
    for opcode in KnownOpcode::all() {
        for frame in [sample(opcode, Ip::V4), sample(opcode, Ip::V6), sample_v1(opcode)] {
            let seen = alone(&frame);
            let mut at = 0;
            for layer in &seen.layers {
                assert_eq!(layer.range.start, at, "{opcode}: {}", layer.name);
                at = layer.range.end;
                for field in &layer.fields {
                    assert!(field.bytes.start >= layer.range.start && field.bytes.end <= at);
                }
            }
            assert_eq!(at, frame.len());
            let value = |layer: &str, field: &str| {
                let layer = seen.layers.iter().find(|found| found.name == layer)?;
                layer.field(field).map(|field| field.value.to_string())
            };
            let headers = full_headers(opcode);
            assert_eq!(value("BTH", "PSN"), Some(headers.bth.psn.to_string()));
            assert_eq!(value("BTH", "destination QP"), Some(headers.bth.dest_qp.to_string()));
            let hex = |value: u64, digits: usize| format!("0x{value:0digits$x}");
            assert_eq!(value("RETH", "length"), headers.reth.map(|reth| reth.len.to_string()));
            assert_eq!(value("RETH", "address"), headers.reth.map(|reth| hex(reth.addr, 16)));
            assert_eq!(
                value("AtomicETH", "compare"),
                headers.atomic_eth.map(|atomic| hex(atomic.compare, 16))
            );
            assert_eq!(value("AETH", "MSN"), headers.aeth.map(|aeth| aeth.msn.to_string()));
            assert_eq!(
                value("DETH", "source QP"),
                headers.deth.map(|deth| deth.source_qp.to_string())
            );
            assert_eq!(
                value("ImmDt", "immediate"),
                headers.immediate.map(|data| hex(u32::from_be_bytes(data.0).into(), 8))
            );
            let icrc = u32::from_le_bytes(*frame.last_chunk().unwrap());
            assert_eq!(value("ICRC", "ICRC"), Some(hex(icrc.into(), 8)));
        }
    }
}

#[test]
fn a_connection_request_shows_every_field_and_the_addresses_in_its_private_data() {
    let seen = alone(&management(Ip::V4, 0x10, &cm_req(0xc7_b33c), false));
    let value = |layer: &str, field: &str| {
        let layer = seen.layers.iter().find(|found| found.name == layer).unwrap();
        let field = layer.field(field).unwrap();
        format!("{} {}", field.value, field.note)
    };
    assert_eq!(value("CM REQ", "local QPN"), "0x000011 ");
    assert_eq!(value("CM REQ", "starting PSN"), "0xc7b33c ");
    assert_eq!(value("CM REQ", "path MTU"), "1 256 bytes");
    assert_eq!(value("CM REQ", "retry count"), "7 ");
    assert_eq!(value("CM REQ", "primary local ACK timeout"), "19 2.15 s");
    assert_eq!(value("CM REQ", "primary remote GID"), "::ffff:10.9.0.1 ");
    assert_eq!(value("CM addresses", "source port"), "55238 ");
    assert_eq!(value("CM addresses", "destination"), "10.9.0.1 ");
    assert_eq!(value("MAD", "class"), "0x07 connection management");
}

#[test]
fn a_change_of_any_byte_of_a_correct_frame_does_not_panic() {
    for opcode in KnownOpcode::all() {
        for good in [tagged(sample(opcode, Ip::V4), 1), sample(opcode, Ip::V6), sample_v1(opcode)] {
            for at in 0..good.len().min(110) {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut frame = good.clone();
                    frame[at] = value;
                    hostile(&frame);
                }
            }
            for len in 0..good.len() {
                hostile(&good[..len]);
            }
        }
    }
}

fn hostile(bytes: &[u8]) {
    run(&[bytes.to_vec()], |packet| {
        let _ = packet.summary_line();
        let layers = packet.layers();
        assert!(layers.iter().all(|layer| layer.range.end <= bytes.len()));
        assert!(!packet.explain().verdict.is_empty());
        assert!(packet.severity() <= Severity::Problem);
    });
}

proptest::proptest! {
    #[test]
    fn any_bytes_on_any_link_type_are_read_to_the_end(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300), link in 0u32..300,
    ) {
        let link = LinkType::from_code(link);
        let _ = alone_or_many(link, &bytes);
    }

    #[test]
    fn any_packets_in_any_order_are_followed_without_a_panic(
        script in proptest::collection::vec((0usize..38, 0u32..12, 0usize..40, 0u8..4), 1..60),
    ) {
        let frames: Vec<Vec<u8>> = script.into_iter().map(|(which, psn, len, kind)| {
            let opcode = KnownOpcode::all().nth(which).unwrap();
            let mut headers = full_headers(opcode);
            headers.bth.psn = roce_wire::Psn::wrapping(psn.wrapping_sub(6));
            let payload = vec![0; if opcode.info().carries_payload() { len * 8 } else { 0 }];
            let outer = if kind & 1 == 0 { there(Ip::V4) } else { back(Ip::V4) };
            let mut frame = frame(&outer, &headers, &payload);
            if kind == 3 {
                *frame.last_mut().unwrap() ^= 1;
            }
            frame
        }).collect();
        run(&frames, |packet| {
            let _ = (packet.summary_line(), packet.explain());
        }).connections().for_each(|connection| {
            assert!(connection.forward.packets > 0 || connection.backward.packets > 0);
        });
    }
}

fn alone_or_many(link: LinkType, bytes: &[u8]) -> usize {
    let raw = roce_dissect::RawFrame { link, ..roce_dissect::RawFrame::ethernet(1, bytes) };
    let mut seen = 0;
    roce_dissect::Dissector::new(Default::default()).handle_frame(raw, |packet| {
        let _ = (packet.layers(), packet.summary_line(), packet.explain());
        seen += 1;
    });
    seen
}
