//! UCX over TCP, as `ucx_perftest` drives it.

use crate::report::Figure;
use crate::suite::candidate::{CLIENT_CPU, SERVER, SERVER_CPU};
use crate::suite::network::IFNAME;
use crate::suite::{Candidate, Launch, RunContext};

/// A tagged message of eight bytes each way, polling.
pub(crate) fn latency(name: &'static str) -> Candidate {
    Candidate::new(name, "UCX over TCP", &["ucx_perftest"], |context| {
        let iterations = (context.config.seconds / 20e-6).clamp(1000.0, 200_000.0) as u64;
        let test = ["-t", "tag_lat", "-s", "8", "-n", &iterations.to_string()];
        let (median, mean, _) = parse(&run(context, &test)?)?;
        Ok([(Figure::MicrosMedian, median), (Figure::MicrosMean, mean)].into())
    })
}

fn run(context: &RunContext<'_>, test: &[&str]) -> Result<String, String> {
    let end = |cpu: usize| {
        let launch = Launch::new("ucx_perftest").env("UCX_TLS", "tcp").on_cpu(cpu);
        // Only the last line of a test; it would warn of processors it was not told of.
        launch
            .env("UCX_NET_DEVICES", IFNAME)
            .env("UCX_WARN_UNUSED_ENV_VARS", "n")
            .args(["-p", PORT_TEXT, "-f"])
    };
    let client = end(CLIENT_CPU).args(test).arg(context.network.address(SERVER).to_string());
    Ok(context.pair(&end(SERVER_CPU), PORT, &client)?.client)
}

/// Median time, overall mean time (µs) and overall bandwidth (2^20 bytes a second) of the last
/// line: iterations, three times, two bandwidths, two rates.
fn parse(text: &str) -> Result<(f64, f64, f64), String> {
    let numbers = |line: &str| -> Option<Vec<f64>> {
        line.split_whitespace().map(|word| word.parse().ok()).collect()
    };
    let last = text.lines().rev().filter_map(numbers).find(|all| all.len() == 8);
    match last.as_deref() {
        Some([_, median, _, overall, _, bandwidth, ..]) => Ok((*median, *overall, *bandwidth)),
        _ => Err("ucx_perftest printed no result".to_owned()),
    }
}

const PORT: u16 = 13_337;
const PORT_TEXT: &str = "13337";

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_overall_columns_count() {
        let latency = include_str!("samples/ucx_latency.txt");
        assert_eq!(parse(latency).unwrap(), (3.761, 8.665, 0.88));
        let bandwidth = include_str!("samples/ucx_bandwidth.txt");
        assert_eq!(parse(bandwidth).unwrap().2, 877.78);
    }

    #[test]
    fn a_frame_without_numbers_is_no_result() {
        assert!(parse("+-----+\n| Test |\n+-----+\n").is_err());
    }
}
