//! The captures in `testdata/` match their description.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::*;
use roce_dissect::{
    Capture, Checksum, Dissector, Event, Finding, Icrc, Options, Packet, RoceVersion, Severity,
    Value,
};
use roce_wire::{KnownOpcode, opcode};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

fn files(name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder(name)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn for_each_packet(path: &Path, mut on_packet: impl FnMut(&Packet<'_>)) {
    let mut capture = Capture::open(fs::File::open(path).unwrap()).unwrap();
    let mut dissector = Dissector::new(Options::default());
    while let Some(event) = capture.next_event().unwrap() {
        match event {
            Event::Frame(frame) => dissector.handle_frame(frame, &mut on_packet),
            Event::Damage(damage) => panic!("{}: {damage}", path.display()),
        }
    }
}

//= test wire-opcodes
#[test]
fn every_recorded_packet_is_correct_and_its_connection_has_no_problem() {
    let mut packets = 0;
    for path in files("rxe") {
        for_each_packet(&path, |packet| {
            packets += 1;
            let roce = packet.roce().expect("it is RoCE");
            assert_eq!(roce.icrc, Icrc::Right, "{}: {}", path.display(), packet.summary_line());
            assert_eq!(roce.udp_checksum, Checksum::None, "{}", packet.summary_line());
            // rxe's timer sometimes retransmits packets that were not lost.
            let is_fine = |finding: &Finding| {
                finding.severity() == Severity::Info
                    || matches!(finding, Finding::Duplicate { .. } | Finding::Stall(_))
            };
            assert!(packet.findings.iter().all(is_fine), "{}", packet.summary_line());
        });
    }
    assert!(packets > 450, "{packets}");
}

#[test]
fn every_opcode_that_rxe_sends_was_recorded_from_it_over_both_versions_of_ip() {
    let mut sent = BTreeSet::new();
    for path in files("rxe") {
        for_each_packet(&path, |packet| {
            let roce = packet.roce().unwrap();
            let source = roce.source.to_string();
            if source == "10.9.0.2" || source == "fd00:9::2" {
                sent.insert((roce.source.is_ipv4(), roce.opcode().unwrap().0));
            }
        });
    }
    for is_ipv4 in [true, false] {
        // rxe sends no congestion notifications, no gap reports, and no FLUSH with a right ICRC.
        let unknown = [opcode::CNP, opcode::GAP_REPORT, opcode::RC_FLUSH];
        for opcode in KnownOpcode::all().filter(|opcode| !unknown.contains(opcode)) {
            assert!(sent.contains(&(is_ipv4, opcode.code().0)), "{opcode}, IPv4: {is_ipv4}");
        }
    }
}

#[test]
fn connections_were_recorded_from_request_to_end_and_to_a_rejection() {
    const KINDS: [&str; 8] = [
        "CM REQ",
        "CM REP",
        "CM RTU",
        "CM REJ",
        "CM DREQ",
        "CM DREP",
        "CM SIDR REQ",
        "CM SIDR REP",
    ];
    let mut sent = BTreeSet::new();
    for path in files("rxe") {
        for_each_packet(&path, |packet| {
            let roce = packet.roce().unwrap();
            let layers = packet.layers();
            let layer = |name: &str| layers.iter().find(|layer| layer.name == name);
            let kind = KINDS.iter().find(|kind| layer(kind).is_some());
            sent.extend(kind.map(|kind| (roce.source.is_ipv4(), *kind)));
            // Both kinds of request repeat the addresses of both hosts.
            let asks = matches!(kind, Some(&("CM REQ" | "CM SIDR REQ")));
            let addresses = layer("CM addresses");
            assert_eq!(addresses.is_some(), asks, "{}", packet.summary_line());
            if let Some(addresses) = addresses {
                let value = |name| addresses.field(name).unwrap().value.clone();
                assert_eq!(value("source"), Value::Address(roce.source));
                assert_eq!(value("destination"), Value::Address(roce.destination));
            }
        });
    }
    for is_ipv4 in [true, false] {
        for kind in KINDS {
            assert!(sent.contains(&(is_ipv4, kind)), "{kind}, IPv4: {is_ipv4}");
        }
    }
}

#[test]
fn every_opcode_was_generated_over_both_versions_of_ip_and_as_roce_v1() {
    let mut seen = BTreeSet::new();
    for path in files("generated").iter().filter(|path| !path.ends_with("damage.pcap")) {
        for_each_packet(path, |packet| {
            if let Some(roce) = packet.roce() {
                assert_eq!(roce.icrc, Icrc::Right, "{}: {}", path.display(), packet.summary_line());
                let version = roce.version == RoceVersion::V2;
                seen.insert((version, roce.source.is_ipv4(), roce.opcode().unwrap().0));
            }
        });
    }
    for opcode in KnownOpcode::all() {
        for kind in [(true, true), (true, false), (false, false)] {
            assert!(seen.contains(&(kind.0, kind.1, opcode.code().0)), "{opcode} {kind:?}");
        }
    }
}

#[test]
fn no_capture_has_more_than_20_kilobytes() {
    for path in files("rxe").into_iter().chain(files("generated")) {
        assert!(fs::metadata(&path).unwrap().len() < 20_000, "{}", path.display());
    }
}

#[test]
fn every_damaged_packet_has_a_finding_unless_routers_may_change_the_byte() {
    let mut at = 0;
    for_each_packet(&folder("generated/damage.pcap"), |packet| {
        // MAC addresses; the ECN and DSCP bits, TTL and checksum of IPv4 have a checksum.
        let is_free = at < 12;
        let is_other = packet.roce().is_none();
        let is_seen = packet.findings.iter().any(|f| f.severity() > Severity::Info);
        assert!(is_free || is_other || is_seen, "byte {at}: {}", packet.summary_line());
        at += 1;
    });
    assert_eq!(at, sample(roce_wire::opcode::RC_SEND_ONLY, Ip::V4).len());
}

#[test]
fn the_train_is_split_and_marked_as_a_train() {
    let mut places = Vec::new();
    for_each_packet(&folder("generated/train.pcap"), |packet| {
        let train = packet.roce().unwrap().train.unwrap();
        places.push((train.index, train.count, packet.roce().unwrap().icrc));
    });
    assert_eq!(places, [0, 1, 2, 3].map(|i| (i, 4, Icrc::Right)));
}

#[test]
fn the_congested_sender_slows_down_after_the_cnps_that_its_marks_draw() {
    let path = folder("congested.pcapng");
    assert!(fs::metadata(&path).unwrap().len() < 200_000);
    let mut capture = Capture::open(fs::File::open(path).unwrap()).unwrap();
    let mut dissector = Dissector::new(Options::default());
    let mut names = BTreeSet::new();
    while let Some(Event::Frame(frame)) = capture.next_event().unwrap() {
        dissector.handle_frame(frame, |packet| {
            let is_unusual = |finding: &&Finding| finding.severity() > Severity::Info;
            names.extend(packet.findings.iter().filter(is_unusual).map(Finding::name));
        });
    }
    // None of the findings about CNPs and marks without a cause.
    assert_eq!(Vec::from_iter(names), ["congestion_marked", "congestion_notified"]);
    let [connection] = Vec::from_iter(dissector.connections())[..] else {
        panic!("one connection")
    };
    let reaction = connection.forward_reaction.unwrap();
    assert!(reaction.cnps >= 2 && reaction.answers == reaction.cnps, "{reaction:?}");
    assert!(reaction.rate_after < reaction.rate_before, "{reaction:?}");
    let (data, acks) = (connection.forward, connection.backward);
    assert!(data.ecn_marks > acks.becns && acks.becns > acks.cnps, "{connection:?}");
}

#[test]
fn every_nak_code_was_recorded() {
    let mut causes = BTreeSet::new();
    for_each_packet(&folder("generated/rc_nak_v6.pcap"), |packet| {
        for finding in packet.findings {
            if let Finding::Nak(_) | Finding::Rnr(_) = finding {
                causes.insert(finding.to_string());
            }
        }
    });
    assert_eq!(causes.len(), 5, "{causes:?}");
}
