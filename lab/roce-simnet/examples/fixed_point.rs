//! Prints DCQCN's queue and rates in all cells of the table of its fixed points, and where it
//! oscillates. A minute:
//!
//! ```text
//! cargo run --release -p roce-simnet --example fixed_point
//! ```

#[path = "../tests/fixed_point/cell.rs"]
mod cell;
#[path = "../tests/fixed_point/fluid.rs"]
mod fluid;
#[path = "../tests/fixed_point/model.rs"]
mod model;

use std::time::Duration;

use cell::{DCQCN_QUEUES, DcqcnCell, queue_tolerance};
use fluid::{Marked, solve};
use model::CnpTiming;

fn main() {
    for cnp_timing in [CnpTiming::Slots, CnpTiming::Remembered, CnpTiming::AtOnce] {
        println!("CNPs: {cnp_timing:?}");
        let mut agreeing = 0;
        for (gbit, pmax, flows, expected) in DCQCN_QUEUES {
            let limit = Duration::from_millis(400);
            let cell = DcqcnCell { cnp_timing, limit, ..DcqcnCell::paper(flows, gbit, pmax) };
            let (rates, queue) = cell.run();
            let low = rates.iter().copied().fold(f64::MAX, f64::min);
            let high = rates.iter().copied().fold(0.0, f64::max);
            let (mean, deviation) = (queue.mean / 1e3, queue.deviation / 1e3);
            println!(
                "{gbit:>3}G Pmax {pmax:<4} N={flows:<2} queue {mean:>5.1} of {expected:>5.1} KB \
                 (deviation {deviation:>4.1}), rates {low:.3} to {high:.3} of C/N"
            );
            assert!((0.9..1.01).contains(&(rates.iter().sum::<f64>() / flows as f64)));
            agreeing += usize::from((mean - expected).abs() <= queue_tolerance(expected));
        }
        println!("{agreeing} of {} queues agree", DCQCN_QUEUES.len());
    }
    let columns = [(4.0, 1000), (85.0, 21_100)];
    let paper = [2, 10, 64].map(|flows| ("paper", flows));
    for (name, flows) in paper.into_iter().chain([("10 Mbit/s, 1000 KB", 10)]) {
        for (feedback, delay) in columns {
            let cell = match name {
                "paper" => DcqcnCell::without_kmax(flows),
                _ => DcqcnCell::slow_without_kmax(flows),
            };
            let cell = cell.delayed(delay);
            let (_, queue) = cell.run();
            let text = |(mean, deviation): (f64, f64)| {
                format!("{:>6.1} ± {:>6.1}", mean / 1e3, deviation / 1e3)
            };
            println!(
                "{name:>18}: N={flows:<2}, {feedback:>2} us: queue {} KB, fluid model {}, with marks on \
                 what leaves {}",
                text((queue.mean, queue.deviation)),
                text(solve(&cell, feedback, Marked::Sent)),
                text(solve(&cell, feedback, Marked::Leaving)),
            );
        }
    }
}
