//! DCQCN beside the fixed point of its fluid model: two cells; `examples/fixed_point.rs` has all.

mod cell;

use cell::{DCQCN_QUEUES, DcqcnCell};

#[test]
fn dcqcn_reaches_the_fixed_point_of_its_fluid_model() {
    let of_ci = |cell: &&(u64, f64, usize, f64)| matches!((cell.0, cell.2), (40, 16) | (100, 8));
    for (gbit, pmax, flows, expected) in DCQCN_QUEUES.iter().filter(of_ci).copied() {
        let (rates, queue) = DcqcnCell::paper(flows, gbit, pmax).run();
        let queue = queue.mean / 1000.0;
        let tolerance = (expected * 0.1).max(2.0);
        assert!((queue - expected).abs() < tolerance, "{gbit}G N={flows}: {queue:.1} KB");
        // Each flow's own rate wanders over milliseconds, so the mean of 50 ms does too.
        let mean = rates.iter().sum::<f64>() / flows as f64;
        assert!((mean - 1.0).abs() < 0.01, "{gbit}G N={flows}: {mean:.3} of the link");
        assert!(rates.iter().all(|rate| (rate - 1.0).abs() < 0.2), "{gbit}G N={flows}: {rates:?}");
    }
}
