//! Many queue pairs on one link.

use crate::report::{Axis, Comparison, Figure};
use crate::suite::candidates::iperf3;
use crate::suite::candidates::roce::{Bandwidth, Size};
use crate::suite::{Benchmark, RunConfig, Topology};

pub(super) fn benchmarks(config: &RunConfig) -> Vec<Benchmark> {
    vec![thousand(), beside_streams(), by_number(config)]
}

/// Messages of 64 KiB, so that a second has enough of them for each of a thousand.
fn shared(queue_pairs: Size) -> Bandwidth {
    let depth = 16;
    Bandwidth { size: Size::Fixed(1 << 16), queue_pairs, depth, ..Bandwidth::of("write") }
}

fn thousand() -> Benchmark {
    Benchmark {
        name: "qps",
        title: "WRITE, 64 KiB messages, 1000 queue pairs, MTU 4300".to_owned(),
        topology: Topology::Cable { mtu: 4300 },
        axis: None,
        candidates: vec![
            shared(Size::Fixed(1000)).candidate("roce", "roce write, 1000 queue pairs"),
            shared(Size::Fixed(1)).candidate("one", "roce write, one queue pair"),
        ],
        comparisons: vec![Comparison::beside("roce", Figure::Gbits, "one").at_least(0.8)],
        notes: Vec::new(),
    }
}

fn beside_streams() -> Benchmark {
    Benchmark {
        name: "qps-beside-streams",
        title: format!("WRITE, 64 KiB messages, {STREAMS} queue pairs, MTU 4300"),
        topology: Topology::Cable { mtu: 4300 },
        axis: None,
        candidates: vec![
            shared(Size::Fixed(STREAMS)).candidate("roce", "roce write"),
            iperf3::streams("cubic", "cubic", STREAMS),
        ],
        comparisons: vec![
            Comparison::beside("roce", Figure::Gbits, "cubic").at_least(1.0),
            Comparison::beside("roce", Figure::MinShare, "cubic").at_least(0.95),
        ],
        notes: vec!["shares are in means of all: 1 is fair".to_owned()],
    }
}

/// Queue pairs, and streams of iperf3, which has 128 at most.
const STREAMS: u64 = 100;

/// A plot.
fn by_number(config: &RunConfig) -> Benchmark {
    let points: Vec<u64> = match config.quick {
        true => vec![1, 64],
        false => vec![1, 4, 16, 64, 256, 1000],
    };
    Benchmark {
        name: "qps-by-number",
        title: "WRITE bandwidth by number of queue pairs, 64 KiB messages, MTU 4300".to_owned(),
        topology: Topology::Cable { mtu: 4300 },
        axis: Some((Axis::QueuePairs, points)),
        candidates: vec![shared(Size::OfAxis).candidate("roce", "roce write")],
        comparisons: Vec::new(),
        notes: Vec::new(),
    }
}
