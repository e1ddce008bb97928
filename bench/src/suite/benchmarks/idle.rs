//! What a device costs that has nothing to do.

use crate::report::{Comparison, Figure};
use crate::suite::candidates::idle;
use crate::suite::{Benchmark, RunConfig, Topology};

pub(super) fn benchmarks(_pace: &RunConfig) -> Vec<Benchmark> {
    vec![memory(), processor(), wake_up(), descriptors(0), descriptors(ASLEEP)]
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

fn wake_up() -> Benchmark {
    Benchmark {
        name: "wake-up",
        title: "whole round trip, 8 bytes, to a peer asleep since 2 ms, MTU 1500".to_owned(),
        topology: Topology::Cable { mtu: 1500 },
        axis: None,
        candidates: vec![idle::wake_up("roce", "roce send", "channel", ASLEEP)],
        comparisons: vec![
            Comparison::alone("roce", Figure::MicrosMedian),
            Comparison::alone("roce", Figure::Micros99),
        ],
        notes: vec![
            "the peer sleeps in its completion channel; the client has slept, too, and spins for \
             the response"
                .to_owned(),
        ],
    }
}

/// Ways of waiting beside each other, each message so many microseconds behind the last answer.
fn descriptors(pause: u32) -> Benchmark {
    let (name, when) = match pause {
        0 => ("descriptors", "each right behind the last answer"),
        _ => ("descriptors-asleep", "after 2 ms of silence"),
    };
    let beside_channel = |way: &str| {
        [Figure::MicrosMedian, Figure::Micros99]
            .map(|figure| Comparison::beside(way, figure, "channel").at_most(2.0))
    };
    Benchmark {
        name,
        title: format!("whole round trip, 8 bytes, by how the peer waits, {when}, MTU 1500"),
        topology: Topology::Cable { mtu: 1500 },
        axis: None,
        candidates: vec![
            idle::wake_up("channel", "CompletionChannel::wait", "channel", pause),
            idle::wake_up("poll", "poll(2)", "poll", pause),
            idle::wake_up("poll-then-arm", "poll(2), queue polled before", "poll-then-arm", pause),
            idle::wake_up("epoll", "epoll", "epoll", pause),
            idle::wake_up("tokio", "tokio, next_async", "tokio", pause),
        ],
        comparisons: DESCRIPTORS.into_iter().flat_map(beside_channel).collect(),
        notes: vec![
            "poll(2) and epoll on the completion channel's descriptor, armed before the last look \
             at the queue; \"queue polled before\": armed behind it. The client spins for the response"
                .to_owned(),
        ],
    }
}

/// What is compared with `CompletionChannel::wait`.
const DESCRIPTORS: [&str; 4] = ["poll", "poll-then-arm", "epoll", "tokio"];
/// Microseconds after which everything at the peer sleeps.
const ASLEEP: u32 = 2000;
