//! Goodput over a switch that loses.

use crate::report::{Comparison, Figure};
use crate::suite::candidates::iperf3;
use crate::suite::candidates::roce::Bandwidth;
use crate::suite::{Benchmark, LossOf, RunConfig, Topology};

pub(super) fn benchmarks(_pace: &RunConfig) -> Vec<Benchmark> {
    vec![
        of_frames("loss-frames-1", 100),
        of_packets("loss-packets-0.1", 1000),
        of_packets("loss-packets-1", 100),
    ]
}

/// Frames as the kernel carries them, up to 64 KiB at a time.
fn of_frames(name: &'static str, one_in: u32) -> Benchmark {
    let topology = Topology::Lossy { mtu: 1500, one_in, of: LossOf::Frames };
    let title = format!("{} % of frames lost as carried, MTU 1500", percent(one_in));
    benchmark(name, title, topology, &["cubic"])
}

/// At an MTU at which packets of ours and of TCP's carry the same, 4096 and 4248 bytes: at 1500 it would
/// be 1024 and 1448, so that the sizes were compared.
fn of_packets(name: &'static str, one_in: u32) -> Benchmark {
    let topology = Topology::Lossy { mtu: 4300, one_in, of: LossOf::Packets };
    let title = format!("{} % of single packets lost, MTU 4300", percent(one_in));
    benchmark(name, title, topology, &["cubic", "bbr"])
}

fn percent(one_in: u32) -> f64 {
    100.0 / f64::from(one_in)
}

fn benchmark(
    name: &'static str,
    loss: String,
    topology: Topology,
    controls: &[&'static str],
) -> Benchmark {
    let beside =
        |control: &&'static str| Comparison::beside("roce", Figure::Gbits, control).at_least(1.0);
    let mut candidates = vec![Bandwidth::of("write").candidate("roce", "roce write")];
    candidates.extend(controls.iter().map(|control| iperf3::candidate(control, control)));
    Benchmark {
        name,
        title: format!("WRITE, 1 MiB messages, {loss}"),
        topology,
        axis: None,
        candidates,
        comparisons: controls.iter().map(beside).collect(),
        notes: Vec::new(),
    }
}
