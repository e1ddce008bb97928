//! Allreduce beside Open MPI, and of one float beside the bare path.

use crate::mpi::Binding::{self, Free, InTurn};
use crate::report::{Axis, Comparison, Figure};
use crate::suite::candidates::roce::{self, Size};
use crate::suite::candidates::{openmpi, raw};
use crate::suite::{Benchmark, RunConfig, Topology};

pub(super) fn benchmarks(config: &RunConfig) -> Vec<Benchmark> {
    vec![
        one_float(),
        benchmark("allreduce-256k-2", 256 << 10, (2, InTurn), 1.0),
        beside_raw("allreduce-1m-2", 1 << 20),
        beside_raw("allreduce-4m-2", 4 << 20),
        benchmark("allreduce-64m-2", 64 << 20, (2, InTurn), 1.0),
        benchmark("allreduce-64m-3", 64 << 20, (3, Free), 1.3),
        by_size(config),
        by_ranks(config),
    ]
}

fn one_float() -> Benchmark {
    let (size, ranks) = (Size::Fixed(4), Size::Fixed(3));
    Benchmark {
        name: "allreduce-one-float",
        title: "allreduce, one float, 3 ranks, MTU 4300".to_owned(),
        topology: Topology::Switch { hosts: 3, mtu: 4300 },
        axis: None,
        candidates: vec![
            roce::allreduce("roce", size, ranks, InTurn),
            openmpi::allreduce("openmpi", size, ranks, InTurn),
            raw::ring("raw", 3),
        ],
        comparisons: vec![
            Comparison::beside("roce", Figure::MicrosMean, "openmpi").at_most(1.0),
            Comparison::beside("roce", Figure::MicrosMean, "raw").at_most(2.0),
        ],
        notes: vec![
            BOUND.to_owned(),
            "the raw ring sends the same four frames between three receive rings, polls and yields, and \
             does nothing else"
                .to_owned(),
        ],
    }
}

fn benchmark(
    name: &'static str,
    bytes: u64,
    (ranks, binding): (u64, Binding),
    least: f64,
) -> Benchmark {
    let (size, of) = (Size::Fixed(bytes), Size::Fixed(ranks));
    let how = match binding {
        Free => "where the system places ranks, ours and theirs alike",
        InTurn => BOUND,
    };
    Benchmark {
        name,
        title: format!("allreduce, {}, {ranks} ranks, MTU 4300", Axis::Bytes.at(bytes)),
        topology: Topology::Switch { hosts: ranks as usize, mtu: 4300 },
        axis: None,
        candidates: vec![
            roce::allreduce("roce", size, of, binding),
            openmpi::allreduce("openmpi", size, of, binding),
        ],
        comparisons: vec![Comparison::beside("roce", Figure::BusGbytes, "openmpi").at_least(least)],
        notes: vec![how.to_owned()],
    }
}

/// Two ranks, beside the trains alone, too.
fn beside_raw(name: &'static str, bytes: u64) -> Benchmark {
    let mut benchmark = benchmark(name, bytes, (2, InTurn), 1.0);
    benchmark.candidates.push(raw::exchange("raw", bytes));
    let ratio = Comparison::beside("roce", Figure::BusGbytes, "raw").at_least(LEAST_OF_RAW);
    benchmark.comparisons.push(ratio);
    benchmark.notes.push(
        "the raw exchange copies, sums and checks as much, in trains without a protocol, which it sends and takes \
         in turn"
            .to_owned(),
    );
    benchmark
}

/// A plot.
fn by_size(config: &RunConfig) -> Benchmark {
    let points: Vec<u64> = match config.quick {
        true => vec![1 << 12, 1 << 20],
        false => vec![1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22, 1 << 25],
    };
    let ranks = Size::Fixed(2);
    Benchmark {
        name: "allreduce-by-size",
        title: "allreduce busbw by size, 2 ranks, MTU 4300".to_owned(),
        topology: Topology::Switch { hosts: 2, mtu: 4300 },
        axis: Some((Axis::Bytes, points)),
        candidates: vec![
            roce::allreduce("roce", Size::OfAxis, ranks, Free),
            openmpi::allreduce("openmpi", Size::OfAxis, ranks, Free),
        ],
        comparisons: Vec::new(),
        notes: Vec::new(),
    }
}

/// A plot.
fn by_ranks(config: &RunConfig) -> Benchmark {
    let points: Vec<u64> = match config.quick {
        true => vec![2, 3],
        false => vec![2, 3, 4, 6, 8],
    };
    let most = points.iter().copied().max().unwrap_or(2);
    let size = Size::Fixed(1 << 22);
    Benchmark {
        name: "allreduce-by-ranks",
        title: "allreduce busbw by number of ranks, 4 MiB, MTU 4300".to_owned(),
        topology: Topology::Switch { hosts: most as usize, mtu: 4300 },
        axis: Some((Axis::Ranks, points)),
        candidates: vec![
            roce::allreduce("roce", size, Size::OfAxis, Free),
            openmpi::allreduce("openmpi", size, Size::OfAxis, Free),
        ],
        comparisons: Vec::new(),
        notes: Vec::new(),
    }
}

/// The part of the raw exchange's rate that an operation is to reach.
const LEAST_OF_RAW: f64 = 0.7;
const BOUND: &str = "ranks are bound to one processor each, in turn, ours and theirs alike";
