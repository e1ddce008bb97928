//! The report of a switch, as JSON and in one line.

use roce_switch::{PortCounters, QueueSummary, SwitchReport};
use serde_json::{Value, json};

/// Returns the report as JSON. `cpu_seconds` is the time that the process has used.
pub(crate) fn to_json(spec: &str, report: &SwitchReport, cpu_seconds: f64) -> Value {
    let ports = report.ports.iter().map(|port| {
        let classes = port.classes.iter().map(|class| {
            let mut value = counters_to_json(&class.counters);
            value["class"] = class.class.into();
            value["queue_bytes"] = queue_to_json(&class.queue);
            value
        });
        let mut value = counters_to_json(&port.counters);
        value["interface"] = port.interface.as_str().into();
        value["host_dropped_frames"] = port.host_dropped_frames.into();
        value["unusable_frames"] = port.unusable_frames.into();
        value["unsent_frames"] = port.unsent_frames.into();
        value["classes"] = classes.collect();
        value
    });
    json!({
        "spec": spec,
        "seconds": report.elapsed.as_secs_f64(),
        "ports": ports.collect::<Vec<_>>(),
        "longest_queue_bytes": queue_to_json(&report.longest_queue),
        "loop": {
            "rounds": report.timing.rounds,
            "late_p99_us": report.timing.late_p99.as_secs_f64() * 1e6,
            "late_max_us": report.timing.late_max.as_secs_f64() * 1e6,
            "given_up_seconds": report.timing.given_up.as_secs_f64(),
            "cpu_seconds": cpu_seconds,
        },
    })
}

/// Returns the sums over all ports in one line, and what was lost outside the switch if anything was.
pub(crate) fn line(report: &SwitchReport) -> String {
    let mut sum = PortCounters::default();
    for port in &report.ports {
        sum += port.counters;
    }
    let of_all = |count: fn(&roce_switch::PortReport) -> u64| -> u64 {
        report.ports.iter().map(count).sum()
    };
    let mut line = format!(
        "switch: {} frames, {} marked, {} dropped, {} XOFF; longest queue p50 {} p99 {} max {} bytes",
        sum.tx_frames,
        sum.marked_frames,
        sum.dropped_frames + sum.discarded_frames,
        sum.xoff_sent,
        report.longest_queue.p50,
        report.longest_queue.p99,
        report.longest_queue.max,
    );
    let lost = [
        (of_all(|port| port.host_dropped_frames), "lost before the switch"),
        (of_all(|port| port.unusable_frames), "too long or not segmented (see docs/switch.md)"),
        (of_all(|port| port.unsent_frames), "not taken by an interface"),
    ];
    for (count, what) in lost.into_iter().filter(|(count, _)| *count > 0) {
        line += &format!("; {count} {what}");
    }
    if report.timing.given_up.as_secs_f64() > MAX_GIVEN_UP_SHARE * report.elapsed.as_secs_f64() {
        let millis = report.timing.given_up.as_millis();
        line += &format!("; stood still for {millis} ms, since it got no processor");
    }
    line
}

/// Share of the time from which the line says that the switch stood still.
const MAX_GIVEN_UP_SHARE: f64 = 0.01;

fn counters_to_json(counters: &PortCounters) -> Value {
    json!({
        "rx_frames": counters.rx_frames,
        "rx_bytes": counters.rx_bytes,
        "tx_frames": counters.tx_frames,
        "tx_bytes": counters.tx_bytes,
        "dropped_frames": counters.dropped_frames,
        "dropped_bytes": counters.dropped_bytes,
        "discarded_frames": counters.discarded_frames,
        "discarded_bytes": counters.discarded_bytes,
        "marked_frames": counters.marked_frames,
        "xoff_sent": counters.xoff_sent,
        "xon_sent": counters.xon_sent,
        "paused": counters.paused,
        "watchdog_expiries": counters.watchdog_expiries,
    })
}

fn queue_to_json(queue: &QueueSummary) -> Value {
    json!({
        "samples": queue.samples,
        "mean": queue.mean,
        "p50": queue.p50,
        "p99": queue.p99,
        "max": queue.max,
    })
}
