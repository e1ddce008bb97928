//! `idle_qps` and `wake_up`: connected queue pairs that have nothing to do, or seldom.

use super::raw::{ends, parse_times};
use super::{last_object, pick};
use crate::report::{Figure, Figures};
use crate::suite::candidate::{CLIENT_CPU, SERVER, SERVER_CPU};
use crate::suite::network::IFNAME;
use crate::suite::{Candidate, Launch, RunContext};

/// Resident memory of one more queue pair: the slope between two numbers of them.
pub(crate) fn memory(name: &'static str) -> Candidate {
    Candidate::new(name, "roce, idle queue pairs", &["idle_qps"], |context| {
        let of = |number: u32| -> Result<f64, String> {
            let printed = run(context, number, 0.05)?;
            Ok(pick(&last_object(&printed)?, &[("resident_bytes", Figure::Bytes)])?[&Figure::Bytes])
        };
        Ok(slope((MIN_QPS, of(MIN_QPS)?), (MAX_QPS, of(MAX_QPS)?)))
    })
}

/// Share of a processor that the device's process takes over two seconds.
pub(crate) fn processor(name: &'static str) -> Candidate {
    Candidate::new(name, "roce, idle", &["idle_qps"], |context| {
        let printed = run(context, 1, IDLE_SECONDS)?;
        pick(&last_object(&printed)?, &[("processor_percent", Figure::Percent)])
    })
}

/// Whole round trips to a peer that waits in this `way`, each message `pause` µs behind the answer
/// to the one before.
pub(crate) fn wake_up(
    name: &'static str,
    title: &'static str,
    way: &'static str,
    pause: u32,
) -> Candidate {
    Candidate::new(name, title, &["wake_up"], move |context| {
        let pause = pause.to_string();
        let both = ["--interface", IFNAME, "--wait", way, "--pause", &pause];
        parse_times(&ends(context, "wake_up", &both, |end| end)?)
    })
}

fn run(context: &RunContext<'_>, number: u32, seconds: f64) -> Result<String, String> {
    let end = |cpu: usize| {
        let launch = Launch::new(context.tools.ours("idle_qps")).on_cpu(cpu);
        launch.args(["--interface", IFNAME, "--port", PORT_TEXT])
    };
    let more = ["--queue-pairs", &number.to_string(), "--seconds", &seconds.to_string()];
    let to = context.network.address(SERVER).to_string();
    let client = end(CLIENT_CPU).args(more).args(["--to", &to]);
    Ok(context.pair(&end(SERVER_CPU).arg("--listen"), PORT, &client)?.client)
}

fn slope((few, less): (u32, f64), (many, more): (u32, f64)) -> Figures {
    [(Figure::Bytes, (more - less) / f64::from(many - few))].into()
}

const MIN_QPS: u32 = 1000;
const MAX_QPS: u32 = 4000;
const IDLE_SECONDS: f64 = 2.0;
const PORT: u16 = 47_912;
const PORT_TEXT: &str = "47912";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_without_queue_pairs_does_not_count() {
        let figures = slope((1000, 20e6 + 3e6), (4000, 20e6 + 12e6));
        assert_eq!(figures[&Figure::Bytes], 3000.0);
    }
}
