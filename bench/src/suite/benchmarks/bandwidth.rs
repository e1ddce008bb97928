//! Bandwidth: WRITE, READ and SEND beside TCP, WRITE beside the bare path, and by size.

use crate::report::{Axis, Comparison, Figure};
use crate::suite::candidates::roce::{Bandwidth, Size};
use crate::suite::candidates::{iperf3, raw};
use crate::suite::{Benchmark, Candidate, RunConfig, Topology};

pub(super) fn benchmarks(config: &RunConfig) -> Vec<Benchmark> {
    vec![
        write("write-1500", 1500),
        write("write-4300", 4300),
        write_over_64_mib("write-4300-64m", 4300),
        write("write-9000", 9000),
        write_over_64_mib("write-9000-64m", 9000),
        read_and_send(),
        by_size(config),
    ]
}

/// Over and over in the place of one message, as iperf3 does, beside iperf3 as it comes.
fn write(name: &'static str, mtu: u32) -> Benchmark {
    let title = format!("WRITE, 1 MiB messages, MTU {mtu}");
    beside_tcp((name, title), mtu, MIB, (iperf3::candidate("cubic", "cubic"), 1.1))
}

/// Through more memory than the caches hold, beside iperf3 with writes as large as our messages.
fn write_over_64_mib(name: &'static str, mtu: u32) -> Benchmark {
    let title = format!("WRITE, 1 MiB messages over 64 MiB, MTU {mtu}");
    let tcp = iperf3::with_writes_of(Size::Fixed(MIB), "cubic-1m", "cubic");
    let notes = vec!["iperf3 has no such working set: it reuses its one buffer".to_owned()];
    Benchmark { notes, ..beside_tcp((name, title), mtu, 64 * MIB, (tcp, 1.0)) }
}

/// A WRITE beside TCP, and at the MTU that fits RoCE beside the bare path.
fn beside_tcp(
    (name, title): (&'static str, String),
    mtu: u32,
    working_set: u64,
    (tcp, least): (Candidate, f64),
) -> Benchmark {
    let roce = Bandwidth { working_set, ..Bandwidth::of("write") };
    let beside = |name: &str| Comparison::beside("roce", Figure::Gbits, name);
    let mut comparisons = vec![beside(&tcp.name).at_least(least)];
    let mut candidates = vec![roce.candidate("roce", "roce write"), tcp];
    if mtu == 4300 {
        candidates.push(raw::trains("raw", working_set, true));
        comparisons.push(beside("raw").at_least(0.85));
    }
    let (topology, axis, notes) = (Topology::Cable { mtu }, None, Vec::new());
    Benchmark { name, title, topology, axis, candidates, comparisons, notes }
}

fn read_and_send() -> Benchmark {
    let roce = |verb| Bandwidth::of(verb).candidate(verb, &format!("roce {verb}"));
    let comparison = |verb| Comparison::beside(verb, Figure::Gbits, "cubic").at_least(1.1);
    Benchmark {
        name: "read-send",
        title: "READ and SEND, 1 MiB messages, MTU 4300".to_owned(),
        topology: Topology::Cable { mtu: 4300 },
        axis: None,
        candidates: vec![roce("read"), roce("send"), iperf3::candidate("cubic", "cubic")],
        comparisons: vec![comparison("read"), comparison("send")],
        notes: Vec::new(),
    }
}

/// A plot.
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
            level(raw::trains("raw", MIB, true)),
        ],
        comparisons: Vec::new(),
        notes: vec![
            "for TCP the size is that of one write to its socket; iperf3 writes at most 1 MiB"
                .to_owned(),
        ],
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
