//! Programs that connect by rdma_cm, beside TCP.

use crate::report::{Comparison, Figure};
use crate::suite::candidates::roce::Size;
use crate::suite::candidates::{iperf3, rsockets};
use crate::suite::{Benchmark, Topology};

pub(super) fn benchmarks() -> Vec<Benchmark> {
    vec![latency(), bandwidth()]
}

fn latency() -> Benchmark {
    let size = Size::Fixed(64);
    Benchmark {
        name: "rsockets-latency",
        title: "half round trip, 64 bytes, by rstream, MTU 1500".to_owned(),
        topology: Topology::Cable { mtu: 1500 },
        axis: None,
        candidates: vec![
            rsockets::latency("rsockets", size),
            rsockets::latency_of_tcp("tcp", size),
        ],
        comparisons: vec![Comparison::beside("rsockets", Figure::MicrosMean, "tcp").at_most(1.0)],
        notes: Vec::new(),
    }
}

fn bandwidth() -> Benchmark {
    Benchmark {
        name: "rsockets-iperf3",
        title: "one stream of iperf3 over librspreload, MTU 4300".to_owned(),
        topology: Topology::Cable { mtu: 4300 },
        axis: None,
        candidates: vec![rsockets::bandwidth("rsockets"), iperf3::candidate("cubic", "cubic")],
        comparisons: vec![Comparison::beside("rsockets", Figure::Gbits, "cubic").at_least(1.0)],
        notes: Vec::new(),
    }
}
