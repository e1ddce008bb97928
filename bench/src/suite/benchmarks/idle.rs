//! What a device costs that has nothing to do.

use crate::report::{Comparison, Figure};
use crate::suite::candidates::{idle, sockets};
use crate::suite::{Benchmark, RunConfig, Topology};

pub(super) fn benchmarks(_pace: &RunConfig) -> Vec<Benchmark> {
    vec![
        memory(),
        processor(),
        waiting("wake-up-awake", 0, &[CHANNEL]),
        waiting("wake-up", ASLEEP, &[CHANNEL, TOKIO]),
    ]
}

fn memory() -> Benchmark {
    Benchmark {
        name: "memory",
        title: "memory of an idle connected queue pair, without its queues".to_owned(),
        topology: Topology::Cable { mtu: 1500 },
        axis: None,
        candidates: vec![idle::memory("roce")],
        comparisons: vec![Comparison::alone("roce", Figure::Bytes).at_most(4096.0)],
        notes: vec![
            "the growth of the resident set from 1000 to 4000 queue pairs, their queues one deep \
             and counted in"
                .to_owned(),
        ],
    }
}

fn processor() -> Benchmark {
    Benchmark {
        name: "idle",
        title: "processor time of a device with a connected queue pair and nothing to do"
            .to_owned(),
        topology: Topology::Cable { mtu: 1500 },
        axis: None,
        candidates: vec![idle::processor("roce")],
        comparisons: vec![Comparison::alone("roce", Figure::Percent).below(0.1)],
        notes: vec![
            "less than 0.1 % counts as none; counted in nanoseconds over two seconds".to_owned(),
        ],
    }
}

/// Ways of waiting beside a blocking read of a TCP socket, each message so many microseconds behind the last
/// answer.
fn waiting(name: &'static str, pause: u32, ways: &[[&'static str; 3]]) -> Benchmark {
    let when = match pause {
        0 => "each right behind the last answer",
        _ => "after 2 ms of silence",
    };
    let way = |[name, title, way]: &[&'static str; 3]| idle::wake_up(name, title, way, pause);
    let beside_tcp = |[name, ..]: &[&'static str; 3]| {
        Comparison::beside(name, Figure::MicrosMedian, "tcp").at_most(1.0)
    };
    let mut candidates = vec![sockets::wake_up("tcp", pause)];
    candidates.extend(ways.iter().map(way));
    Benchmark {
        name,
        title: format!("whole round trip, 8 bytes, by how the peer waits, {when}, MTU 1500"),
        topology: Topology::Cable { mtu: 1500 },
        axis: None,
        candidates,
        comparisons: ways.iter().map(beside_tcp).collect(),
        notes: vec!["the peer waits as the row says; the client spins for the response".to_owned()],
    }
}

const CHANNEL: [&str; 3] = ["channel", "CompletionChannel::wait", "channel"];
const TOKIO: [&str; 3] = ["tokio", "tokio, next_async", "tokio"];
/// Microseconds after which everything at the peer sleeps.
const ASLEEP: u32 = 2000;
