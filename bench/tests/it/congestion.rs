//! Congestion controls beside each other, on real packets.

use std::process::Command;
use std::time::Duration;

use roce_bench::congestion::{Control, Fabric, Outcome, Packets, Scenario};
use roce_test_macros::tier1;
use serde_json::Value;

/// A scenario with two senders, shorter than those of the table.
fn short(fabric: Fabric) -> Scenario {
    let control = Control::named("ecn").expect("it is one of them");
    Scenario {
        warm_up: Duration::from_millis(300),
        time: Duration::from_millis(700),
        ..Scenario::new(2, control, fabric)
    }
}

fn run(scenario: &Scenario) -> Outcome {
    scenario.run().expect("private hosts, tc and nft are there")
}

#[tier1]
fn senders_share_the_link_of_a_receiver_through_each_fabric() {
    for fabric in Fabric::ALL {
        let outcome = run(&short(fabric));
        let name = fabric.name();
        // Other processes may have the processors for a while.
        assert!((60.0..=200.0).contains(&outcome.goodput), "{name}: {outcome:?}");
        assert!(outcome.victim > 10.0 && outcome.victim < 60.0, "{name}: {outcome:?}");
        assert!(outcome.latency_p50 <= outcome.latency_p99, "{name}: {outcome:?}");
        assert!(outcome.marks > 0.0 && outcome.cnps <= outcome.marks, "{name}: {outcome:?}");
        assert_eq!(outcome.failed, 0.0, "{name}: {outcome:?}");
        assert!(fabric != Fabric::Lossless || outcome.drops == 0.0, "{name}: {outcome:?}");
        assert!(fabric == Fabric::Lossless || outcome.pauses == 0.0, "{name}: {outcome:?}");
        assert_conserved(&outcome, name);
    }
}

#[track_caller]
fn assert_conserved(outcome: &Outcome, name: &str) {
    let Packets { sent, delivered, dropped, queued } = outcome.packets;
    assert_eq!(sent, delivered + dropped + queued, "{name}: {outcome:?}");
    // The payload of the senders alone, in packets of 1 KiB.
    assert!(delivered > outcome.goodput * 1e6 / 8.0 / 1024.0 * 0.7, "{name}: {outcome:?}");
}

#[tier1]
fn packets_without_ect_are_not_marked_and_cause_no_cnps() {
    for fabric in Fabric::ALL {
        let outcome = run(&Scenario { traffic_class: 104, ..short(fabric) });
        let name = fabric.name();
        assert_eq!((outcome.marks, outcome.cnps), (0.0, 0.0), "{name}: {outcome:?}");
        assert!(outcome.goodput > 60.0, "{name}: {outcome:?}");
        assert_conserved(&outcome, name);
    }
}

/// Runs the command and returns the rows that it prints.
fn command(arguments: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_congestion")).args(arguments).output();
    let output = output.expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("it prints JSON alone")
}

/// Checks a row's parameters, and what holds for each of its outcomes.
#[track_caller]
fn assert_row(row: &Value, fabric: &str, rounds: usize, is_simulated: bool) {
    assert_eq!((&row["senders"], &row["fabric"]), (&2.into(), &fabric.into()), "{row}");
    assert_eq!((&row["control"], &row["spec"]), (&"ecn".into(), &"ecn".into()), "{row}");
    assert_eq!(row["bits_per_second"], 300_000_000, "{row}");
    let measured = row["rounds"].as_array().expect("rounds are an array");
    assert_eq!(measured.len(), rounds, "{row}");
    assert_eq!(row["median"].is_object(), rounds > 0, "{row}");
    assert_eq!(row["simulated"].is_object(), is_simulated, "{row}");
    let simulated = Some(&row["simulated"]).filter(|_| is_simulated);
    for outcome in measured.iter().chain(simulated) {
        let figure = |name: &str| outcome[name].as_f64().expect("a figure is a number");
        assert!((60.0..=300.0).contains(&figure("goodput")), "{row}");
        assert!(figure("cnps") <= figure("marks"), "{row}");
        assert!(figure("queue_p50") <= figure("queue_p99"), "{row}");
        let packets = |name: &str| outcome["packets"][name].as_f64().expect("a number");
        let kept = packets("delivered") + packets("dropped") + packets("queued");
        assert_eq!(packets("sent"), kept, "{row}");
    }
}

const SHORT: [&str; 7] = ["--senders", "2", "--cc", "ecn", "--rate", "300", "--json"];

#[tier1]
fn the_json_of_the_command_has_each_round_and_the_simulated_outcome() {
    let short = ["--time", "0.5", "--rounds", "2", "--simulate", "--fabric", "PFC,tbf"];
    let rows = command(&[&SHORT[..], &short].concat());
    let [pfc, tbf] = &rows[..] else { panic!("two rows instead of {rows:?}") };
    assert_row(pfc, "PFC", 2, true);
    assert_row(tbf, "tbf", 2, false);
}

#[test]
fn the_json_of_a_simulation_alone_has_no_rounds() {
    let short = ["--time", "0.5", "--rounds", "0", "--simulate", "--fabric", "lossy"];
    let rows = command(&[&SHORT[..], &short].concat());
    assert_eq!(rows.len(), 1);
    assert_row(&rows[0], "lossy", 0, true);
}
