//! Processors that other programs use up: latency, bandwidth and allreduce beside busy loops.

use crate::mpi::Binding::Free;
use crate::report::{Axis, Comparison, Figure};
use crate::suite::candidates::roce::{self, Bandwidth, Size};
use crate::suite::candidates::{iperf3, openmpi, sockets};
use crate::suite::{Benchmark, Candidate, RunConfig, Topology};

pub(super) fn benchmarks(_pace: &RunConfig) -> Vec<Benchmark> {
    vec![
        latency(),
        write("busy-write-64k", 64 << 10),
        allreduce("busy-allreduce-one-float", 4, (10.0, 100.0)),
    ]
}

fn latency() -> Benchmark {
    let send = roce::latency("send", "send", Size::Fixed(8)).beside_busy_loops(20.0);
    let figures = [Figure::MicrosMean, Figure::Micros99];
    let beside = |figure| Comparison::beside("send", figure, "tcp-block").at_most(2.0);
    Benchmark {
        name: "busy-latency",
        title: "half round trip, 8 bytes, MTU 1500, beside busy loops".to_owned(),
        topology: Topology::Cable { mtu: 1500 },
        axis: None,
        candidates: vec![
            send,
            sockets::pingpong("tcp-block", "tcp", "block").beside_busy_loops(1.0),
        ],
        comparisons: figures.into_iter().map(beside).collect(),
        notes: vec![LOOPS.to_owned(), format!("ours polls its completion queue; {POLLS}")],
    }
}

fn write(name: &'static str, bytes: u64) -> Benchmark {
    let size = Size::Fixed(bytes);
    let candidate = |it: Candidate| it.beside_busy_loops(1.0);
    let large = iperf3::with_writes_of(size, "cubic-same", "cubic");
    Benchmark {
        name,
        title: format!("WRITE, {} messages, MTU 4300, beside busy loops", Axis::Bytes.at(bytes)),
        topology: Topology::Cable { mtu: 4300 },
        axis: None,
        candidates: vec![
            candidate(Bandwidth { size, ..Bandwidth::of("write") }.candidate("roce", "roce write")),
            candidate(large),
        ],
        comparisons: vec![Comparison::beside("roce", Figure::Gbits, "cubic-same").at_least(1.0)],
        notes: vec![
            LOOPS.to_owned(),
            format!(
                "our sender polls its completion queue, and the device's thread receives; {POLLS}"
            ),
        ],
    }
}

/// `slower`: how many times as long an operation of ours and one of Open MPI's take about.
fn allreduce(name: &'static str, bytes: u64, slower: (f64, f64)) -> Benchmark {
    let (size, ranks) = (Size::Fixed(bytes), Size::Fixed(3));
    Benchmark {
        name,
        title: format!(
            "allreduce, {}, 3 ranks, MTU 4300, beside busy loops",
            Axis::Bytes.at(bytes)
        ),
        topology: Topology::Switch { hosts: 3, mtu: 4300 },
        axis: None,
        candidates: vec![
            roce::allreduce("roce", size, ranks, Free).beside_busy_loops(slower.0),
            openmpi::allreduce("openmpi", size, ranks, Free).beside_busy_loops(slower.1),
        ],
        comparisons: vec![Comparison::beside("roce", Figure::MicrosMean, "openmpi").at_most(1.0)],
        notes: vec![
            LOOPS.to_owned(),
            format!("our ranks poll; {POLLS}. Open MPI's poll and yield"),
        ],
    }
}

const LOOPS: &str = "beside two endless loops of the shell bound to each processor, as long as \
    the run takes";
const POLLS: &str = "a poll that has lost a time slice by a yield blocks for up to 500 µs";
