//! Goodput over a switch that loses.

use crate::report::{Comparison, Figure};
use crate::suite::candidates::iperf3;
use crate::suite::candidates::roce::Bandwidth;
use crate::suite::{Benchmark, LossOf, RunConfig, Topology};

pub(super) fn benchmarks(_pace: &RunConfig) -> Vec<Benchmark> {
    vec![
        benchmark("loss-frames-0.1", 1000, LossOf::Frames),
        benchmark("loss-frames-1", 100, LossOf::Frames),
        benchmark("loss-packets-0.1", 1000, LossOf::Packets),
        benchmark("loss-packets-1", 100, LossOf::Packets),
        without_loss(),
    ]
}

/// What the same path carries without loss.
fn without_loss() -> Benchmark {
    Benchmark {
        title: "WRITE, 1 MiB messages, single packets, none lost, MTU 1500".to_owned(),
        comparisons: vec![Comparison::beside("roce", Figure::Gbits, "bbr")],
        ..benchmark("loss-packets-none", NEVER, LossOf::Packets)
    }
}

/// One in so many packets is none in a run.
const NEVER: u32 = 1_000_000_000;

fn benchmark(name: &'static str, one_in: u32, of: LossOf) -> Benchmark {
    let share = 100.0 / f64::from(one_in);
    let what = match of {
        LossOf::Frames => "frames lost as carried",
        LossOf::Packets => "single packets lost",
    };
    Benchmark {
        name,
        title: format!("WRITE, 1 MiB messages, {share} % of {what}, MTU 1500"),
        topology: Topology::Lossy { mtu: 1500, one_in, of },
        axis: None,
        candidates: vec![
            Bandwidth::of("write").candidate("roce", "roce write"),
            iperf3::candidate("cubic", "cubic"),
            iperf3::candidate("bbr", "bbr"),
        ],
        comparisons: vec![
            Comparison::beside("roce", Figure::Gbits, "cubic").at_least(1.0),
            Comparison::beside("roce", Figure::Gbits, "bbr"),
        ],
        notes: Vec::new(),
    }
}
