//! `sockperf`: what people measure sockets with.

use crate::report::{Figure, Figures};
use crate::suite::candidate::{CLIENT_CPU, SERVER, SERVER_CPU};
use crate::suite::pair::wait_until_listening;
use crate::suite::{Candidate, Launch, Running};

/// Its ping-pong over TCP, both ends spinning; its smallest message has 14 bytes.
pub(crate) fn spinning(name: &'static str) -> Candidate {
    Candidate::new(name, "sockperf (14 bytes), TCP, spinning", &["sockperf"], |context| {
        let address = context.network.address(SERVER).to_string();
        let at = ["--tcp", "--nonblocked", "-i", &address, "-p", PORT_TEXT];
        let server = Launch::new("sockperf").arg("server").args(at).on_cpu(SERVER_CPU);
        let seconds = context.config.seconds.ceil().max(1.0).to_string();
        let client = Launch::new("sockperf").arg("ping-pong").args(at).on_cpu(CLIENT_CPU);
        let client = client.args(["-m", "14", "-t", &seconds]);
        // Its server serves for ever: it is ended when this is.
        let serving: Running = context.start(SERVER, &server)?;
        wait_until_listening(&serving, PORT)?;
        parse_times(&context.output(0, &client)?)
    })
}

fn parse_times(text: &str) -> Result<Figures, String> {
    let after = |what: &str| {
        let found = text.lines().find_map(|line| line.split_once(what)?.1.split('=').nth(1));
        let number = found.and_then(|number| number.trim().parse::<f64>().ok());
        number.ok_or_else(|| format!("sockperf printed no {what}"))
    };
    Ok([
        (Figure::MicrosMin, after("<MIN> observation")?),
        (Figure::MicrosMedian, after("percentile 50.000")?),
        (Figure::Micros99, after("percentile 99.000")?),
        (Figure::Micros999, after("percentile 99.900")?),
    ]
    .into())
}

const PORT: u16 = 11_111;
const PORT_TEXT: &str = "11111";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_percentiles_are_half_round_trips() {
        let figures = parse_times(include_str!("samples/sockperf_pingpong.txt")).unwrap();
        assert_eq!(figures[&Figure::MicrosMin], 2.671);
        assert_eq!((figures[&Figure::MicrosMedian] * 1000.0).round(), 3141.0);
        assert_eq!((figures[&Figure::Micros99], figures[&Figure::Micros999]), (36.743, 542.933));
    }

    #[test]
    fn a_run_without_observations_is_a_failure() {
        let why = parse_times("sockperf: Test ended\n").unwrap_err();
        assert_eq!(why, "sockperf printed no <MIN> observation");
    }
}
