//! Goodput over a switch that loses.

use crate::report::{Figure, Target};
use crate::suite::peers::iperf3;
use crate::suite::peers::roce::Bandwidth;
use crate::suite::{LossOf, Pace, Row, Wire};

pub(super) fn rows(_pace: &Pace) -> Vec<Row> {
    vec![
        row("loss-frames-0.1", 1000, LossOf::Frames),
        row("loss-frames-1", 100, LossOf::Frames),
        row("loss-packets-0.1", 1000, LossOf::Packets),
        row("loss-packets-1", 100, LossOf::Packets),
    ]
}

fn row(name: &'static str, one_in: u32, of: LossOf) -> Row {
    let share = 100.0 / f64::from(one_in);
    let what = match of {
        LossOf::Frames => "frames lost as carried",
        LossOf::Packets => "single packets lost",
    };
    Row {
        name,
        title: format!("WRITE, 1 MiB messages, {share} % of {what}, MTU 1500"),
        wire: Wire::Lossy { mtu: 1500, one_in, of },
        axis: None,
        contestants: vec![
            Bandwidth::of("write").contestant("roce", "roce write"),
            iperf3::contestant("cubic", "cubic"),
            iperf3::contestant("bbr", "bbr"),
        ],
        targets: vec![
            Target::beside("roce", Figure::Gbits, "cubic").at_least(1.0),
            Target::beside("roce", Figure::Gbits, "bbr"),
        ],
        notes: Vec::new(),
    }
}
