//! TCP as `iperf3` drives it, under a congestion control that is named.

use serde_json::Value;

use super::roce::Size;
use crate::report::{Axis, Figure, Figures};
use crate::suite::candidate::{CLIENT_CPU, SERVER, SERVER_CPU};
use crate::suite::{Candidate, Launch};

/// One stream as iperf3 sends it by itself: 128 KiB a write.
pub(crate) fn candidate(name: &'static str, congestion_control: &'static str) -> Candidate {
    let title = format!("TCP, {congestion_control}");
    stream(name, title, congestion_control, None, 1)
}

/// So many streams at once.
pub(crate) fn streams(
    name: &'static str,
    congestion_control: &'static str,
    count: u64,
) -> Candidate {
    let title = format!("TCP, {congestion_control}, {count} streams");
    stream(name, title, congestion_control, None, count)
}

/// One stream with so many bytes a write, at most [`MAX_WRITE_LEN`].
pub(crate) fn with_writes_of(
    size: Size,
    name: &'static str,
    congestion_control: &'static str,
) -> Candidate {
    let mut title = format!("TCP, {congestion_control}");
    if let Size::Fixed(size) = size {
        title += &format!(", {} a write", Axis::Bytes.at(size));
    }
    stream(name, title, congestion_control, Some(size), 1).up_to(MAX_WRITE_LEN)
}

/// `-A` pins both ends, each to its own processor.
fn stream(
    name: &'static str,
    title: String,
    congestion_control: &'static str,
    size: Option<Size>,
    count: u64,
) -> Candidate {
    Candidate::new(name, title, &["iperf3"], move |context| {
        let server = Launch::new("iperf3").args(["-s", "-1", "-p", PORT_TEXT]);
        let pins = format!("{CLIENT_CPU},{SERVER_CPU}");
        // Its time is in whole seconds.
        let seconds = context.config.seconds.ceil().max(1.0).to_string();
        let mut client =
            Launch::new("iperf3").args(["-c", &context.network.address(SERVER).to_string()]);
        client = client.args(["-p", PORT_TEXT, "-t", &seconds, "-C", congestion_control]);
        client = client.args(["-A", &pins, "-J"]);
        if let Some(size) = size {
            client = client.args(["-l", &size.of(context).to_string()]);
        }
        if count > 1 {
            client = client.args(["-P", &count.to_string()]);
        }
        let printed = context.pair(&server, PORT, &client)?;
        parse(&printed.client, congestion_control)
    })
}

/// Reads its JSON; what arrived counts, not what was sent.
fn parse(text: &str, congestion_control: &str) -> Result<Figures, String> {
    let report = report(text)?;
    // It must have been what the benchmark says it was.
    match report["end"]["sender_tcp_congestion"].as_str() {
        Some(used) if used != congestion_control => {
            return Err(format!("iperf3 used {used} instead of {congestion_control}"));
        }
        _ => {}
    }
    bandwidth(&report)
}

/// Reads its JSON where it ran over rsockets: they lack an option of TCP's, which iperf3 calls an error, and
/// goes on.
pub(super) fn received(text: &str) -> Result<Figures, String> {
    bandwidth(&json(text)?).or_else(|_| bandwidth(&report(text)?))
}

/// Reads its JSON.
fn report(text: &str) -> Result<Value, String> {
    let report = json(text)?;
    match report["error"].as_str() {
        Some(why) => Err(format!("iperf3: {why}")),
        None => Ok(report),
    }
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("iperf3 printed no JSON: {error}"))
}

fn bandwidth(report: &Value) -> Result<Figures, String> {
    let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
    let bits = bits.ok_or("iperf3 reported no bandwidth")?;
    let mut figures = Figures::from([(Figure::Gbits, bits / 1e9)]);
    let streams = report["end"]["streams"].as_array().map_or(&[][..], Vec::as_slice);
    if streams.len() > 1 {
        let each: Option<Vec<f64>> =
            streams.iter().map(|it| it["receiver"]["bits_per_second"].as_f64()).collect();
        let each = each.ok_or("iperf3 reported no bandwidth of a stream")?;
        let mean = each.iter().sum::<f64>() / each.len() as f64;
        let least = each.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = each.iter().copied().fold(0.0, f64::max);
        figures.extend([(Figure::MinShare, least / mean), (Figure::MaxShare, largest / mean)]);
    }
    Ok(figures)
}

/// iperf3 refuses more.
const MAX_WRITE_LEN: u64 = 1 << 20;
/// Not iperf3's usual one, which another may use outside.
const PORT: u16 = 5299;
const PORT_TEXT: &str = "5299";

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = include_str!("samples/iperf3.json");

    #[test]
    fn a_title_says_what_is_not_usual() {
        let title = |candidate: Candidate| candidate.title;
        assert_eq!(title(candidate("cubic", "cubic")), "TCP, cubic");
        let large = with_writes_of(Size::Fixed(1 << 20), "bbr-1m", "bbr");
        assert_eq!(title(large), "TCP, bbr, 1 MiB a write");
        let of_axis = with_writes_of(Size::OfAxis, "cubic", "cubic");
        assert!(of_axis.runs_at(Some(1 << 20)) && !of_axis.runs_at(Some(1 << 22)));
    }

    #[test]
    fn what_was_received_counts() {
        let figures = parse(SAMPLE, "cubic").unwrap();
        assert!((figures[&Figure::Gbits] - 9.367_267).abs() < 1e-5);
    }

    #[test]
    fn several_streams_have_shares() {
        let stream = |bits: f64| serde_json::json!({"receiver": {"bits_per_second": bits}});
        let report = serde_json::json!({"end": {
            "sum_received": {"bits_per_second": 4e9},
            "streams": [stream(1e9), stream(3e9)],
        }});
        let figures = bandwidth(&report).unwrap();
        let shares = [Figure::Gbits, Figure::MinShare, Figure::MaxShare].map(|it| figures[&it]);
        assert_eq!(shares, [4.0, 0.5, 1.5]);
        assert!(!parse(SAMPLE, "cubic").unwrap().contains_key(&Figure::MinShare));
    }

    #[test]
    fn over_rsockets_an_error_counts_only_without_a_figure() {
        let told =
            SAMPLE.trim_end().trim_end_matches('}').to_owned() + ",\"error\":\"getsockopt\"}";
        assert_eq!(received(&told), parse(SAMPLE, "cubic"));
        assert!(parse(&told, "cubic").is_err());
        assert_eq!(received(r#"{"error": "no route"}"#).unwrap_err(), "iperf3: no route");
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
