//! What a scenario has shown.

use std::time::Duration;

use serde::Serialize;

/// Figures of a scenario. Counts are those of the whole run, rates and latencies those of the
/// measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Payload of all senders to the receiver that they share, in Mbit/s.
    pub goodput: f64,
    /// Jain's index of their rates.
    pub fairness: f64,
    /// From post to completion of a message in ms, median.
    pub latency_p50: f64,
    /// The same, 99th percentile.
    pub latency_p99: f64,
    /// Packets sent again, in percent of all packets of the senders.
    pub resent: f64,
    /// Marked packets that the receiver has seen.
    pub marks: f64,
    /// Congestion notification packets that it has sent.
    pub cnps: f64,
    /// Packets dropped on the way.
    pub drops: f64,
    /// Pause frames of the switch.
    pub pauses: f64,
    /// Queue towards the receiver in KB, median.
    pub queue_p50: f64,
    /// The same, 99th percentile.
    pub queue_p99: f64,
    /// Payload of the victim in Mbit/s.
    pub victim: f64,
    /// Messages that failed.
    pub failed: f64,
    /// What became of the packets.
    pub packets: Packets,
}

/// What became of the packets of all hosts, requests, responses and CNPs, from the start until nothing
/// was under way any more after the run. In each round those sent are those delivered, dropped and
/// queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Packets {
    /// Sent by hosts, as their counters say.
    pub sent: f64,
    /// Received by hosts, as their counters say.
    pub delivered: f64,
    /// Dropped between them, as the counters of the switch and the sockets say.
    pub dropped: f64,
    /// In the queues of the switch at the end.
    pub queued: f64,
}

impl Outcome {
    /// Returns the median of each figure. Without outcomes all are 0.
    pub fn median(outcomes: &[Self]) -> Self {
        let median = |figure: fn(&Self) -> f64| {
            let mut values: Vec<f64> = outcomes.iter().map(figure).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        Self {
            goodput: median(|it| it.goodput),
            fairness: median(|it| it.fairness),
            latency_p50: median(|it| it.latency_p50),
            latency_p99: median(|it| it.latency_p99),
            resent: median(|it| it.resent),
            marks: median(|it| it.marks),
            cnps: median(|it| it.cnps),
            drops: median(|it| it.drops),
            pauses: median(|it| it.pauses),
            queue_p50: median(|it| it.queue_p50),
            queue_p99: median(|it| it.queue_p99),
            victim: median(|it| it.victim),
            failed: median(|it| it.failed),
            packets: Packets {
                sent: median(|it| it.packets.sent),
                delivered: median(|it| it.packets.delivered),
                dropped: median(|it| it.packets.dropped),
                queued: median(|it| it.packets.queued),
            },
        }
    }
}

/// Returns a percentile of a sorted list; 0 of an empty one.
pub(super) fn percentile(sorted: &[Duration], share: f64) -> Duration {
    let place = (sorted.len() as f64 * share) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_of_the_list() {
        let list: Vec<_> = (1..=100).map(Duration::from_millis).collect();
        let at = |share| percentile(&list, share).as_millis();
        assert_eq!((at(0.0), at(0.5), at(0.99), at(1.0)), (1, 51, 100, 100));
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
    }

    #[test]
    fn the_median_of_three_is_the_middle_of_each_figure() {
        let outcome = |goodput, drops| Outcome { goodput, drops, ..Outcome::default() };
        let median = Outcome::median(&[outcome(3.0, 10.0), outcome(1.0, 30.0), outcome(2.0, 20.0)]);
        assert_eq!((median.goodput, median.drops), (2.0, 20.0));
    }
}
