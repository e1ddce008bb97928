//! Latency, and messages a second.

use crate::report::{Axis, Comparison, Figure};
use crate::suite::candidates::roce::{self, Bandwidth, Size};
use crate::suite::candidates::{iperf3, raw, sockets, ucx};
use crate::suite::{Benchmark, RunConfig, Topology};

pub(super) fn benchmarks(config: &RunConfig) -> Vec<Benchmark> {
    vec![small(), by_size(config), rate(), rate_4k()]
}

fn small() -> Benchmark {
    let time = Figure::MicrosMedian;
    Benchmark {
        name: "latency",
        title: "half round trip, 8 bytes, MTU 1500".to_owned(),
        topology: Topology::Cable { mtu: 1500 },
        axis: None,
        candidates: vec![
            roce::latency("write", "write", Size::Fixed(8)),
            roce::latency("send", "send", Size::Fixed(8)),
            sockets::pingpong("tcp-spin", "tcp", "spin"),
            sockets::pingpong("udp-spin", "udp", "spin"),
            ucx::latency("ucx"),
            raw::pingpong("raw"),
        ],
        comparisons: vec![
            Comparison::beside("write", time, "tcp-spin").below(1.0),
            Comparison::beside("write", time, "udp-spin").below(1.0),
            Comparison::beside("write", time, "ucx").below(1.0),
            Comparison::beside("write", time, "raw").at_most(1.7),
            Comparison::beside("write", Figure::Micros99, "tcp-spin").at_most(1.0),
            Comparison::beside("send", time, "tcp-spin").below(1.0),
        ],
        notes: Vec::new(),
    }
}

/// A plot.
fn by_size(config: &RunConfig) -> Benchmark {
    let points: Vec<u64> = match config.quick {
        true => vec![8, 4096, 1 << 16],
        false => vec![8, 64, 512, 1024, 4096, 1 << 14, 1 << 16, 1 << 18],
    };
    Benchmark {
        name: "latency-by-size",
        title: "half round trip by size of message, MTU 4300".to_owned(),
        topology: Topology::Cable { mtu: 4300 },
        axis: Some((Axis::Bytes, points)),
        candidates: vec![
            roce::latency("write", "write", Size::OfAxis),
            roce::latency("send", "send", Size::OfAxis),
            raw::pingpong("raw").only_at(8),
            sockets::pingpong("tcp-spin", "tcp", "spin").only_at(8),
        ],
        comparisons: Vec::new(),
        notes: Vec::new(),
    }
}

fn rate() -> Benchmark {
    let small = |verb, depth, list| {
        let size = Size::Fixed(8);
        Bandwidth { size, depth, list, ..Bandwidth::of(verb) }
    };
    let rate = Figure::PerSecond;
    Benchmark {
        name: "rate",
        title: "messages of 8 bytes, one queue pair, MTU 1500".to_owned(),
        topology: Topology::Cable { mtu: 1500 },
        axis: None,
        candidates: vec![
            small("write", 128, 1).candidate("single", "roce write, posted one by one"),
            small("write", 128, LIST).candidate("lists", "roce write, lists of 64"),
            small("write", 1024, LIST).candidate("deep", "roce write, lists of 64, 1024 deep"),
            sockets::rate("tcp", "tcp", (&[], "")),
            sockets::rate("tcp-nodelay", "tcp", (&["--nodelay"], ", TCP_NODELAY")),
        ],
        comparisons: vec![
            Comparison::beside("single", rate, "tcp").above(1.0),
            Comparison::beside("single", rate, "lists").at_least(0.6),
            Comparison::beside("deep", rate, "tcp-nodelay").at_least(10.0),
        ],
        notes: vec![
            "all sockets with one send a message; without TCP_NODELAY the kernel puts many of \
             them into one packet"
                .to_owned(),
            "posted one by one: one call for each message, 128 deep, as perftest does by default"
                .to_owned(),
            RXE.to_owned(),
        ],
    }
}

fn rate_4k() -> Benchmark {
    let size = Size::Fixed(4096);
    let write = Bandwidth { size, ..Bandwidth::of("write") };
    Benchmark {
        name: "rate-4k",
        title: "WRITE, 4 KiB messages, one queue pair, MTU 4300".to_owned(),
        topology: Topology::Cable { mtu: 4300 },
        axis: None,
        candidates: vec![
            write.candidate("single", "roce write, posted one by one"),
            iperf3::with_writes_of(size, "cubic-4k", "cubic"),
        ],
        comparisons: vec![Comparison::beside("single", Figure::Gbits, "cubic-4k").at_least(1.0)],
        notes: Vec::new(),
    }
}

/// Messages posted with one call, where they are posted in lists.
const LIST: u32 = 64;

/// Measured once, elsewhere: it belongs beside these benchmarks, and not into their ratios.
const RXE: &str = "the kernel's rxe at native speed, on another topology (two User Mode Linux \
    instances over shared memory; measured once on such a machine): 64 KiB WRITEs 14.2 and 24.7 \
    Gbit/s at path MTU 1024 and 4096, 1 MiB 14 and 32 Gbit/s, 8-byte half round trip 1.5 µs \
    polled and 14 µs otherwise, 1.0 to 1.3 million 8-byte WRITEs a second";
