//! Unmodified programs on our libibverbs, beside our own.

use crate::mpi::Binding::InTurn;
use crate::report::{Comparison, Figure};
use crate::suite::candidates::roce::{self, Bandwidth, Size};
use crate::suite::candidates::{gloo, iperf3, openmpi, perftest, sockets, sockperf};
use crate::suite::{Benchmark, Candidate, RunConfig, Topology};

pub(super) fn benchmarks(_config: &RunConfig) -> Vec<Benchmark> {
    vec![
        small_bandwidth(),
        bandwidth(),
        rate(),
        latency(),
        openmpi_allreduce("openmpi-one-float", "one float", 4),
        openmpi_allreduce("openmpi-64m", "64 MiB", 64 << 20),
        gloo_allreduce("gloo-4k", "4 KiB", 4 << 10),
        gloo_allreduce("gloo-64m", "64 MiB", 64 << 20),
    ]
}

fn small_bandwidth() -> Benchmark {
    let size = Size::Fixed(64 << 10);
    Benchmark {
        name: "perftest-64k",
        title: "WRITE, 64 KiB messages, by ib_write_bw, MTU 4300".to_owned(),
        topology: Topology::Cable { mtu: 4300 },
        axis: None,
        candidates: vec![
            perftest::bandwidth("perftest", size),
            iperf3::with_writes_of(size, "cubic-64k", "cubic"),
        ],
        comparisons: vec![Comparison::beside("perftest", Figure::Gbits, "cubic-64k").at_least(1.0)],
        notes: Vec::new(),
    }
}

fn bandwidth() -> Benchmark {
    let size = Size::Fixed(1 << 20);
    Benchmark {
        name: "perftest-1m",
        title: "WRITE, 1 MiB messages, by ib_write_bw, MTU 4300".to_owned(),
        topology: Topology::Cable { mtu: 4300 },
        axis: None,
        candidates: vec![
            perftest::bandwidth("perftest", size),
            iperf3::candidate("cubic", "cubic"),
            iperf3::with_writes_of(size, "cubic-1m", "cubic"),
            Bandwidth::of("write").candidate("perf", "roce perf write bw"),
        ],
        comparisons: vec![
            Comparison::beside("perftest", Figure::Gbits, "cubic").at_least(1.0),
            Comparison::beside("perftest", Figure::Gbits, "cubic-1m").at_least(1.0),
            Comparison::beside("perftest", Figure::Gbits, "perf").at_least(0.95),
        ],
        notes: Vec::new(),
    }
}

fn rate() -> Benchmark {
    Benchmark {
        name: "perftest-rate",
        title: "WRITE, 8 bytes, posted one by one, by ib_write_bw, MTU 1500".to_owned(),
        topology: Topology::Cable { mtu: 1500 },
        axis: None,
        candidates: vec![
            perftest::bandwidth("perftest", Size::Fixed(8)),
            sockets::rate("tcp", "tcp", (&[], "")),
        ],
        comparisons: vec![Comparison::beside("perftest", Figure::PerSecond, "tcp").at_least(1.0)],
        notes: Vec::new(),
    }
}

fn latency() -> Benchmark {
    let time = Figure::MicrosMedian;
    Benchmark {
        name: "perftest-latency",
        title: "half round trip, 8 bytes, by ib_write_lat, MTU 1500".to_owned(),
        topology: Topology::Cable { mtu: 1500 },
        axis: None,
        candidates: vec![
            perftest::latency("perftest", Size::Fixed(8)),
            sockperf::spinning("sockperf"),
            roce::latency("perf", "write", Size::Fixed(8)),
        ],
        comparisons: vec![
            Comparison::beside("perftest", time, "sockperf").at_most(1.0),
            Comparison::beside("perftest", time, "perf").at_most(1.05),
        ],
        notes: vec![
            "perftest's t_typical; both ends poll, those of sockperf, too (--nonblocked)"
                .to_owned(),
        ],
    }
}

fn openmpi_allreduce(name: &'static str, size: &str, bytes: u64) -> Benchmark {
    let (bytes, ranks) = (Size::Fixed(bytes), Size::Fixed(2));
    let verbs = openmpi::allreduce_on_verbs("verbs", bytes, ranks, InTurn);
    let tcp = openmpi::allreduce("tcp", bytes, ranks, InTurn);
    allreduce(name, format!("allreduce by Open MPI, {size}, 2 ranks, MTU 4300"), verbs, tcp)
}

fn gloo_allreduce(name: &'static str, size: &str, bytes: u64) -> Benchmark {
    let bytes = Size::Fixed(bytes);
    let verbs = gloo::allreduce_on_verbs("verbs", bytes);
    let tcp = gloo::allreduce("tcp", bytes);
    allreduce(name, format!("allreduce by Gloo, {size}, 2 ranks, MTU 4300"), verbs, tcp)
}

fn allreduce(name: &'static str, title: String, verbs: Candidate, tcp: Candidate) -> Benchmark {
    let comparison = match name.ends_with("-64m") {
        true => Comparison::beside("verbs", Figure::BusGbytes, "tcp").at_least(1.0),
        false => Comparison::beside("verbs", Figure::MicrosMean, "tcp").at_most(1.0),
    };
    Benchmark {
        name,
        title,
        topology: Topology::Switch { hosts: 2, mtu: 4300 },
        axis: None,
        candidates: vec![verbs, tcp],
        comparisons: vec![comparison],
        notes: vec!["each rank has a processor of its own".to_owned()],
    }
}
