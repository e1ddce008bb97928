//! Allreduce beside Open MPI.

use crate::mpi::Binding::{Free, InTurn};
use crate::report::{Axis, Comparison, Figure};
use crate::suite::candidates::openmpi;
use crate::suite::candidates::roce::{self, Size};
use crate::suite::{Benchmark, RunConfig, Topology};

pub(super) fn benchmarks(config: &RunConfig) -> Vec<Benchmark> {
    vec![
        benchmark("allreduce-one-float", 4, 3, Figure::MicrosMean),
        benchmark("allreduce-64m-2", 64 << 20, 2, Figure::BusGbytes),
        benchmark("allreduce-64m-3", 64 << 20, 3, Figure::BusGbytes),
        by_size(config),
        by_ranks(config),
    ]
}

fn benchmark(name: &'static str, bytes: u64, ranks: u64, figure: Figure) -> Benchmark {
    let wanted = |ours, theirs| {
        let comparison = Comparison::beside(ours, figure, theirs);
        match figure {
            Figure::BusGbytes => comparison.at_least(1.3),
            _ => comparison.at_most(0.5),
        }
    };
    let title = match figure {
        Figure::BusGbytes => "64 MiB",
        _ => "one float",
    };
    let (size, of) = (Size::Fixed(bytes), Size::Fixed(ranks));
    Benchmark {
        name,
        title: format!("allreduce, {title}, {ranks} ranks, MTU 4300"),
        topology: Topology::Switch { hosts: ranks as usize, mtu: 4300 },
        axis: None,
        candidates: vec![
            roce::allreduce("roce", size, of, Free),
            openmpi::allreduce("openmpi", size, of, Free),
            roce::allreduce("roce-bound", size, of, InTurn),
            openmpi::allreduce("openmpi-bound", size, of, InTurn),
        ],
        comparisons: vec![wanted("roce", "openmpi"), wanted("roce-bound", "openmpi-bound")],
        notes: vec![BOUND.to_owned()],
    }
}

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

const BOUND: &str = "where it says so, ranks are bound to one processor each, in turn, ours and theirs alike; else the system places them";
