//! The outcomes as a Markdown table.

use super::{Outcome, Row, Scenario};

/// Returns a table of the simulated scenarios: the medians of their rounds beside their outcomes in
/// virtual time, one line each.
pub fn beside_simulation(rows: &[Row]) -> String {
    let mut text = "| senders, fabric | control | goodput, simulated | ratio | queue p50 KB, simulated | p99 KB, \
                    simulated | drops, simulated | pauses, simulated |\n|---|---|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for row in rows {
        let Some(simulated) = row.simulated else { continue };
        let (scenario, real) = (row.scenario, row.median());
        text += &format!(
            "| {}:1 {} | {} | {:.1}, {:.1} | {:.2} | {:.1}, {:.1} | {:.1}, {:.1} | {:.0}, {:.0} | {:.0}, {:.0} |\n",
            scenario.senders,
            scenario.fabric.name(),
            scenario.control.name,
            real.goodput,
            simulated.goodput,
            real.goodput / simulated.goodput.max(1e-9),
            real.queue_p50,
            simulated.queue_p50,
            real.queue_p99,
            simulated.queue_p99,
            real.drops,
            simulated.drops,
            real.pauses,
            simulated.pauses,
        );
    }
    text
}

/// Returns a table of the outcomes, one line each.
///
/// ```
/// use roce_bench::congestion::{Control, Fabric, Outcome, Scenario, table};
///
/// let scenario = Scenario::new(4, Control::named("ecn").unwrap(), Fabric::Lossy);
/// let text = table(&[(scenario, Outcome { goodput: 182.84, ..Outcome::default() })]);
/// assert!(text.contains("| 4:1 lossy | ecn | 182.8 |"));
/// ```
pub fn table(rows: &[(Scenario, Outcome)]) -> String {
    let mut text =
        "| senders, fabric | control | goodput Mbit/s | Jain | p50 ms | p99 ms | resent % | \
                    marks | CNPs | drops | pauses | queue p50 KB | p99 KB | victim Mbit/s |\n\
                    |---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
            .to_owned();
    for (scenario, it) in rows {
        let failed =
            if it.failed > 0.0 { format!(" ({} failed)", it.failed) } else { String::new() };
        text += &format!(
            "| {}:1 {} | {} | {:.1}{failed} | {:.3} | {:.1} | {:.1} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} | \
             {:.1} | {:.1} | {:.1} |\n",
            scenario.senders,
            scenario.fabric.name(),
            scenario.control.name,
            it.goodput,
            it.fairness,
            it.latency_p50,
            it.latency_p99,
            it.resent,
            it.marks,
            it.cnps,
            it.drops,
            it.pauses,
            it.queue_p50,
            it.queue_p99,
            it.victim,
        );
    }
    text
}
