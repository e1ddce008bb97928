//! What the packet path leaves: our programs without a protocol.

use serde_json::Value;

use super::{last_object, pick};
use crate::mpi::Binding;
use crate::report::{Figure, Figures};
use crate::suite::candidate::{CLIENT_CPU, SERVER, SERVER_CPU};
use crate::suite::network::IFNAME;
use crate::suite::pair::wait_until_listening;
use crate::suite::{Candidate, Launch, RunContext};

/// Trains through the same cable, payload copied out of a working set and into one.
pub(crate) fn trains(name: &'static str, working_set: u64, icrc: bool) -> Candidate {
    let title = if icrc { "raw trains" } else { "raw trains, no ICRC" };
    Candidate::new(name, title, &["raw_trains"], move |context| {
        let payload = path_mtu(context.network.mtu());
        let options = |end: Launch| {
            let end = end.args(["--payload", &payload.to_string()]);
            let end = end.args(["--working-set", &working_set.to_string()]);
            if icrc { end } else { end.arg("--no-icrc") }
        };
        let printed = ends(context, "raw_trains", &["--interface", IFNAME], options)?;
        parse_trains(&printed)
    })
}

/// One small frame each way between two spinning rings.
pub(crate) fn pingpong(name: &'static str) -> Candidate {
    Candidate::new(name, "raw packet ring", &["raw_pingpong"], |context| {
        let printed = ends(context, "raw_pingpong", &["--interface", IFNAME], |end| end)?;
        parse_times(&printed)
    })
}

/// The frames of an allreduce of one value over a ring of ranks, a rank in each host, bound to the
/// processors in turn.
pub(crate) fn ring(name: &'static str, ranks: usize) -> Candidate {
    let program = "raw_allreduce";
    Candidate::new(name, "raw ring of frames", &[program], move |context| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let rank = |number: usize| {
            let cpu = Binding::InTurn.of(number, processors).unwrap_or(0);
            let launch = Launch::new(context.tools.ours(program)).args(["--interface", IFNAME]);
            launch.args(["--cpu", &cpu.to_string(), "--port", PORT_TEXT])
        };
        let mut others = Vec::new();
        for number in 1..ranks {
            let other = context.start(number, &rank(number).arg("--listen"))?;
            wait_until_listening(&other, PORT)?;
            others.push(other);
        }
        let to = (1..ranks).map(|number| context.network.address(number).to_string());
        let first = rank(0).arg("--to").args(to);
        let first = first.args(["--seconds", &context.config.seconds.to_string()]);
        let printed = context.output(0, &first)?;
        for other in others {
            context.finish(other)?;
        }
        pick(&last_object(&printed)?, &[("us", Figure::MicrosMean)])
    })
}

/// The trains of an allreduce of so many bytes over two ranks, each bound to a processor.
pub(crate) fn exchange(name: &'static str, bytes: u64) -> Candidate {
    Candidate::new(name, "raw exchange of trains", &["raw_exchange"], move |context| {
        let size = bytes.to_string();
        let client = |end: Launch| end.args(["--size", &size]);
        let printed = ends(context, "raw_exchange", &["--interface", IFNAME], client)?;
        pick(&last_object(&printed)?, &[("gbytes", Figure::BusGbytes)])
    })
}

/// Runs both ends of one of our small programs; returns what the client printed.
pub(super) fn ends(
    context: &RunContext<'_>,
    program: &str,
    both: &[&str],
    client: impl Fn(Launch) -> Launch,
) -> Result<String, String> {
    let end = |cpu: usize| {
        let launch = Launch::new(context.tools.ours(program)).args(both);
        launch.args(["--cpu", &cpu.to_string(), "--port", PORT_TEXT])
    };
    let server = end(SERVER_CPU).arg("--listen");
    let to = context.network.address(SERVER).to_string();
    let client = client(end(CLIENT_CPU).args(["--to", &to]))
        .args(["--seconds", &context.config.seconds.to_string()]);
    Ok(context.pair(&server, PORT, &client)?.client)
}

/// The largest payload of a packet that an MTU leaves room for, as a device of ours chooses it.
fn path_mtu(mtu: u32) -> u32 {
    let room = mtu.saturating_sub(80);
    [4096, 2048, 1024, 512].into_iter().find(|size| *size <= room).unwrap_or(256)
}

fn parse_trains(text: &str) -> Result<Figures, String> {
    pick(&good_trains(text)?, &[("gbits", Figure::Gbits), ("dropped", Figure::Lost)])
}

fn good_trains(text: &str) -> Result<Value, String> {
    let object = last_object(text)?;
    let bad = object["bad_icrc"].as_u64().unwrap_or(0);
    if bad > 0 {
        return Err(format!("raw_trains: {bad} packets came with a wrong ICRC"));
    }
    Ok(object)
}

/// Half round trips of a program that bounces something.
pub(super) fn parse_times(text: &str) -> Result<Figures, String> {
    pick(
        &last_object(text)?,
        &[
            ("min", Figure::MicrosMin),
            ("mean", Figure::MicrosMean),
            ("p50", Figure::MicrosMedian),
            ("p99", Figure::Micros99),
            ("p999", Figure::Micros999),
        ],
    )
}

const PORT: u16 = 47_911;
const PORT_TEXT: &str = "47911";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trains_count_only_with_good_packets() {
        let good = r#"{"bad_icrc":0,"dropped":12,"gbits":57.1,"packets":3485013,"per_second":9e6}"#;
        let figures = parse_trains(good).unwrap();
        assert_eq!((figures[&Figure::Gbits], figures[&Figure::Lost]), (57.1, 12.0));
        let bad = good.replace("\"bad_icrc\":0", "\"bad_icrc\":3");
        assert!(parse_trains(&bad).unwrap_err().contains("3 packets"));
    }

    #[test]
    fn times_are_read_by_name() {
        let text = r#"{"lost":0,"max":41.3,"mean":1.2,"min":1.1,"p50":1.15,"p99":1.31,"p999":6.2}"#;
        let figures = parse_times(text).unwrap();
        assert_eq!((figures[&Figure::MicrosMedian], figures[&Figure::Micros999]), (1.15, 6.2));
        assert_eq!(figures[&Figure::MicrosMean], 1.2);
    }

    #[test]
    fn the_path_mtu_is_the_one_our_device_chooses() {
        assert_eq!([1500, 4200, 4300, 9000, 576].map(path_mtu), [1024, 4096, 4096, 4096, 256]);
    }
}
