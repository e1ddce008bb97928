//! Programs that connect by rdma_cm, beside TCP.

use crate::report::{Comparison, Figure};
use crate::suite::candidates::roce::Size;
use crate::suite::candidates::{connections, iperf3, rsockets};
use crate::suite::{Benchmark, Topology};

pub(super) fn benchmarks() -> Vec<Benchmark> {
    vec![connections(), latency(), bandwidth()]
}

fn connections() -> Benchmark {
    Benchmark {
        name: "cm-connections",
        title: format!("{CONNECTIONS} connections at a time, MTU 1500"),
        topology: Topology::Cable { mtu: 1500 },
        axis: None,
        candidates: vec![
            connections::rdma_cm("rdma_cm", CONNECTIONS),
            connections::tcp("tcp", CONNECTIONS),
        ],
        comparisons: vec![Comparison::beside("rdma_cm", Figure::Connections, "tcp")],
        notes: vec![
            "of rdma_cm all steps from an identifier to the connection count, also the queue pair's"
                .to_owned(),
        ],
    }
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
        comparisons: vec![Comparison::beside("rsockets", Figure::MicrosMean, "tcp")],
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
        comparisons: vec![Comparison::beside("rsockets", Figure::Gbits, "cubic")],
        notes: Vec::new(),
    }
}

/// As many as cmtime is measured with elsewhere.
const CONNECTIONS: u32 = 1000;
