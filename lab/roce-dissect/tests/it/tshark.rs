//! Comparison with tshark, field by field, over the captures in `testdata/`. A named test covers
//! each difference.

use roce_test_macros::tier1;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::*;
use roce_dissect::{
    Capture, Dissector, Event, Finding, Layer, Options, Packet, PacketKind, PauseKind, Roce, Value,
};
use roce_wire::{Ecn, KnownOpcode, opcode};

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

/// Values of these fields for each frame, as tshark reads the file.
fn tshark(path: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-E", "separator=|", "-E", "occurrence=f", "-r"]).arg(path);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
}

/// A number in tshark's notation: decimal, hexadecimal or bytes.
fn number(field: &str, text: &str) -> Option<u64> {
    if matches!(field, "infiniband.immdt" | "infiniband.ieth" | "infiniband.invariant.crc") {
        let text = text.strip_prefix("0x").unwrap_or(text);
        return u64::from_str_radix(text, 16).ok();
    }
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A number of our tree.
fn number_of(value: &Value) -> u64 {
    match value {
        Value::Decimal(value) | Value::Hex { value, .. } => *value,
        Value::Flag(set) => u64::from(*set),
        other => panic!("{other}"),
    }
}

fn for_each_packet(path: &Path, mut on_packet: impl FnMut(u64, &Roce<'_>, Vec<Layer>)) {
    for_each(path, |packet| {
        if let Some(roce) = packet.roce() {
            on_packet(packet.frame.number, roce, packet.layers());
        }
    });
}

fn for_each(path: &Path, mut on_packet: impl FnMut(&Packet<'_>)) {
    let mut capture = Capture::open(fs::File::open(path).unwrap()).unwrap();
    let mut dissector = Dissector::new(Options::default());
    while let Some(event) = capture.next_event().unwrap() {
        if let Event::Frame(frame) = event {
            dissector.handle_frame(frame, &mut on_packet);
        }
    }
}

fn files(folders: &[&str], wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let folders = folders.iter().map(|folder| testdata().join(folder));
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = files.map(|entry| entry.unwrap().path());
    files.filter(|path| wanted(path.file_stem().unwrap().to_str().unwrap())).collect()
}

/// tshark's name of a field, and our field.
type Same = (&'static str, fn(&Roce<'_>) -> Option<u64>);

const FIELDS: &[Same] = &[
    ("infiniband.bth.opcode", |roce| roce.bth.map(|bth| bth.opcode().0.into())),
    ("infiniband.bth.se", |roce| roce.bth.map(|bth| bth.solicited_event().into())),
    ("infiniband.bth.m", |roce| roce.bth.map(|bth| bth.migration_request().into())),
    ("infiniband.bth.padcnt", |roce| roce.bth.map(|bth| bth.pad_count().into())),
    ("infiniband.bth.tver", |roce| roce.bth.map(|bth| bth.version().into())),
    ("infiniband.bth.p_key", |roce| roce.bth.map(|bth| bth.partition_key().into())),
    ("infiniband.bth.destqp", |roce| roce.bth.map(|bth| bth.dest_qp().get().into())),
    ("infiniband.bth.a", |roce| roce.bth.map(|bth| bth.ack_request().into())),
    ("infiniband.bth.psn", |roce| roce.bth.map(|bth| bth.psn().get().into())),
    ("infiniband.reth.va", |roce| {
        let headers = roce.headers?;
        headers.reth.map(|reth| reth.addr).or(headers.atomic_eth.map(|atomic| atomic.addr))
    }),
    ("infiniband.reth.r_key", |roce| {
        let headers = roce.headers?;
        let key = headers.reth.map(|reth| reth.rkey);
        key.or(headers.atomic_eth.map(|atomic| atomic.rkey)).map(u64::from)
    }),
    ("infiniband.reth.dmalen", |roce| roce.headers?.reth.map(|reth| reth.len.into())),
    ("infiniband.atomiceth.swapdt", |roce| roce.headers?.atomic_eth.map(|a| a.swap_or_add)),
    ("infiniband.atomiceth.cmpdt", |roce| roce.headers?.atomic_eth.map(|a| a.compare)),
    ("infiniband.aeth.syndrome", |roce| {
        roce.headers?.aeth.map(|aeth| aeth.syndrome.to_byte().into())
    }),
    ("infiniband.aeth.msn", |roce| roce.headers?.aeth.map(|aeth| aeth.msn.into())),
    ("infiniband.atomicacketh.origremdt", |roce| roce.headers?.atomic_ack.map(|a| a.original)),
    ("infiniband.deth.q_key", |roce| roce.headers?.deth.map(|deth| deth.q_key.into())),
    ("infiniband.deth.srcqp", |roce| roce.headers?.deth.map(|deth| deth.source_qp.get().into())),
    ("infiniband.immdt", |roce| {
        roce.headers?.immediate.map(|data| u32::from_be_bytes(data.0).into())
    }),
    ("infiniband.ieth", |roce| roce.headers?.invalidate.map(|key| key.0.into())),
];

/// Number of [`FIELDS`] that are of the BTH.
const BTH_FIELDS: usize = 9;

/// Operations whose headers tshark does not know.
const UNKNOWN_OPERATIONS: [KnownOpcode; 2] = [opcode::RC_FLUSH, opcode::RC_ATOMIC_WRITE];

#[tier1("tshark")]
fn tshark_agrees_on_every_field_of_every_packet() {
    let names: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
    // tshark reads a train as one packet, and damaged packets may have any fields.
    let wanted = |name: &str| name != "train" && name != "damage";
    // In one file, because tshark starts slowly.
    let mut frames = Vec::new();
    let congested = testdata().join("congested.pcapng");
    for path in files(&["rxe", "generated"], wanted).into_iter().chain([congested]) {
        let mut capture = Capture::open(fs::File::open(&path).unwrap()).unwrap();
        while let Some(Event::Frame(frame)) = capture.next_event().unwrap() {
            frames.push(frame.bytes.to_vec());
        }
    }
    let file = Scratch::new("all", &frames);
    let rows = tshark(&file.0, &names);
    let mut compared = 0;
    for_each_packet(&file.0, |frame, roce, _| {
        let row = &rows[frame as usize - 1];
        // Of these it knows the BTH alone.
        let is_new = UNKNOWN_OPERATIONS.iter().any(|it| roce.known_opcode() == Some(*it));
        let fields = FIELDS.iter().take(if is_new { BTH_FIELDS } else { FIELDS.len() });
        for ((name, ours), theirs) in fields.zip(row) {
            let theirs = number(name, theirs);
            assert_eq!(ours(roce), theirs, "{name}, frame {frame} of them all: {}", roce.summary());
            compared += usize::from(theirs.is_some());
        }
    });
    assert!(compared > 9000, "{compared}");
}

/// tshark's field, ours: layer and name.
const CM_FIELDS: &[(&str, &str, &str)] = &[
    ("infiniband.mad.transactionid", "MAD", "transaction"),
    ("infiniband.mad.attributeid", "MAD", "attribute"),
    ("infiniband.cm.req.serviceid", "CM REQ", "service id"),
    ("infiniband.cm.req.localcaguid", "CM REQ", "local CA GUID"),
    ("infiniband.cm.req.localqpn", "CM REQ", "local QPN"),
    ("infiniband.cm.req.responderres", "CM REQ", "responder resources"),
    ("infiniband.cm.req.initdepth", "CM REQ", "initiator depth"),
    ("infiniband.cm.req.remoteresptout", "CM REQ", "remote CM response timeout"),
    ("infiniband.cm.req.transpsvctype", "CM REQ", "transport service"),
    ("infiniband.cm.req.e2eflowctrl", "CM REQ", "end-to-end flow control"),
    ("infiniband.cm.req.startpsn", "CM REQ", "starting PSN"),
    ("infiniband.cm.req.localresptout", "CM REQ", "local CM response timeout"),
    ("infiniband.cm.req.retrcount", "CM REQ", "retry count"),
    ("infiniband.cm.req.pkey", "CM REQ", "P_Key"),
    ("infiniband.cm.req.pppmtu", "CM REQ", "path MTU"),
    ("infiniband.cm.req.rnrretrcount", "CM REQ", "RNR retry count"),
    ("infiniband.cm.req.maxcmretr", "CM REQ", "max CM retries"),
    ("infiniband.cm.req.prim_hoplim", "CM REQ", "primary hop limit"),
    ("infiniband.cm.req.prim_localacktout", "CM REQ", "primary local ACK timeout"),
    ("infiniband.cm.req.ip_cm.sport", "CM addresses", "source port"),
    ("infiniband.cm.rep.remotecommid", "CM REP", "remote communication id"),
    ("infiniband.cm.rep.localqpn", "CM REP", "local QPN"),
    ("infiniband.cm.rep.startpsn", "CM REP", "starting PSN"),
    ("infiniband.cm.rep.respres", "CM REP", "responder resources"),
    ("infiniband.cm.rep.initdepth", "CM REP", "initiator depth"),
    ("infiniband.cm.rep.tgtackdelay", "CM REP", "target ACK delay"),
    ("infiniband.cm.rep.rnrretrcount", "CM REP", "RNR retry count"),
    ("infiniband.cm.rep.localcaguid", "CM REP", "local CA GUID"),
    ("infiniband.cm.rtu.localcommid", "CM RTU", "local communication id"),
    ("infiniband.cm.rtu.remotecommid", "CM RTU", "remote communication id"),
    ("infiniband.cm.rej.localcommid", "CM REJ", "local communication id"),
    ("infiniband.cm.rej.msgrej", "CM REJ", "message rejected"),
    ("infiniband.cm.rej.reason", "CM REJ", "reason"),
    ("infiniband.cm.dreq.localcommid", "CM DREQ", "local communication id"),
    ("infiniband.cm.drsp.remotecommid", "CM DREP", "remote communication id"),
];

//= test cm-messages
#[tier1("tshark")]
fn tshark_agrees_on_connection_management() {
    let names: Vec<&str> = CM_FIELDS.iter().map(|(name, ..)| *name).collect();
    let mut compared = vec![0; names.len()];
    for path in files(&["rxe", "generated"], |name| name.starts_with("cm_")) {
        let rows = tshark(&path, &names);
        for_each_packet(&path, |frame, _, layers| {
            let row = &rows[frame as usize - 1];
            // Another test covers the addresses.
            let is_sidr = layers.iter().any(|layer| layer.name == "CM SIDR REQ");
            for (i, ((name, layer, field), theirs)) in CM_FIELDS.iter().zip(row).enumerate() {
                if is_sidr && *layer == "CM addresses" {
                    continue;
                }
                let ours = layers.iter().find(|found| found.name == *layer);
                let ours = ours.and_then(|layer| layer.field(field)).map(|field| &field.value);
                let ours = ours.map(number_of);
                let theirs = number(name, theirs);
                assert_eq!(ours, theirs, "{name}, frame {frame} of {}", path.display());
                compared[i] += usize::from(theirs.is_some());
            }
        });
    }
    assert!(compared.iter().all(|&times| times > 0), "{compared:?}");
}

/// A file for tshark, deleted on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, frames: &[Vec<u8>]) -> Self {
        let path = std::env::temp_dir().join(format!("roce-dissect-{}-{name}", std::process::id()));
        fs::write(&path, pcap(frames)).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[tier1("tshark")]
fn tshark_does_not_know_congestion_notifications() {
    let path = testdata().join("generated/cnp_v4.pcap");
    let rows = tshark(&path, &["_ws.col.Info"]);
    assert!(rows[0][0].contains("Unknown OpCode"), "{rows:?}: then compare it after all");
    for_each_packet(&path, |_, roce, _| assert_eq!(roce.known_opcode(), Some(opcode::CNP)));
}

#[tier1("tshark")]
fn tshark_does_not_know_flush_and_atomic_write() {
    for name in ["rc_flush_v4", "rc_atomic_write_v4"] {
        let path = testdata().join(format!("generated/{name}.pcap"));
        let rows = tshark(&path, &["_ws.col.Info", "infiniband.reth.va"]);
        assert!(rows[0][0].contains("Unknown OpCode"), "{rows:?}: then compare it after all");
        assert_eq!(rows[0][1], "", "{rows:?}");
        for_each_packet(&path, |_, roce, _| {
            assert!(UNKNOWN_OPERATIONS.contains(&roce.known_opcode().unwrap()));
        });
    }
}

#[tier1("tshark")]
fn tshark_has_no_field_for_fecn_and_becn() {
    let output = Command::new("tshark").args(["-G", "fields"]).output().unwrap();
    let fields = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(fields.contains("infiniband.bth.psn"));
    assert!(!fields.contains("infiniband.bth.fecn") && !fields.contains("infiniband.bth.becn"));
    for_each_packet(&testdata().join("generated/cnp_v4.pcap"), |_, roce, layers| {
        assert!(roce.bth.unwrap().becn());
        let bth = layers.iter().find(|layer| layer.name == "BTH").unwrap();
        assert_eq!(bth.field("BECN").unwrap().value, Value::Flag(true));
    });
}

#[tier1("tshark")]
fn tshark_agrees_on_the_ecn_field_of_every_packet() {
    let mut seen = [0; 4];
    let wanted = |name: &str| !matches!(name, "roce_v1" | "train");
    let congested = testdata().join("congested.pcapng");
    for path in files(&["rxe", "generated"], wanted).into_iter().chain([congested]) {
        let rows = tshark(&path, &["ip.dsfield.ecn", "ipv6.tclass.ecn"]);
        for_each_packet(&path, |frame, roce, _| {
            let row = &rows[frame as usize - 1];
            let theirs = row.iter().find_map(|text| number("ecn", text));
            let ours = match roce.ecn() {
                Ecn::NotCapable => 0,
                Ecn::Capable1 => 1,
                Ecn::Capable0 => 2,
                Ecn::CongestionExperienced => 3,
            };
            assert_eq!(Some(ours), theirs, "frame {frame} of {}", path.display());
            seen[ours as usize] += 1;
        });
    }
    assert!(seen[0] > 100 && seen[2] > 100 && seen[3] > 50, "{seen:?}");
}

/// tshark's field of a MAC control frame, and ours in the tree.
fn pause_fields() -> Vec<(String, String)> {
    let times = (0..8).map(|priority| {
        (format!("macc.cbfc.pause_time.c{priority}"), format!("quanta {priority}"))
    });
    let others = [
        ("macc.opcode", "opcode"),
        ("macc.pause_time", "quanta"),
        ("macc.cbfc.enbv", "priorities"),
    ];
    others
        .map(|(theirs, ours)| (theirs.to_owned(), ours.to_owned()))
        .into_iter()
        .chain(times)
        .collect()
}

#[tier1("tshark")]
fn tshark_agrees_on_every_field_of_every_pause_frame() {
    let path = testdata().join("generated/pause.pcap");
    let fields = pause_fields();
    let flags: Vec<String> = (0..8).map(|i| format!("macc.cbfc.enbv.c{i}")).collect();
    let names = fields.iter().map(|(theirs, _)| theirs).chain(&flags).map(String::as_str);
    let names: Vec<&str> = names.chain(["eth.src", "macc.opcode.unknown"]).collect();
    let rows = tshark(&path, &names);
    let mut compared = vec![0; names.len()];
    for_each(&path, |packet| {
        let PacketKind::Pause(pause) = packet.kind else { panic!("{}", packet.summary_line()) };
        let layers = packet.layers();
        let layer = layers.iter().find(|layer| layer.name == "MAC control").unwrap();
        let ours = |name: &str| layer.field(name).map(|field| number_of(&field.value));
        let of_tree = fields.iter().map(|(_, name)| ours(name));
        let flag = |i: u64| ours("priorities").map(|priorities| priorities >> i & 1);
        let all: Vec<Option<u64>> = of_tree.chain((0..8).map(flag)).collect();
        let row = &rows[packet.frame.number as usize - 1];
        for (i, (ours, theirs)) in all.iter().zip(row).enumerate() {
            let theirs = number(names[i], theirs);
            assert_eq!(*ours, theirs, "{} of frame {}", names[i], packet.frame.number);
            compared[i] += usize::from(theirs.is_some());
        }
        let [.., source, unknown] = &row[..] else { panic!("{row:?}") };
        assert_eq!(
            (pause.source.unwrap().to_string().as_str(), ""),
            (source.as_str(), unknown.as_str())
        );
        // What the dissector keeps of the frame is what its tree shows.
        match pause.kind {
            PauseKind::All { quanta } => assert_eq!(ours("quanta"), Some(quanta.into())),
            PauseKind::Priority { enabled, quanta } => {
                assert_eq!(ours("priorities"), Some(enabled.into()));
                for (i, quanta) in quanta.into_iter().enumerate() {
                    assert_eq!(ours(&format!("quanta {i}")), Some(quanta.into()));
                }
            }
            PauseKind::Unknown { .. } => panic!("{}", packet.summary_line()),
        }
    });
    let (of_macc, _) = compared.split_at(names.len() - 2);
    assert!(of_macc.iter().all(|&times| times > 0), "{compared:?}");
}

#[tier1("tshark")]
fn tshark_warns_of_the_pause_frames_that_have_a_finding_or_no_meaning() {
    let mut reserved = pfc();
    reserved[16] = 1;
    let mut unknown = pause(7);
    unknown[15] = 7;
    let file = Scratch::new("macc", &[pause(7), pfc(), reserved, unknown]);
    let rows = tshark(&file.0, &["macc.cbfc.enbv.not_zero", "macc.opcode.unknown"]);
    for_each(&file.0, |packet| {
        let PacketKind::Pause(pause) = packet.kind else { panic!("{}", packet.summary_line()) };
        let is_reserved = packet.findings.iter().any(|finding| finding.name() == "reserved_bits");
        let is_unknown = matches!(pause.kind, PauseKind::Unknown { .. });
        let theirs: Vec<bool> =
            rows[packet.frame.number as usize - 1].iter().map(|text| !text.is_empty()).collect();
        assert_eq!([is_reserved, is_unknown][..], theirs, "frame {}", packet.frame.number);
        assert_eq!(is_reserved || is_unknown, packet.frame.number > 2);
    });
}

#[tier1("tshark")]
fn tshark_shows_an_icrc_but_does_not_check_it() {
    let mut wrong = sample(opcode::RC_ACKNOWLEDGE, Ip::V4);
    *wrong.last_mut().unwrap() ^= 0xff;
    let file = Scratch::new("icrc", std::slice::from_ref(&wrong));
    let rows = tshark(&file.0, &["infiniband.invariant.crc", "_ws.expert"]);
    assert!(number("infiniband.invariant.crc", &rows[0][0]).is_some(), "{rows:?}");
    assert_eq!(rows[0][1], "", "then compare the verdict after all");
    assert!(matches!(alone(&wrong).findings[..], [Finding::Icrc { .. }]));
}

#[tier1("tshark")]
fn tshark_reads_12_of_the_20_bits_of_a_connection_requests_flow_label() {
    let path = testdata().join("generated/cm_v4.pcap");
    let field = "infiniband.cm.req.prim_flowlabel";
    let rows = tshark(&path, &[field]);
    assert_eq!(number(field, &rows[0][0]), Some(0xa3d), "then compare it after all");
    for_each_packet(&path, |frame, _, layers| {
        let request = layers.iter().find(|layer| layer.name == "CM REQ" && frame == 1);
        if let Some(label) = request.and_then(|layer| layer.field("primary flow label")) {
            assert_eq!(label.value, Value::Hex { value: 0xa_3d00, digits: 5 });
        }
    });
}

#[tier1("tshark")]
fn tshark_does_not_read_a_service_id_resolution() {
    for version in ["v4", "v6"] {
        let path = testdata().join(format!("rxe/cm_udaddy_by_rxe_{version}.pcapng"));
        let rows = tshark(&path, &["infiniband.cm.req.ip_cm.sport", "_ws.col.Info"]);
        assert_eq!(rows[0], ["", "CM: ServiceIDResReq"], "then compare its addresses after all");
        for_each_packet(&path, |frame, _, layers| {
            // `testdata.rs` checks its content against the packet's own addresses.
            assert_eq!(layers.iter().any(|layer| layer.name == "CM addresses"), frame == 1);
        });
    }
}

#[tier1("tshark")]
fn tshark_reads_a_train_as_one_packet() {
    let path = testdata().join("generated/train.pcap");
    assert_eq!(tshark(&path, &["infiniband.bth.psn"]).len(), 1);
    let mut packets = 0;
    for_each_packet(&path, |_, _, _| packets += 1);
    assert_eq!(packets, 4);
}
