//! Captured packets, taken out of their captures and moved to other hosts.

use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use roce_dissect::{
    Capture, Dissector, Event, Finding, Icrc, IcrcSkipped, LinkType, NamedField, Options, Packet,
    PacketFields, RawFrame, RoceVersion,
};
use roce_generator::{Change, Draft, DraftError, Rewriting};
use roce_wire::Qpn;

fn testdata(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(folder)
}

/// Calls a function with each packet of a capture.
fn each_packet(path: &Path, mut on_packet: impl FnMut(&Packet<'_>)) {
    let mut capture = Capture::open(File::open(path).unwrap()).unwrap();
    let mut dissector = Dissector::new(Options::default());
    while let Some(event) = capture.next_event().unwrap() {
        if let Event::Frame(frame) = event {
            dissector.handle_frame(frame, &mut on_packet);
        }
    }
}

/// Returns the frames of a rewritten capture.
fn rewritten(path: &Path, rewriting: &Rewriting) -> Vec<Vec<u8>> {
    let mut frames = vec![];
    each_packet(path, |packet| {
        let Ok(mut draft) = Draft::of_packet(packet) else { return };
        rewriting.apply(&mut draft);
        draft.finish();
        frames.push(draft.bytes().to_vec());
    });
    frames
}

/// Calls a function with each packet of frames, and returns the queue pairs of the connections.
fn follow(frames: &[Vec<u8>], mut on_packet: impl FnMut(&Packet<'_>)) -> Vec<[Option<Qpn>; 2]> {
    let mut dissector = Dissector::new(Options::default());
    for (number, bytes) in (1..).zip(frames) {
        dissector.handle_frame(RawFrame::ethernet(number, bytes), &mut on_packet);
    }
    let mut pairs: Vec<_> = dissector.connections().map(|it| [it.a.qp, it.b.qp]).collect();
    pairs.sort();
    pairs
}

#[test]
fn every_recorded_packet_is_the_same_in_a_frame_of_its_own() {
    let mut trains = 0;
    for folder in ["rxe", "generated"] {
        for entry in std::fs::read_dir(testdata(folder)).unwrap() {
            let path = entry.unwrap().path();
            each_packet(&path, |packet| {
                let Some(roce) = packet.roce() else { return };
                let draft = Draft::of_packet(packet);
                let is_cut = roce.icrc == Icrc::Unchecked(IcrcSkipped::Truncated);
                if is_cut || roce.version == RoceVersion::V1 {
                    let is_named =
                        matches!(draft, Err(DraftError::Cut { .. } | DraftError::NotRoce { .. }));
                    assert!(is_named, "{}", path.display());
                    return;
                }
                let mut draft = draft.unwrap();
                draft.finish();
                trains += u32::from(roce.train.is_some());
                let identification = |packet: &Packet<'_>| {
                    let place = PacketFields::new(packet)
                        .place(NamedField::find("ipv4.identification").unwrap())?;
                    place.read_number(packet.frame.bytes)
                };
                // As the kernel segments a train.
                let index = u64::from(roce.train.map_or(0, |train| train.index));
                let expected = identification(packet).map(|first| (first + index) & 0xffff);
                Dissector::new(Options::default()).handle_frame(draft.frame(), |copy| {
                    let is = copy.roce().unwrap();
                    assert_eq!(is.headers, roce.headers, "{}", path.display());
                    assert_eq!(is.payload, roce.payload);
                    assert_eq!((is.source, is.destination), (roce.source, roce.destination));
                    assert_eq!(is.train, None);
                    assert_eq!(identification(copy), expected, "{}", path.display());
                    assert_eq!(is.icrc, roce.icrc, "{}", path.display());
                });
            });
        }
    }
    assert!(trains > 3, "{trains} packets of trains");
}

#[test]
fn a_wrong_icrc_stays_wrong_by_the_same_bits() {
    each_packet(&testdata("generated/rc_send_only_v4.pcap"), |packet| {
        let mut bytes = packet.frame.bytes.to_vec();
        *bytes.last_mut().unwrap() ^= 0x40;
        Dissector::new(Options::default()).handle_frame(RawFrame::ethernet(1, &bytes), |damaged| {
            let mut draft = Draft::of_packet(damaged).unwrap();
            draft.change(&["ipv4.identification=77".parse::<Change>().unwrap()]).unwrap();
            draft.finish();
            Dissector::new(Options::default()).handle_frame(draft.frame(), |sent| {
                let Icrc::Wrong { carried, expected } = sent.roce().unwrap().icrc else {
                    panic!("right")
                };
                assert_eq!(carried ^ expected, 0x4000_0000);
            });
        });
    });
}

#[test]
fn a_connection_moves_with_its_addresses_and_queue_pairs() {
    for (file, hosts, new, old_qps) in [
        (
            "cm_rping_by_rxe_v4",
            ["10.9.0.2", "10.9.0.3"],
            ["10.77.0.1", "10.77.0.9"],
            ["0x17", "0x17"],
        ),
        (
            "cm_rping_by_rxe_v6",
            ["fd00:9::2", "fd00:9::3"],
            ["fd00:77::1", "fd00:77::9"],
            ["0x20", "0x1f"],
        ),
    ] {
        let path = testdata(&format!("rxe/{file}.pcapng"));
        let addresses = [0, 1].map(|at| format!("{}={}", hosts[at], new[at]).parse().unwrap());
        // Both hosts have a queue pair 0x17.
        let queue_pairs = [0, 1].map(|at| {
            format!("{}@{}=0x{}", old_qps[at], hosts[at], [100, 200][at]).parse().unwrap()
        });
        let rewriting =
            Rewriting { addresses: addresses.to_vec(), queue_pairs: queue_pairs.to_vec() };
        let frames = rewritten(&path, &rewriting);
        let mut before = vec![];
        each_packet(&path, |packet| before.extend(packet.roce().and_then(|it| it.known_opcode())));
        let (mut after, mut seen) = (vec![], vec![]);
        let new: Vec<IpAddr> = new.iter().map(|it| it.parse().unwrap()).collect();
        let pairs = follow(&frames, |packet| {
            let roce = packet.roce().unwrap();
            after.extend(roce.known_opcode());
            assert_eq!(roce.icrc, Icrc::Right);
            assert!(new.contains(&roce.source) && new.contains(&roce.destination));
            let problems: Vec<_> = packet
                .findings
                .iter()
                .filter(|it| it.severity() == roce_dissect::Severity::Problem)
                .map(Finding::to_string)
                .collect();
            assert_eq!(problems, [""; 0], "{file}");
            let fields = PacketFields::new(packet);
            for name in [
                "cm_req.primary_local_gid",
                "cm_req.primary_remote_gid",
                "cm_addresses.source",
                "cm_addresses.destination",
            ] {
                let field = NamedField::find(name).unwrap_or_else(|| panic!("{name}"));
                seen.extend(fields.text_of(field).into_iter().map(|it| (name, it)));
            }
        });
        assert_eq!(after, before);
        let qpn = |number| Some(Qpn::new(number).unwrap());
        assert!(pairs.contains(&[qpn(0x100), qpn(0x200)]), "{file}: {pairs:?}");
        let names: std::collections::BTreeSet<_> = seen.iter().map(|it| it.0).collect();
        assert_eq!(names.len(), 4, "{seen:?}");
        for (name, value) in seen {
            assert!(new.contains(&value.parse().unwrap()), "{file}: {name} is {value}");
        }
    }
}

proptest! {
    #[test]
    fn damaged_frames_are_left_out_or_stay_as_long_as_they_are(
        file in 0usize..1 << 16,
        cut in 0usize..400,
        damage in prop::collection::vec((0usize..80, any::<u8>()), 0..4),
        link in 0u32..4,
    ) {
        let mut files: Vec<_> =
            std::fs::read_dir(testdata("generated")).unwrap().map(|it| it.unwrap().path()).collect();
        files.sort();
        let rewriting = Rewriting {
            addresses: vec!["10.9.0.1=10.9.0.7".parse().unwrap()],
            queue_pairs: vec!["0x11=0x12".parse().unwrap()],
        };
        let changes: Vec<Change> =
            ["psn=5", "payload.bytes=0x01", "cm_req.local_qpn=7"].map(|it| it.parse().unwrap()).into();
        each_packet(&files[file % files.len()], |packet| {
            let mut bytes = packet.frame.bytes.to_vec();
            bytes.truncate(bytes.len().saturating_sub(cut % bytes.len().max(1)));
            for (at, value) in &damage {
                if let Some(byte) = bytes.get_mut(*at) {
                    *byte = *value;
                }
            }
            let link = [LinkType::Ethernet, LinkType::RawIp, LinkType::LinuxCooked, LinkType::LinuxCooked2]
                [link as usize];
            let frame = RawFrame { link, ..RawFrame::ethernet(1, &bytes) };
            Dissector::new(Options::default()).handle_frame(frame, |packet| {
                let Ok(mut draft) = Draft::of_packet(packet) else { return };
                let len = draft.bytes().len();
                rewriting.apply(&mut draft);
                let _fits = draft.change_known(&changes);
                draft.finish();
                assert_eq!(draft.bytes().len(), len);
            });
        });
    }
}
