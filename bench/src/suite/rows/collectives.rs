//! Allreduce beside Open MPI.

use crate::mpi::Binding::{Free, InTurn};
use crate::report::{Axis, Figure, Target};
use crate::suite::peers::openmpi;
use crate::suite::peers::roce::{self, Size};
use crate::suite::{Pace, Row, Wire};

pub(super) fn rows(pace: &Pace) -> Vec<Row> {
    vec![
        row("allreduce-one-float", 4, 3, Figure::MicrosMean),
        row("allreduce-64m-2", 64 << 20, 2, Figure::BusGbytes),
        row("allreduce-64m-3", 64 << 20, 3, Figure::BusGbytes),
        by_size(pace),
        by_ranks(pace),
    ]
}

fn row(name: &'static str, bytes: u64, ranks: u64, figure: Figure) -> Row {
    let wanted = |ours, theirs| {
        let target = Target::beside(ours, figure, theirs);
        match figure {
            Figure::BusGbytes => target.at_least(1.3),
            _ => target.at_most(0.5),
        }
    };
    let title = match figure {
        Figure::BusGbytes => "64 MiB",
        _ => "one float",
    };
    let (size, of) = (Size::Fixed(bytes), Size::Fixed(ranks));
    Row {
        name,
        title: format!("allreduce, {title}, {ranks} ranks, MTU 4300"),
        wire: Wire::Switch { hosts: ranks as usize, mtu: 4300 },
        axis: None,
        contestants: vec![
            roce::allreduce("roce", size, of, Free),
            openmpi::allreduce("openmpi", size, of, Free),
            roce::allreduce("roce-bound", size, of, InTurn),
            openmpi::allreduce("openmpi-bound", size, of, InTurn),
        ],
        targets: vec![wanted("roce", "openmpi"), wanted("roce-bound", "openmpi-bound")],
        notes: vec![BOUND.to_owned()],
    }
}

fn by_size(pace: &Pace) -> Row {
    let points: Vec<u64> = match pace.quick {
        true => vec![1 << 12, 1 << 20],
        false => vec![1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22, 1 << 25],
    };
    let ranks = Size::Fixed(2);
    Row {
        name: "allreduce-by-size",
        title: "allreduce busbw by size, 2 ranks, MTU 4300".to_owned(),
        wire: Wire::Switch { hosts: 2, mtu: 4300 },
        axis: Some((Axis::Bytes, points)),
        contestants: vec![
            roce::allreduce("roce", Size::OfAxis, ranks, Free),
            openmpi::allreduce("openmpi", Size::OfAxis, ranks, Free),
        ],
        targets: Vec::new(),
        notes: Vec::new(),
    }
}

fn by_ranks(pace: &Pace) -> Row {
    let points: Vec<u64> = match pace.quick {
        true => vec![2, 3],
        false => vec![2, 3, 4, 6, 8],
    };
    let most = points.iter().copied().max().unwrap_or(2);
    let size = Size::Fixed(1 << 22);
    Row {
        name: "allreduce-by-ranks",
        title: "allreduce busbw by number of ranks, 4 MiB, MTU 4300".to_owned(),
        wire: Wire::Switch { hosts: most as usize, mtu: 4300 },
        axis: Some((Axis::Ranks, points)),
        contestants: vec![
            roce::allreduce("roce", size, Size::OfAxis, Free),
            openmpi::allreduce("openmpi", size, Size::OfAxis, Free),
        ],
        targets: Vec::new(),
        notes: Vec::new(),
    }
}

const BOUND: &str = "where it says so, ranks are bound to one processor each, in turn, ours and theirs alike; else the system places them";
