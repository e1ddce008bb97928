//! TCP as `iperf3` drives it, under a congestion control that is named.

use serde_json::Value;

use crate::report::{Figure, Figures};
use crate::suite::contestant::{CLIENT_CPU, SERVER, SERVER_CPU};
use crate::suite::{Contestant, Launch, Stage};

/// One stream in buffers of `len` bytes; 0 stands for iperf3's own 128 KiB.
///
/// `-A` pins both ends, each to its own processor.
pub(crate) fn contestant(
    name: &'static str,
    congestion_control: &'static str,
    len: impl Fn(&Stage<'_>) -> u64 + 'static,
) -> Contestant {
    let title = format!("TCP, {congestion_control}");
    Contestant::new(name, title, &["iperf3"], move |stage| {
        let server = Launch::new("iperf3").args(["-s", "-1", "-p", PORT_TEXT]);
        let pins = format!("{CLIENT_CPU},{SERVER_CPU}");
        // Its time is in whole seconds; the first half second is left out where there is time.
        let seconds = stage.pace.seconds.ceil().max(1.0).to_string();
        let mut client =
            Launch::new("iperf3").args(["-c", &stage.network.address(SERVER).to_string()]);
        client = client.args(["-p", PORT_TEXT, "-t", &seconds, "-C", congestion_control]);
        client = client.args(["-A", &pins, "-J"]);
        let len = len(stage);
        if len > 0 {
            client = client.args(["-l", &len.to_string()]);
        }
        let printed = stage.pair(&server, PORT, &client)?;
        parse(&printed.client, congestion_control)
    })
}

/// Reads its JSON; what arrived counts, not what was sent.
fn parse(text: &str, congestion_control: &str) -> Result<Figures, String> {
    let report: Value =
        serde_json::from_str(text).map_err(|error| format!("iperf3 printed no JSON: {error}"))?;
    if let Some(why) = report["error"].as_str() {
        return Err(format!("iperf3: {why}"));
    }
    let end = &report["end"];
    // It must have been what the row says it was.
    match end["sender_tcp_congestion"].as_str() {
        Some(used) if used != congestion_control => {
            return Err(format!("iperf3 used {used} instead of {congestion_control}"));
        }
        _ => {}
    }
    let bits = end["sum_received"]["bits_per_second"].as_f64();
    let bits = bits.ok_or("iperf3 reported no bandwidth")?;
    Ok([(Figure::Gbits, bits / 1e9)].into())
}

/// Not iperf3's usual one, which another may use outside.
const PORT: u16 = 5299;
const PORT_TEXT: &str = "5299";

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = include_str!("samples/iperf3.json");

    #[test]
    fn what_was_received_counts() {
        let figures = parse(SAMPLE, "cubic").unwrap();
        assert!((figures[&Figure::Gbits] - 9.367_267).abs() < 1e-5);
    }

    #[test]
    fn another_congestion_control_than_named_is_a_failure() {
        let why = parse(SAMPLE, "bbr").unwrap_err();
        assert_eq!(why, "iperf3 used cubic instead of bbr");
    }

    #[test]
    fn what_iperf3_complains_of_is_passed_on() {
        let why = parse(r#"{"error": "unable to connect to server"}"#, "bbr").unwrap_err();
        assert_eq!(why, "iperf3: unable to connect to server");
        assert!(parse("iperf3: oops", "bbr").unwrap_err().contains("no JSON"));
    }
}
