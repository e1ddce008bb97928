//! Bandwidth: WRITE beside TCP and the bare path, READ and SEND beside WRITE, and by size.

use crate::report::{Axis, Figure, Target};
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
    all
}

fn write(name: &'static str, mtu: u32) -> Row {
    Row {
        name,
        title: format!("WRITE, 1 MiB messages, MTU {mtu}"),
        wire: Wire::Cable { mtu },
        axis: None,
        contestants: vec![
            Bandwidth::of("write").contestant("roce", "roce write"),
            iperf3::contestant("cubic", "cubic", |_| 0),
            iperf3::contestant("bbr", "bbr", |_| 0),
            raw::trains("raw", MIB, true),
            raw::trains("raw-no-icrc", MIB, false),
            ucx::bandwidth("ucx"),
        ],
        targets: vec![
            Target::beside("roce", Figure::Gbits, "cubic").at_least(1.1),
            Target::beside("roce", Figure::Gbits, "bbr").at_least(1.5),
            Target::beside("roce", Figure::Gbits, "raw").at_least(0.85),
            Target::beside("roce", Figure::Gbits, "raw-no-icrc"),
            Target::beside("roce", Figure::Gbits, "ucx"),
        ],
        notes: Vec::new(),
    }
}

fn write_over_64_mib(name: &'static str, mtu: u32) -> Row {
    let roce = Bandwidth { working_set: 64 * MIB, ..Bandwidth::of("write") };
    Row {
        name,
        title: format!("WRITE, 1 MiB messages over 64 MiB, MTU {mtu}"),
        wire: Wire::Cable { mtu },
        axis: None,
        contestants: vec![
            roce.contestant("roce", "roce write"),
            iperf3::contestant("cubic", "cubic", |_| 0),
            iperf3::contestant("bbr", "bbr", |_| 0),
            raw::trains("raw", 64 * MIB, true),
            raw::trains("raw-no-icrc", 64 * MIB, false),
        ],
        targets: vec![
            Target::beside("roce", Figure::Gbits, "cubic").at_least(0.85),
            Target::beside("roce", Figure::Gbits, "bbr").above(1.0),
            Target::beside("roce", Figure::Gbits, "raw").at_least(0.85),
            Target::beside("roce", Figure::Gbits, "raw-no-icrc"),
        ],
        notes: vec!["iperf3 has no such working set: it reuses its one buffer".to_owned()],
    }
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
        true => vec![4096, 64 * KIB, MIB],
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
            write.contestant("roce", "roce write"),
            iperf3::contestant("cubic", "cubic", |stage| stage.x),
            iperf3::contestant("bbr", "bbr", |stage| stage.x),
            level(raw::trains("raw", MIB, true)),
        ],
        targets: vec![Target::beside("roce", Figure::Gbits, "cubic").at(64 * KIB)],
        notes: vec!["for TCP the size is that of one write to its socket".to_owned()],
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
