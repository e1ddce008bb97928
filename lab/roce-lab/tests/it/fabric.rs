//! Engines over a fabric: what losses, pauses and marks do to their flows.

use std::time::Duration;

use roce_fabric::EcnMarking;
use roce_lab::{
    FabricControl, FabricReport, FabricScenario, FabricShape, FabricWorkload, Recovery,
};

const GBIT: u64 = 1_000_000_000;

/// Hosts around a switch at 10 Gbit/s with packets of 1024 bytes.
fn star(hosts: usize, bytes: u64) -> FabricScenario {
    FabricScenario {
        hosts,
        bytes,
        bits_per_sec: 10 * GBIT,
        payload: 1024,
        limit: Duration::from_millis(200),
        ..FabricScenario::default()
    }
}

fn run(scenario: FabricScenario) -> FabricReport {
    scenario.simulate().expect("a sound scenario")
}

fn finished(report: &FabricReport) -> usize {
    report.results.flows.iter().filter(|flow| flow.finished.is_some()).count()
}

#[test]
fn an_incast_overflows_a_lossy_switch_and_pfc_saves_every_packet() {
    let scenario = FabricScenario { buffer: 400_000, ..star(9, 500_000) };
    let lossy = run(scenario);
    assert!(lossy.results.switches.dropped_frames > 100, "{:?}", lossy.results.switches);
    assert_eq!(finished(&lossy), 8);
    let lossless = run(FabricScenario { pfc: true, ..scenario });
    assert_eq!((lossless.results.switches.dropped_frames, lossless.results.resent), (0, 0));
    assert_eq!(finished(&lossless), 8);
    assert!(lossless.results.switches.xoff_sent > 0);
    assert!(lossless.results.time < lossy.results.time);
}

#[test]
fn every_flow_finishes_in_spite_of_losses_whatever_receivers_keep() {
    for recovery in [Recovery::GoBackN, Recovery::Keep] {
        for spray in [false, true] {
            let report = run(FabricScenario {
                shape: FabricShape::LeafSpine,
                workload: FabricWorkload::AllToAll,
                loss: 0.01,
                window: 100_000,
                recovery,
                spray,
                ..star(8, 100_000)
            });
            assert_eq!(finished(&report), 56, "{recovery:?}, {spray}");
            assert!(report.results.resent > 0);
            assert!(report.results.flows.iter().all(|flow| flow.delivered == 100_000));
        }
    }
}

#[test]
fn kept_packets_cost_one_repetition_per_loss_and_go_back_n_a_round_trip() {
    let resent = |recovery| {
        let delay = Duration::from_micros(10);
        let report = run(FabricScenario { delay, loss: 0.002, recovery, ..star(2, 10_000_000) });
        assert_eq!(finished(&report), 1, "{recovery:?}");
        (report.results.resent, report.results.fabric.lost_frames)
    };
    let (kept, lost) = resent(Recovery::Keep);
    assert!(lost > 10 && kept <= lost + lost / 4, "{kept} sent again for {lost} lost");
    let (back, lost) = resent(Recovery::GoBackN);
    assert!(back > 5 * lost, "{back} sent again for {lost} lost");
}

#[test]
fn a_long_queue_and_windows_of_few_packets_send_nothing_again_without_a_loss() {
    // The queue of 16 MB takes 13 ms.
    let report = run(FabricScenario { alpha: 8.0, ..star(9, 2_000_000) });
    assert_eq!((finished(&report), report.results.switches.dropped_frames), (8, 0));
    assert!(report.results.queue.max > 8_000_000, "{:?}", report.results.queue);
    assert_eq!(report.results.resent, 0);
    for packets in 1..=6 {
        let delay = Duration::from_micros(10);
        let report = run(FabricScenario { window: packets * 1024, delay, ..star(2, 500_000) });
        let results = &report.results;
        assert_eq!((finished(&report), results.resent, results.timeouts), (1, 0, 0), "{packets}");
    }
}

#[test]
fn marks_shorten_the_queue_and_without_marks_there_are_no_cnps() {
    let marking = Some(EcnMarking { kmin: 5_000, kmax: 105_000, pmax: 1.0 });
    let scenario = FabricScenario { alpha: 8.0, marking, ..star(5, 4_000_000) };
    let unmarked = run(scenario);
    for control in [FabricControl::Ecn, FabricControl::DcqcnPaper] {
        let marked = run(FabricScenario { control, ..scenario });
        assert_eq!(finished(&marked), 4, "{control:?}");
        assert!(marked.results.queue.p50 < unmarked.results.queue.p50 / 4, "{control:?}");
        let marks = marked.results.switches.marked_frames;
        assert!((1..=marks).contains(&marked.results.cnps), "{control:?}");
    }
    let marking = Some(EcnMarking { kmin: 100_000_000, kmax: 200_000_000, pmax: 1.0 });
    let quiet = run(FabricScenario { marking, ..scenario });
    assert_eq!((quiet.results.switches.marked_frames, quiet.results.cnps), (0, 0));
}

/// The fluid model has a queue of 93.8 KB in this cell (`docs/fabric.md`). There a packet is marked
/// when it leaves the queue, and senders have neither headers nor windows.
#[test]
fn dcqcn_of_the_engine_shares_the_link_and_has_half_to_one_and_a_half_of_the_queue_of_theory() {
    let report = run(FabricScenario {
        control: FabricControl::DcqcnPaper,
        bits_per_sec: 40 * GBIT,
        marking: Some(EcnMarking::PAPER),
        alpha: 8.0,
        limit: Duration::from_millis(100),
        ..star(9, 1_000_000_000)
    });
    let late = &report.samples[report.samples.len() / 2..];
    let queue = late.iter().map(|it| it.longest_queue as f64).sum::<f64>() / late.len() as f64;
    assert!((0.5..1.5).contains(&(queue / 93_800.0)), "{queue:.0} bytes");
    for flow in 0..8 {
        let rate = late.iter().map(|it| it.rates[flow]).sum::<f64>() / late.len() as f64;
        let share = rate * 8.0 / (40 * GBIT) as f64;
        assert!((0.8..1.2).contains(&share), "flow {flow} has {share:.3} of the fair rate");
    }
}

#[test]
fn a_ring_allreduce_takes_little_more_than_its_bytes_do_on_the_links() {
    let workload = FabricWorkload::RingAllreduce;
    let report = run(FabricScenario { workload, bits_per_sec: 100 * GBIT, ..star(4, 4_000_000) });
    assert_eq!(finished(&report), 4);
    let micros = report.results.time.as_nanos() as f64 / 1000.0;
    let least = 6.0 * 1_000_000.0 * 8.0 / 100_000.0;
    assert!((least..least * 1.35).contains(&micros), "{micros:.1} us of at least {least}");
}

#[test]
fn the_same_scenario_gives_the_same_results() {
    let report = || {
        let workload = FabricWorkload::Sizes(roce_lab::FlowSizes::WebSearch, 0.6);
        let (shape, limit) = (FabricShape::LeafSpine, Duration::from_millis(5));
        let recovery = Recovery::Keep;
        run(FabricScenario {
            shape,
            workload,
            limit,
            recovery,
            loss: 0.001,
            spray: true,
            ..star(8, 1)
        })
    };
    let first = report();
    assert_eq!(first.results, report().results);
    assert!(finished(&first) > 0);
}

#[test]
fn too_many_flows_and_lengths_of_no_path_mtu_are_refused() {
    let all = FabricScenario { workload: FabricWorkload::AllToAll, ..star(1024, 1) };
    assert!(all.simulate().unwrap_err().to_string().contains("32768 flows"));
    let odd = FabricScenario { payload: 1000, ..star(2, 1) };
    assert!(odd.simulate().unwrap_err().to_string().contains("1000 bytes"));
}
