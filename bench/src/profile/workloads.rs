//! What is profiled.

use crate::mpi::Binding;
use crate::suite::candidates::roce::{self, Bandwidth, Size};
use crate::suite::candidates::{iperf3, raw};
use crate::suite::{Candidate, Topology};

/// Contestants on a network, ours first.
#[derive(Debug)]
pub struct Workload {
    /// What is typed to choose it.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// How many times longer than the config says: what is measured by number of
    /// messages ends early.
    pub longer: f64,
    /// What the ends meet on.
    pub topology: Topology,
    /// The candidates, ours first.
    pub candidates: Vec<Candidate>,
}

/// All workloads: the benchmarks with the highest targets.
pub fn workloads() -> Vec<Workload> {
    let single = Bandwidth { size: Size::Fixed(8), ..Bandwidth::of("write") };
    let lists = Bandwidth { depth: 1024, list: 64, ..single };
    vec![
        Workload {
            name: "write-1m",
            title: "WRITE, 1 MiB messages, MTU 4300",
            longer: 1.0,
            topology: Topology::Cable { mtu: 4300 },
            candidates: vec![
                Bandwidth::of("write").candidate("roce", "roce write"),
                raw::trains("raw", MIB, true),
                iperf3::with_writes_of(Size::Fixed(MIB), "tcp", "cubic"),
            ],
        },
        Workload {
            name: "write-8-rate",
            title: "WRITE, 8 bytes, lists of 64, 1024 deep, MTU 1500",
            longer: 1.0,
            topology: Topology::Cable { mtu: 1500 },
            candidates: vec![lists.candidate("roce", "roce write"), raw::small("raw", true)],
        },
        Workload {
            name: "write-8-single",
            title: "WRITE, 8 bytes, posted one by one, 128 deep, MTU 1500",
            longer: 1.0,
            topology: Topology::Cable { mtu: 1500 },
            candidates: vec![single.candidate("roce", "roce write")],
        },
        Workload {
            name: "write-8-latency",
            title: "WRITE, 8 bytes each way, MTU 1500",
            longer: 3.0,
            topology: Topology::Cable { mtu: 1500 },
            candidates: vec![roce::latency("roce", "write", Size::Fixed(8)), raw::pingpong("raw")],
        },
        Workload {
            name: "allreduce-64m-2",
            title: "allreduce, 64 MiB, 2 ranks, MTU 4300",
            longer: 1.0,
            topology: Topology::Switch { hosts: 2, mtu: 4300 },
            candidates: vec![roce::allreduce(
                "roce",
                Size::Fixed(64 * MIB),
                Size::Fixed(2),
                Binding::Free,
            )],
        },
    ]
}

const MIB: u64 = 1 << 20;
