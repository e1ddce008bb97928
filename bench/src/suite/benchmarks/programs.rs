//! Unmodified programs on our libibverbs, beside our own.

use crate::report::{Comparison, Figure};
use crate::suite::candidates::roce::{self, Bandwidth, Size};
use crate::suite::candidates::{iperf3, perftest};
use crate::suite::{Benchmark, RunConfig, Topology};

pub(super) fn benchmarks(_config: &RunConfig) -> Vec<Benchmark> {
    vec![
        bandwidth("perftest-64k", "WRITE, 64 KiB messages, by ib_write_bw, MTU 4300", 1 << 16),
        bandwidth("perftest-1m", "WRITE, 1 MiB messages, by ib_write_bw, MTU 4300", 1 << 20),
        rate(),
        latency(),
    ]
}

fn bandwidth(name: &'static str, title: &str, size: u64) -> Benchmark {
    let write = Bandwidth { size: Size::Fixed(size), ..Bandwidth::of("write") };
    Benchmark {
        name,
        title: title.to_owned(),
        topology: Topology::Cable { mtu: 4300 },
        axis: None,
        candidates: vec![
            perftest::bandwidth("perftest", Size::Fixed(size)),
            write.candidate("perf", "roce perf write bw"),
            iperf3::candidate("cubic", "cubic"),
        ],
        comparisons: vec![
            Comparison::beside("perftest", Figure::Gbits, "perf").at_least(0.95),
            Comparison::beside("perftest", Figure::Gbits, "cubic"),
        ],
        notes: Vec::new(),
    }
}

fn rate() -> Benchmark {
    let write = Bandwidth { size: Size::Fixed(8), ..Bandwidth::of("write") };
    Benchmark {
        name: "perftest-rate",
        title: "WRITE, 8 bytes, posted one by one, by ib_write_bw, MTU 1500".to_owned(),
        topology: Topology::Cable { mtu: 1500 },
        axis: None,
        candidates: vec![
            perftest::bandwidth("perftest", Size::Fixed(8)),
            write.candidate("perf", "roce perf write bw"),
        ],
        comparisons: vec![Comparison::beside("perftest", Figure::PerSecond, "perf").at_least(0.9)],
        notes: Vec::new(),
    }
}

fn latency() -> Benchmark {
    Benchmark {
        name: "perftest-latency",
        title: "half round trip, 8 bytes, by ib_write_lat, MTU 1500".to_owned(),
        topology: Topology::Cable { mtu: 1500 },
        axis: None,
        candidates: vec![
            perftest::latency("perftest", Size::Fixed(8)),
            roce::latency("perf", "write", Size::Fixed(8)),
        ],
        comparisons: vec![
            Comparison::beside("perftest", Figure::MicrosMedian, "perf").at_most(1.05),
        ],
        notes: vec!["perftest's t_typical, and its t_min to 99.9 %; both ends poll".to_owned()],
    }
}
