//! Bandwidth: WRITE beside TCP and the bare path, READ and SEND beside WRITE, and by size.

use crate::report::{Axis, Comparison, Figure, Target};
use crate::suite::candidates::roce::{Bandwidth, Size};
use crate::suite::candidates::{iperf3, raw, ucx};
use crate::suite::{Benchmark, Candidate, RunConfig, Topology};

pub(super) fn benchmarks(config: &RunConfig) -> Vec<Benchmark> {
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
    all.push(by_size(config));
    if config.quick {
        // What is there to be seen only takes a tenth of two minutes.
        for benchmark in &mut all {
            benchmark.candidates.retain(|it| !ONLY_SEEN.contains(&it.name.as_ref()));
            let stays = |name: &String| !ONLY_SEEN.contains(&name.as_str());
            benchmark.comparisons.retain(|comparison| comparison.beside.as_ref().is_none_or(stays));
        }
    }
    all
}

/// Contestants that nothing is wanted beside.
const ONLY_SEEN: [&str; 2] = ["raw-no-icrc", "ucx"];

fn write(name: &'static str, mtu: u32) -> Benchmark {
    let roce = Bandwidth::of("write").candidate("roce", "roce write");
    let mut candidates = beside_write(MIB);
    candidates.insert(0, roce);
    candidates.push(ucx::bandwidth("ucx"));
    let mut comparisons = comparisons_of_write([Target::AtLeast(1.1), Target::AtLeast(1.5)]);
    comparisons.push(Comparison::beside("roce", Figure::Gbits, "ucx"));
    Benchmark {
        name,
        title: format!("WRITE, 1 MiB messages, MTU {mtu}"),
        topology: Topology::Cable { mtu },
        axis: None,
        candidates,
        comparisons,
        notes: Vec::new(),
    }
}

fn write_over_64_mib(name: &'static str, mtu: u32) -> Benchmark {
    let roce = Bandwidth { working_set: 64 * MIB, ..Bandwidth::of("write") };
    let mut candidates = beside_write(64 * MIB);
    candidates.insert(0, roce.candidate("roce", "roce write"));
    Benchmark {
        name,
        title: format!("WRITE, 1 MiB messages over 64 MiB, MTU {mtu}"),
        topology: Topology::Cable { mtu },
        axis: None,
        candidates,
        comparisons: comparisons_of_write([Target::AtLeast(0.85), Target::Above(1.0)]),
        notes: vec!["iperf3 has no such working set: it reuses its one buffer".to_owned()],
    }
}

/// TCP under two congestion controls, and the bare path. TCP is there twice, as iperf3 writes by
/// itself and with writes as large as our messages: either may be the stronger.
fn beside_write(working_set: u64) -> Vec<Candidate> {
    let large = |name, control| iperf3::with_writes_of(Size::Fixed(MIB), name, control);
    vec![
        iperf3::candidate("cubic", "cubic"),
        large("cubic-1m", "cubic"),
        iperf3::candidate("bbr", "bbr"),
        large("bbr-1m", "bbr"),
        raw::trains("raw", working_set, true),
        raw::trains("raw-no-icrc", working_set, false),
    ]
}

/// What is wanted beside cubic and beside BBR, however TCP writes, and beside the bare path.
fn comparisons_of_write([cubic, bbr]: [Target; 2]) -> Vec<Comparison> {
    let beside = |name| Comparison::beside("roce", Figure::Gbits, name);
    let target = |name, target| Comparison { target: Some(target), ..beside(name) };
    vec![
        target("cubic", cubic),
        target("cubic-1m", cubic),
        target("bbr", bbr),
        target("bbr-1m", bbr),
        beside("raw").at_least(0.85),
        beside("raw-no-icrc"),
    ]
}

fn read_and_send() -> Benchmark {
    let comparison = |verb| Comparison::beside(verb, Figure::Gbits, "write").at_least(0.9);
    Benchmark {
        name: "read-send",
        title: "READ and SEND, 1 MiB messages, MTU 4300".to_owned(),
        topology: Topology::Cable { mtu: 4300 },
        axis: None,
        candidates: ["write", "read", "send"]
            .map(|verb| Bandwidth::of(verb).candidate(verb, &format!("roce {verb}")))
            .into(),
        comparisons: vec![comparison("read"), comparison("send")],
        notes: Vec::new(),
    }
}

fn by_size(config: &RunConfig) -> Benchmark {
    let points: Vec<u64> = match config.quick {
        true => vec![64 * KIB, MIB],
        false => vec![64, 512, 4096, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB],
    };
    let write = Bandwidth { size: Size::OfAxis, ..Bandwidth::of("write") };
    let level = |candidate: Candidate| candidate.only_at(MIB);
    Benchmark {
        name: "bandwidth-by-size",
        title: "WRITE bandwidth by size of message, MTU 4300".to_owned(),
        topology: Topology::Cable { mtu: 4300 },
        axis: Some((Axis::Bytes, points)),
        candidates: vec![
            write.candidate("roce", "roce write, posted one by one"),
            Bandwidth { list: 16, ..write }.candidate("lists", "roce write, lists of 16"),
            iperf3::with_writes_of(Size::OfAxis, "cubic", "cubic"),
            iperf3::with_writes_of(Size::OfAxis, "bbr", "bbr"),
            level(raw::trains("raw", MIB, true)),
        ],
        comparisons: vec![Comparison::beside("roce", Figure::Gbits, "cubic").at(64 * KIB)],
        notes: vec![
            "for TCP the size is that of one write to its socket; iperf3 writes at most 1 MiB"
                .to_owned(),
        ],
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
