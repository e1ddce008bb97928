//! What a device costs that has nothing to do.

use crate::report::{Figure, Target};
use crate::suite::peers::idle;
use crate::suite::{Pace, Row, Wire};

pub(super) fn rows(_pace: &Pace) -> Vec<Row> {
    vec![memory(), processor(), wake_up()]
}

fn memory() -> Row {
    Row {
        name: "memory",
        title: "memory of an idle connected queue pair, without its queues".to_owned(),
        wire: Wire::Cable { mtu: 1500 },
        axis: None,
        contestants: vec![idle::memory("roce")],
        targets: vec![Target::alone("roce", Figure::Bytes).at_most(4096.0)],
        notes: vec![
            "the growth of the resident set from 1000 to 4000 queue pairs, their queues one deep \
             and counted in"
                .to_owned(),
        ],
    }
}

fn processor() -> Row {
    Row {
        name: "idle",
        title: "processor time of a device with a connected queue pair and nothing to do"
            .to_owned(),
        wire: Wire::Cable { mtu: 1500 },
        axis: None,
        contestants: vec![idle::processor("roce")],
        targets: vec![Target::alone("roce", Figure::Percent).below(0.1)],
        notes: vec![
            "less than 0.1 % counts as none; counted in nanoseconds over two seconds".to_owned(),
        ],
    }
}

fn wake_up() -> Row {
    Row {
        name: "wake-up",
        title: "whole round trip, 8 bytes, to a peer asleep since 2 ms, MTU 1500".to_owned(),
        wire: Wire::Cable { mtu: 1500 },
        axis: None,
        contestants: vec![idle::wake_up("roce")],
        targets: vec![
            Target::alone("roce", Figure::MicrosMedian),
            Target::alone("roce", Figure::Micros99),
        ],
        notes: vec![
            "the peer sleeps in its completion channel; who asks has slept, too, and spins for \
             the answer"
                .to_owned(),
        ],
    }
}
