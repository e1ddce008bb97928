//! DCQCN beside the fixed point of its fluid model: some cells; `examples/fixed_point.rs` has all.

mod cell;
mod fluid;
mod model;

use std::time::Duration;

use cell::{DCQCN_QUEUES, DcqcnCell, queue_tolerance};
use fluid::{Marked, solve};
use model::CnpTiming;

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

#[test]
fn the_fluid_model_has_the_fixed_points_of_the_table() {
    for (gbit, pmax, flows, expected) in DCQCN_QUEUES {
        let limit = Duration::from_millis(300);
        let cell = DcqcnCell { limit, ..DcqcnCell::paper(flows, gbit, pmax) };
        let (mean, deviation) = solve(&cell, 4.0, Marked::Sent);
        let place = format!("{gbit}G Pmax {pmax} N={flows}");
        assert!((mean / 1e3 - expected).abs() < 0.1, "{place}: {:.2} of {expected} KB", mean / 1e3);
        assert!(deviation < 100.0, "{place}: ± {deviation:.0} bytes");
    }
}

#[test]
fn with_85_us_of_feedback_the_fluid_model_is_stable_where_published() {
    let share = |cell| {
        let (mean, deviation) = solve(&cell, 85.0, Marked::Sent);
        deviation / mean
    };
    for cell in
        [2, 64].map(DcqcnCell::without_kmax).into_iter().chain([DcqcnCell::slow_without_kmax(10)])
    {
        let flows = cell.flows;
        let share = share(cell);
        assert!(share < 0.01, "N={flows}: the deviation is {share:.3} of the mean");
    }
    let share = share(DcqcnCell::without_kmax(10));
    assert!(share > 0.5, "N=10: the deviation is {share:.3} of the mean");
}

/// In the published model 64 flows are stable: it marks a share of the packets that enter the
/// queue. While the queue grows more packets enter than leave, so senders are told earlier than by
/// marks on what leaves.
#[test]
fn where_only_what_leaves_is_marked_64_flows_oscillate_in_the_model_as_in_the_fabric() {
    let limit = Duration::from_millis(200);
    let cell = || DcqcnCell { limit, ..DcqcnCell::without_kmax(64) };
    let near = solve(&cell(), 4.0, Marked::Leaving);
    assert!(near.1 < near.0 * 0.01, "stable with 4 us: {near:?}");
    let far = solve(&cell(), 85.0, Marked::Leaving);
    assert!(far.1 > far.0 * 0.5, "oscillates with 85 us: {far:?}");
    let (_, near) = cell().run();
    assert!(near.deviation < near.mean * 0.3, "{near:?}");
    let (_, far) = cell().delayed(21_100).run();
    assert!(far.deviation > far.mean * 0.5, "{far:?}");
}

/// More CNPs, a shorter queue: a mark that comes within the interval after a CNP is forgotten where the
/// next one is answered at once.
#[test]
fn receivers_that_remember_marks_have_the_shortest_queue_and_those_that_forget_them_the_longest() {
    let mean = |cnp_timing| DcqcnCell { cnp_timing, ..DcqcnCell::paper(4, 40, 0.01) }.run().1.mean;
    let [remembered, slots, at_once] =
        [CnpTiming::Remembered, CnpTiming::Slots, CnpTiming::AtOnce].map(mean);
    assert!(remembered < slots && slots < at_once, "{remembered} {slots} {at_once}");
}
