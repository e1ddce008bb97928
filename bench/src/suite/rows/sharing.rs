//! Many queue pairs on one link.

use crate::report::{Axis, Figure, Target};
use crate::suite::peers::roce::{Bandwidth, Size};
use crate::suite::{Pace, Row, Wire};

pub(super) fn rows(pace: &Pace) -> Vec<Row> {
    vec![thousand(), by_number(pace)]
}

/// Messages of 64 KiB, so that a second has enough of them for each of a thousand.
fn shared(queue_pairs: Size) -> Bandwidth {
    let depth = 16;
    Bandwidth { size: Size::Fixed(1 << 16), queue_pairs, depth, ..Bandwidth::of("write") }
}

fn thousand() -> Row {
    Row {
        name: "qps",
        title: "WRITE, 64 KiB messages, 1000 queue pairs, MTU 4300".to_owned(),
        wire: Wire::Cable { mtu: 4300 },
        axis: None,
        contestants: vec![
            shared(Size::Fixed(1000)).contestant("roce", "roce write, 1000 queue pairs"),
            shared(Size::Fixed(1)).contestant("one", "roce write, one queue pair"),
        ],
        targets: vec![
            Target::beside("roce", Figure::Gbits, "one").at_least(0.8),
            Target::alone("roce", Figure::MinShare).at_least(0.9),
            Target::alone("roce", Figure::MaxShare).at_most(1.1),
        ],
        notes: vec!["shares are in means of all queue pairs: 1 is fair".to_owned()],
    }
}

fn by_number(pace: &Pace) -> Row {
    let points: Vec<u64> = match pace.quick {
        true => vec![1, 64],
        false => vec![1, 4, 16, 64, 256, 1000],
    };
    Row {
        name: "qps-by-number",
        title: "WRITE bandwidth by number of queue pairs, 64 KiB messages, MTU 4300".to_owned(),
        wire: Wire::Cable { mtu: 4300 },
        axis: Some((Axis::QueuePairs, points)),
        contestants: vec![shared(Size::OfAxis).contestant("roce", "roce write")],
        targets: Vec::new(),
        notes: Vec::new(),
    }
}
