//! Bandwidth: WRITE beside TCP and the bare path, READ and SEND beside WRITE, and by size.

use crate::report::{Axis, Bound, Figure, Target};
use crate::suite::peers::roce::{Bandwidth, Size};
use crate::suite::peers::{iperf3, raw, ucx};
use crate::suite::{Contestant, Pace, Row, Wire};

pub(super) fn rows(pace: &Pace) -> Vec<Row> {
    let mut all = Vec::new();
    for (mtu, small, large) in [
        (1500, "write-1500", "write-1500-64m"),
        (4300, "write-4300", "write-4300-64m"),
        (9000, "write-9000", "write-9000-64m"),
    ] {
        all.push(write(small, mtu));
        all.push(write_over_64_mib(large, mtu));
    }
    all.push(read_and_send());
    all.push(by_size(pace));
    if pace.quick {
        // What is there to be seen only takes a tenth of two minutes.
        for row in &mut all {
            row.contestants.retain(|it| !ONLY_SEEN.contains(&it.name));
            let stays = |name: &String| !ONLY_SEEN.contains(&name.as_str());
            row.targets.retain(|target| target.beside.as_ref().is_none_or(stays));
        }
    }
    all
}

/// Contestants that nothing is wanted beside.
const ONLY_SEEN: [&str; 2] = ["raw-no-icrc", "ucx"];

fn write(name: &'static str, mtu: u32) -> Row {
    let roce = Bandwidth::of("write").contestant("roce", "roce write");
    let mut contestants = beside_write(MIB);
    contestants.insert(0, roce);
    contestants.push(ucx::bandwidth("ucx"));
    let mut targets = targets_of_write([Bound::AtLeast(1.1), Bound::AtLeast(1.5)]);
    targets.push(Target::beside("roce", Figure::Gbits, "ucx"));
    Row {
        name,
        title: format!("WRITE, 1 MiB messages, MTU {mtu}"),
        wire: Wire::Cable { mtu },
        axis: None,
        contestants,
        targets,
        notes: Vec::new(),
    }
}

fn write_over_64_mib(name: &'static str, mtu: u32) -> Row {
    let roce = Bandwidth { working_set: 64 * MIB, ..Bandwidth::of("write") };
    let mut contestants = beside_write(64 * MIB);
    contestants.insert(0, roce.contestant("roce", "roce write"));
    Row {
        name,
        title: format!("WRITE, 1 MiB messages over 64 MiB, MTU {mtu}"),
        wire: Wire::Cable { mtu },
        axis: None,
        contestants,
        targets: targets_of_write([Bound::AtLeast(0.85), Bound::Above(1.0)]),
        notes: vec!["iperf3 has no such working set: it reuses its one buffer".to_owned()],
    }
}

/// TCP under two congestion controls, and the bare path. TCP is there twice, as iperf3 writes by
/// itself and with writes as large as our messages: either may be the stronger.
fn beside_write(working_set: u64) -> Vec<Contestant> {
    let large = |name, control| iperf3::with_writes_of(Size::Fixed(MIB), name, control);
    vec![
        iperf3::contestant("cubic", "cubic"),
        large("cubic-1m", "cubic"),
        iperf3::contestant("bbr", "bbr"),
        large("bbr-1m", "bbr"),
        raw::trains("raw", working_set, true),
        raw::trains("raw-no-icrc", working_set, false),
    ]
}

/// What is wanted beside cubic and beside BBR, however TCP writes, and beside the bare path.
fn targets_of_write([cubic, bbr]: [Bound; 2]) -> Vec<Target> {
    let beside = |name| Target::beside("roce", Figure::Gbits, name);
    let bound = |name, bound| Target { bound: Some(bound), ..beside(name) };
    vec![
        bound("cubic", cubic),
        bound("cubic-1m", cubic),
        bound("bbr", bbr),
        bound("bbr-1m", bbr),
        beside("raw").at_least(0.85),
        beside("raw-no-icrc"),
    ]
}

fn read_and_send() -> Row {
    let target = |verb| Target::beside(verb, Figure::Gbits, "write").at_least(0.9);
    Row {
        name: "read-send",
        title: "READ and SEND, 1 MiB messages, MTU 4300".to_owned(),
        wire: Wire::Cable { mtu: 4300 },
        axis: None,
        contestants: ["write", "read", "send"]
            .map(|verb| Bandwidth::of(verb).contestant(verb, &format!("roce {verb}")))
            .into(),
        targets: vec![target("read"), target("send")],
        notes: Vec::new(),
    }
}

fn by_size(pace: &Pace) -> Row {
    let points: Vec<u64> = match pace.quick {
        true => vec![64 * KIB, MIB],
        false => vec![64, 512, 4096, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB],
    };
    let write = Bandwidth { size: Size::OfAxis, ..Bandwidth::of("write") };
    let level = |contestant: Contestant| contestant.only_at(MIB);
    Row {
        name: "bandwidth-by-size",
        title: "WRITE bandwidth by size of message, MTU 4300".to_owned(),
        wire: Wire::Cable { mtu: 4300 },
        axis: Some((Axis::Bytes, points)),
        contestants: vec![
            write.contestant("roce", "roce write, posted one by one"),
            Bandwidth { list: 16, ..write }.contestant("lists", "roce write, lists of 16"),
            iperf3::with_writes_of(Size::OfAxis, "cubic", "cubic"),
            iperf3::with_writes_of(Size::OfAxis, "bbr", "bbr"),
            level(raw::trains("raw", MIB, true)),
        ],
        targets: vec![Target::beside("roce", Figure::Gbits, "cubic").at(64 * KIB)],
        notes: vec![
            "for TCP the size is that of one write to its socket; iperf3 writes at most 1 MiB"
                .to_owned(),
        ],
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
