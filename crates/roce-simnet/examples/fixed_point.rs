//! Prints DCQCN's queue and rates in all cells of the table of its fixed points, and where it
//! oscillates. A minute:
//!
//! ```text
//! cargo run --release -p roce-simnet --example fixed_point
//! ```

#[path = "../tests/fixed_point/cell.rs"]
mod cell;

use std::time::Duration;

use cell::{DCQCN_QUEUES, DcqcnCell, queue_tolerance};
use roce_simnet::fabric::EcnMarking;
use roce_simnet::traffic::CnpTiming;
use roce_transport::congestion::DcqcnParameters;

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
    let slow = DcqcnParameters { rp_ai_rate: 10, rp_hai_rate: 10, ..DcqcnParameters::PAPER };
    for (name, parameters, kmax) in
        [("paper", DcqcnParameters::PAPER, 200_000), ("10 Mbit/s, 1000 KB", slow, 1_000_000)]
    {
        // As in the analysis, the probability rises beyond 1 % by the same slope.
        let marking = EcnMarking { kmax: 20 * kmax - 19 * 5_000, pmax: 0.2, kmin: 5_000 };
        for flows in [2, 10, 64] {
            for (feedback, delay) in [(4, 1000), (85, 21_100)] {
                let cell = DcqcnCell {
                    parameters,
                    marking,
                    delay: Duration::from_nanos(delay),
                    limit: Duration::from_millis(400),
                    ..DcqcnCell::paper(flows, 40, 0.01)
                };
                let (_, queue) = cell.run();
                let (mean, deviation) = (queue.mean / 1e3, queue.deviation / 1e3);
                println!(
                    "{name:>18}: N={flows:<2}, {feedback:>2} us: queue {mean:>6.1} KB, \
                     deviation {deviation:>6.1} KB"
                );
            }
        }
    }
}
