//! DCQCN beside the fixed point of its fluid model: some cells; `examples/fixed_point.rs` has all.

mod cell;

use std::time::Duration;

use cell::{DCQCN_QUEUES, DcqcnCell, queue_tolerance};

#[test]
fn dcqcn_reaches_the_fixed_point_of_its_fluid_model() {
    for (gbit, pmax, flows, expected) in
        DCQCN_QUEUES.into_iter().filter(|it| [4, 8].contains(&it.2))
    {
        let limit = Duration::from_millis(300);
        let (rates, queue) = DcqcnCell { limit, ..DcqcnCell::paper(flows, gbit, pmax) }.run();
        let queue = queue.mean / 1000.0;
        let apart = (queue - expected).abs();
        let place = format!("{gbit}G Pmax {pmax} N={flows}");
        assert!(apart <= queue_tolerance(expected), "{place}: {queue:.1} KB of {expected}");
        // Each flow's own rate wanders over milliseconds, so its mean does too.
        let mean = rates.iter().sum::<f64>() / flows as f64;
        assert!((mean - 1.0).abs() < 0.01, "{place}: {mean:.3} of the link");
        assert!(rates.iter().all(|rate| (rate - 1.0).abs() < 0.1), "{place}: {rates:?}");
    }
}
