//! Sockets over RDMA: rsockets of librdmacm on our libibverbs, by rstream, and by iperf3 with librspreload.

use super::iperf3;
use super::roce::Size;
use crate::report::{Figure, Figures};
use crate::suite::candidate::{CLIENT_CPU, SERVER, SERVER_CPU};
use crate::suite::pair::RDMA_CM;
use crate::suite::tools::LIBRSPRELOAD;
use crate::suite::{Candidate, Launch, RunContext};

/// A message each way under way, by rstream, both ends polling.
pub(crate) fn latency(name: &'static str, size: Size) -> Candidate {
    Candidate::new(name, "rsockets, rstream", &["roce", "rstream"], move |context| {
        let end =
            |cpu: usize| context.on_our_device("rstream").args(times(context, size)).on_cpu(cpu);
        let client = end(CLIENT_CPU).args(["-s", &context.network.address(SERVER).to_string()]);
        mean(&context.pair(&end(SERVER_CPU), RDMA_CM, &client)?.client)
    })
}

/// The same program over TCP.
pub(crate) fn latency_of_tcp(name: &'static str, size: Size) -> Candidate {
    Candidate::new(name, "TCP, rstream", &["rstream"], move |context| {
        let end = |cpu: usize| {
            let launch = Launch::new("rstream").args(["-T", "s"]);
            launch.args(times(context, size)).on_cpu(cpu)
        };
        let client = end(CLIENT_CPU).args(["-s", &context.network.address(SERVER).to_string()]);
        mean(&context.pair(&end(SERVER_CPU), RSTREAM_PORT, &client)?.client)
    })
}

/// One stream of iperf3, 128 KiB a write.
pub(crate) fn bandwidth(name: &'static str) -> Candidate {
    let title = "rsockets, iperf3 over librspreload";
    Candidate::new(name, title, &["roce", "iperf3", LIBRSPRELOAD], move |context| {
        let end = |cpu: usize| {
            let preload = format!("LD_PRELOAD=\"$LD_PRELOAD {LIBRSPRELOAD}\" exec iperf3 \"$@\"");
            context.on_our_device("sh").args(["-c", &preload, "sh"]).on_cpu(cpu)
        };
        let seconds = context.config.seconds.ceil().max(1.0).to_string();
        let client = end(CLIENT_CPU).args(["-c", &context.network.address(SERVER).to_string()]);
        let client = client.args(["-t", &seconds, "-J"]);
        let server = end(SERVER_CPU).args(["-s", "-1"]);
        iperf3::received(&context.pair(&server, RDMA_CM, &client)?.client)
    })
}

/// The options of rstream for one size, and about as many round trips as the time of a run allows.
fn times(context: &RunContext<'_>, size: Size) -> [String; 6] {
    let iterations = context.operations(2.0 * SECONDS_EACH_WAY).clamp(1000.0, 1_000_000.0) as u64;
    let words = ["-C", "1", "-I", &iterations.to_string(), "-S", &size.of(context).to_string()];
    words.map(str::to_owned)
}

/// Reads what rstream prints: the last column is the time of one message, of half a round trip.
fn mean(text: &str) -> Result<Figures, String> {
    let row = text.lines().find_map(|line| line.strip_prefix("custom"));
    let row = row.ok_or("rstream printed no result")?;
    let time = row.split_whitespace().last().and_then(|word| word.parse().ok());
    Ok([(Figure::MicrosMean, time.ok_or("rstream printed no time")?)].into())
}

/// About the time of a message on a busy machine.
const SECONDS_EACH_WAY: f64 = 10e-6;
const RSTREAM_PORT: u16 = 7471;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_of_rstream_is_read() {
        let text = "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer\n\
                    custom    64      1       10k     1.2m        0.06s      0.17       2.93\n";
        assert_eq!(mean(text).unwrap()[&Figure::MicrosMean], 2.93);
        assert!(mean("rconnect: Connection refused\n").is_err());
    }
}
