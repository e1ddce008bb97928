//! Unmodified programs on our libibverbs, beside our own.

use crate::mpi::Binding::{Free, InTurn};
use crate::report::{Comparison, Figure};
use crate::suite::candidates::roce::{self, Bandwidth, Size};
use crate::suite::candidates::{iperf3, openmpi, perftest};
use crate::suite::{Benchmark, RunConfig, Topology};

pub(super) fn benchmarks(_config: &RunConfig) -> Vec<Benchmark> {
    vec![
        bandwidth("perftest-64k", "WRITE, 64 KiB messages, by ib_write_bw, MTU 4300", 1 << 16),
        bandwidth("perftest-1m", "WRITE, 1 MiB messages, by ib_write_bw, MTU 4300", 1 << 20),
        rate(),
        latency(),
        allreduce("openmpi-one-float", "one float", 4, Figure::MicrosMean),
        allreduce("openmpi-64m", "64 MiB", 64 << 20, Figure::BusGbytes),
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

fn allreduce(name: &'static str, size: &str, bytes: u64, figure: Figure) -> Benchmark {
    let (bytes, ranks) = (Size::Fixed(bytes), Size::Fixed(2));
    Benchmark {
        name,
        title: format!("allreduce by Open MPI, {size}, 2 ranks, MTU 4300"),
        topology: Topology::Switch { hosts: 2, mtu: 4300 },
        axis: None,
        candidates: vec![
            openmpi::allreduce_on_verbs("verbs", bytes, ranks, Free),
            openmpi::allreduce("tcp", bytes, ranks, Free),
            openmpi::allreduce_on_verbs("verbs-bound", bytes, ranks, InTurn),
            openmpi::allreduce("tcp-bound", bytes, ranks, InTurn),
        ],
        comparisons: vec![
            Comparison::beside("verbs", figure, "tcp"),
            Comparison::beside("verbs-bound", figure, "tcp-bound"),
        ],
        notes: vec!["ranks poll; bound ones have a processor each".to_owned()],
    }
}
