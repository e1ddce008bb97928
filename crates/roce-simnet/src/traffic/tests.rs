//! Properties of modelled flows, and published results.

use std::time::Duration;

use roce_transport::congestion::EcnParameters;

use super::*;
use roce_fabric::{CLASSES, EcnMarking, FabricConfig, PfcConfig, Routing, SwitchConfig, Topology};

const GBIT: u64 = 1_000_000_000;
const DELAY: Duration = Duration::from_micros(1);
const LIMIT: Duration = Duration::from_millis(200);

fn finished(results: &Results) -> usize {
    results.flows.iter().filter(|flow| flow.finished.is_some()).count()
}

/// One link at 10 Gbit/s, patched TIMELY from these shares of the link.
fn timely(shares: &[f64], limit: Duration) -> (Vec<f64>, QueueStats) {
    let rate = 10 * GBIT;
    let params = TimelyParams::default();
    let config = SimulationConfig {
        congestion: CongestionModel::Timely(params),
        fabric: FabricConfig { wire_overhead: 0, ..FabricConfig::default() },
        headers: 0,
        ack_every: params.segment / 1000,
        base_rtt: Duration::from_nanos(4 * 1000 + 2 * 800 + 2 * 63),
        warm_up: limit / 2,
        ..SimulationConfig::default()
    };
    let flows = incast(shares.len(), u64::MAX)
        .into_iter()
        .zip(shares)
        .map(|(flow, share)| FlowSpec { first_rate: Some(*share), ..flow })
        .collect();
    let topology = Topology::star(shares.len() + 1, rate, DELAY);
    let mut simulation = Simulation::new(topology, config, flows);
    let results = simulation.run(limit);
    (simulation.trace().mean_rates(limit / 2), results.queue)
}

#[test]
fn patched_timely_reaches_its_fixed_point() {
    for (flows, queue_kb) in [(2usize, 78.1), (8, 125.0), (24, 250.0), (40, 375.0)] {
        let first = vec![1.0 / flows as f64; flows];
        let (rates, queue) = timely(&first, Duration::from_millis(100));
        let mean = queue.mean / 1000.0;
        println!("N = {flows}: queue {mean:.1} KB for {queue_kb}");
        assert!((mean / queue_kb - 1.0).abs() < 0.1, "N = {flows}: {mean:.1} KB");
        for rate in rates {
            let share = rate * flows as f64 / (10.0 * GBIT as f64);
            assert!((share - 1.0).abs() < 0.1, "N = {flows}: {share:.3} of the fair rate");
        }
    }
}

#[test]
fn patched_timely_makes_unequal_flows_equal() {
    let (rates, _) = timely(&[0.7, 0.3], Duration::from_millis(400));
    assert!((rates[0] / rates[1] - 1.0).abs() < 0.1, "{rates:?}");
}

fn lossy(loss: f64, recovery: Recovery) -> SimulationConfig {
    SimulationConfig {
        fabric: FabricConfig { loss, ..FabricConfig::default() },
        recovery,
        ..SimulationConfig::default()
    }
}

#[test]
fn every_flow_finishes_in_spite_of_losses_by_each_recovery_that_keeps_progress() {
    for recovery in [Recovery::GoBackN, Recovery::Keep] {
        for routing in [Routing::Ecmp, Routing::Spray] {
            let mut config = lossy(0.01, recovery);
            config.fabric.routing = routing;
            config.window = 100_000;
            let topology = Topology::leaf_spine(2, 2, 3, 10 * GBIT, DELAY);
            let mut simulation = Simulation::new(topology, config, all_to_all(6, 300_000));
            let results = simulation.run(LIMIT);
            assert_eq!(finished(&results), 30, "{recovery:?}, {routing:?}");
            assert!(results.flows.iter().any(|flow| flow.resent > 0));
            assert!(results.flows.iter().all(|flow| flow.delivered == 300_000));
        }
    }
}

#[test]
fn kept_packets_cost_one_repetition_per_loss_and_go_back_n_a_round_trip() {
    let resent = |recovery| {
        let topology = Topology::star(2, 10 * GBIT, Duration::from_micros(10));
        let flows = vec![FlowSpec::new(0, 1, 10_000_000)];
        let mut simulation = Simulation::new(topology, lossy(0.002, recovery), flows);
        let results = simulation.run(LIMIT);
        assert_eq!(finished(&results), 1, "{recovery:?}");
        (results.flows[0].resent, results.fabric.lost_frames)
    };
    let (kept, lost) = resent(Recovery::Keep);
    assert!(kept <= lost + 5, "{kept} sent again for {lost} lost");
    let (back, lost) = resent(Recovery::GoBackN);
    assert!(back > 10 * lost, "{back} sent again for {lost} lost");
}

#[test]
fn windows_that_end_between_two_acks_send_nothing_again_without_a_loss() {
    for packets in 1..=6 {
        let config = SimulationConfig { window: packets * 1000, ..SimulationConfig::default() };
        let topology = Topology::star(2, 10 * GBIT, Duration::from_micros(10));
        let flows = vec![FlowSpec::new(0, 1, 500_000)];
        let results = Simulation::new(topology, config, flows).run(LIMIT);
        let flow = &results.flows[0];
        assert_eq!((flow.resent, flow.timeouts), (0, 0), "a window of {packets} packets");
        // A window per round trip: 40 us of links, and what its packets take on them.
        let round_trips = 500 / packets + 1;
        let most = Duration::from_micros(45) * round_trips as u32;
        let time = flow.completion_time().expect("the flow finishes");
        assert!(time < most, "a window of {packets} packets: {time:?} of {most:?}");
    }
}

#[test]
fn a_queue_longer_than_the_least_timeout_sends_nothing_again() {
    // The queue of 16 MB takes 13 ms.
    let mut config = SimulationConfig::default();
    config.fabric.switch.alpha = 8.0;
    let topology = Topology::star(9, 10 * GBIT, DELAY);
    let results = Simulation::new(topology, config, incast(8, 2_000_000)).run(LIMIT);
    assert_eq!((finished(&results), results.switches.dropped_frames), (8, 0));
    assert!(results.queue.max > 10_000_000, "{:?}", results.queue);
    assert!(results.flows.iter().all(|flow| flow.resent == 0), "{:?}", results.flows);
}

#[test]
fn a_window_that_shrinks_waits_for_no_timeout() {
    let marking = EcnMarking { kmin: 5_000, kmax: 20_000, pmax: 1.0 };
    let parameters = EcnParameters { packet: 1000, min_window: 100, ..EcnParameters::default() };
    let mut config = SimulationConfig {
        congestion: CongestionModel::Ecn(parameters),
        cnp_interval: Duration::from_micros(4),
        ..SimulationConfig::default()
    };
    config.fabric.switch.marking = [Some(marking); CLASSES];
    config.fabric.switch.alpha = 8.0;
    let topology = Topology::star(5, 10 * GBIT, DELAY);
    let results = Simulation::new(topology, config, incast(4, 3_000_000)).run(LIMIT);
    assert_eq!((finished(&results), results.switches.dropped_frames), (4, 0));
    assert!(results.switches.marked_frames > 1000);
    let waited = results.flows.iter().filter(|flow| flow.timeouts > 0 || flow.resent > 0);
    assert_eq!(waited.count(), 0);
}

#[test]
fn one_loss_in_256_packets_leaves_go_back_0_without_goodput_at_line_rate() {
    let run = |recovery| {
        // A packet crosses two links.
        let config = SimulationConfig {
            fabric: FabricConfig { loss: 1.0 / 512.0, ..FabricConfig::default() },
            recovery,
            ..SimulationConfig::default()
        };
        let topology = Topology::star(2, 40 * GBIT, DELAY);
        let flows = vec![FlowSpec::new(0, 1, u64::MAX)];
        let results = Simulation::new(topology, config, flows).run(Duration::from_millis(20));
        let flow = &results.flows[0];
        let messages = flow.delivered / 4_000_000 * 4_000_000;
        let used = flow.sent as f64 * 1082.0 * 8.0 / results.time.as_nanos() as f64;
        (messages as f64 * 8.0 / results.time.as_nanos() as f64, used)
    };
    let (goodput, used) = run(Recovery::GoBack0);
    println!("go-back-0 {goodput:.2} of {used:.2} Gbit/s sent");
    assert_eq!(goodput, 0.0);
    assert!(used > 38.0, "go-back-0 sent {used:.1} Gbit/s");
    let (goodput, _) = run(Recovery::GoBackN);
    println!("go-back-N {goodput:.2} Gbit/s");
    assert!(goodput > 25.0, "go-back-N has {goodput:.1} Gbit/s");
    let (goodput, _) = run(Recovery::Keep);
    println!("kept {goodput:.2} Gbit/s");
    assert!(goodput > 35.0, "kept packets give {goodput:.1} Gbit/s");
}

#[test]
fn cnps_come_at_most_once_per_interval_and_flow_and_never_without_marks() {
    for cnp_timing in [CnpTiming::AtOnce, CnpTiming::Remembered, CnpTiming::Slots] {
        check_cnps(cnp_timing);
    }
}

fn check_cnps(cnp_timing: CnpTiming) {
    let run = |kmin| {
        let marking = EcnMarking { kmin, kmax: kmin + 100_000, pmax: 1.0 };
        let config = SimulationConfig {
            fabric: FabricConfig {
                switch: SwitchConfig {
                    marking: [Some(marking); CLASSES],
                    ..SwitchConfig::default()
                },
                ..FabricConfig::default()
            },
            cnp_timing,
            ..SimulationConfig::default()
        };
        let topology = Topology::star(5, 10 * GBIT, DELAY);
        Simulation::new(topology, config, incast(4, 2_000_000)).run(LIMIT)
    };
    let marked = run(5_000);
    for flow in &marked.flows {
        let span = flow.completion_time().expect("the flow finished");
        // One at the start, and one for marks of the last interval.
        let most = span.as_micros() as u64 / 50 + 2;
        assert!((2..=most).contains(&flow.cnps), "{} CNPs in {span:?}", flow.cnps);
    }
    let cnps: u64 = marked.flows.iter().map(|flow| flow.cnps).sum();
    assert!(cnps <= marked.switches.marked_frames);
    let unmarked = run(100_000_000);
    assert_eq!(unmarked.switches.marked_frames, 0);
    assert!(unmarked.flows.iter().all(|flow| flow.cnps == 0));
}

#[test]
fn an_incast_overflows_a_lossy_switch_and_pfc_saves_every_packet() {
    let run = |pfc| {
        let mut config = SimulationConfig::default();
        config.fabric.switch.buffer_bytes = 400_000;
        config.fabric.switch.pfc = pfc;
        let topology = Topology::star(9, 10 * GBIT, DELAY);
        Simulation::new(topology, config, incast(8, 500_000)).run(LIMIT)
    };
    let lossy = run(None);
    assert!(lossy.switches.dropped_frames > 100);
    assert_eq!(finished(&lossy), 8);
    let lossless = run(Some(PfcConfig::for_link(3, 10 * GBIT, DELAY, 1058)));
    assert_eq!(lossless.switches.dropped_frames, 0);
    assert!(lossless.flows.iter().all(|flow| flow.resent == 0 && flow.delivered == 500_000));
    assert!(lossless.switches.xoff_sent > 0);
    assert!(lossless.time < lossy.time);
}

#[test]
fn a_ring_allreduce_forwards_only_what_arrived() {
    let topology = Topology::star(4, 100 * GBIT, DELAY);
    let flows = ring_allreduce(4, 1_000_000);
    let results = Simulation::new(topology, SimulationConfig::default(), flows).run(LIMIT);
    assert_eq!(finished(&results), 4);
    // Six steps of 250 KB: at least their time on the link, at most that and a few latencies.
    let micros = (results.time - roce_fabric::Time::START).as_nanos() as f64 / 1000.0;
    let least = 6.0 * 250_000.0 * 8.0 / 100_000.0;
    assert!((least..least * 1.35).contains(&micros), "{micros:.1} us of at least {least}");
}

#[test]
fn the_same_flows_give_the_same_results() {
    let run = || {
        let mut config = lossy(0.001, Recovery::Keep);
        config.fabric.routing = Routing::Spray;
        config.reordering = 20;
        let topology = Topology::leaf_spine(2, 2, 4, 10 * GBIT, DELAY);
        let flows = poisson(8, FlowSizes::WebSearch, 0.6, 10 * GBIT, LIMIT / 40, 3);
        Simulation::new(topology, config, flows).run(LIMIT)
    };
    let results = run();
    assert_eq!(results, run());
    assert_eq!(finished(&results), results.flows.len());
}
