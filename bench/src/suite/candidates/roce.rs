//! Ours: `roce perf`, `roce allreduce` and `roce pingpong`, as users start them.

use serde_json::Value;

use super::pick;
use crate::mpi::Binding;
use crate::report::{Figure, Figures};
use crate::suite::candidate::{CLIENT_CPU, SERVER, SERVER_CPU};
use crate::suite::network::IFNAME;
use crate::suite::{Candidate, Launch, RunContext, Running};

/// A test of bandwidth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bandwidth {
    /// `write`, `read` or `send`.
    pub(crate) verb: &'static str,
    /// Bytes of a message.
    pub(crate) size: Size,
    /// Bytes of memory at each end; 0: that of one message.
    pub(crate) working_set: u64,
    /// Queue pairs.
    pub(crate) queue_pairs: Size,
    /// Messages under way on each.
    pub(crate) depth: u32,
    /// Messages posted with one call.
    pub(crate) list: u32,
    /// `RC`, `UC` or `UD`.
    pub(crate) service: &'static str,
    /// Posted receives of each queue pair; 0: as many as the program chooses.
    pub(crate) receives: u32,
}

/// A number that is fixed, or that of the axis.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {
    /// Always this.
    Fixed(u64),
    /// Where the row is on its axis.
    OfAxis,
}

impl Size {
    pub(crate) fn of(self, context: &RunContext<'_>) -> u64 {
        match self {
            Self::Fixed(size) => size,
            Self::OfAxis => context.x,
        }
    }
}

impl Bandwidth {
    /// Messages of 1 MiB on one queue pair, over and over in the same place, posted one by one.
    pub(crate) fn of(verb: &'static str) -> Self {
        let (size, queue_pairs) = (Size::Fixed(1 << 20), Size::Fixed(1));
        Self {
            verb,
            size,
            working_set: 0,
            queue_pairs,
            depth: 128,
            list: 1,
            service: "RC",
            receives: 0,
        }
    }

    pub(crate) fn candidate(self, name: &'static str, title: &str) -> Candidate {
        Candidate::new(name, title, &["roce"], move |context| {
            let printed = self.run(context)?;
            parse_bandwidth(&printed)
        })
    }

    fn run(self, context: &RunContext<'_>) -> Result<String, String> {
        let seconds = context.config.seconds + 2.0 * MARGIN;
        let mut more = vec![
            format!("--size={}", self.size.of(context)),
            format!("--duration={seconds:.2}"),
            format!("--margin={MARGIN}"),
            format!("--qp={}", self.queue_pairs.of(context)),
            format!("--tx-depth={}", self.depth),
            format!("--post_list={}", self.list),
            "--report_gbits".to_owned(),
        ];
        if self.service != "RC" {
            more.push(format!("--connection={}", self.service));
        }
        if self.receives > 0 {
            more.push(format!("--rx-depth={}", self.receives));
        }
        let mut both = Vec::new();
        if self.working_set > 0 {
            if !context.tools.perf_has("--working-set") {
                return Err("this roce has no --working-set".to_owned());
            }
            both.push(format!("--working-set={}", self.working_set));
        }
        perf(context, [self.verb, "bw"], &both, &more)
    }
}

/// Latency of one message under way, both ends polling.
pub(crate) fn latency(name: &'static str, verb: &'static str, size: Size) -> Candidate {
    Candidate::new(name, format!("roce {verb}"), &["roce"], move |context| {
        let size = size.of(context);
        // As many as take about as long as a run over time: 5 µs and 0.5 ns a byte, each way.
        let each = 10e-6 + size as f64 * 1e-9;
        let iterations = context.operations(each).clamp(1000.0, 1_000_000.0) as u64;
        let more = [format!("--size={size}"), format!("--iters={iterations}")];
        parse_latency(&perf(context, [verb, "lat"], &[], &more)?)
    })
}

/// Runs both ends of `roce perf`; `both` are options of both ends, `more` the client's.
fn perf(
    context: &RunContext<'_>,
    test: [&str; 2],
    both: &[String],
    more: &[String],
) -> Result<String, String> {
    let end = |cpu: usize| {
        let launch = Launch::new(context.tools.ours("roce")).arg("perf").args(test);
        let launch = launch.args(["--json", "--ib-dev", IFNAME]).args(both);
        let launch = if context.config.realtime && context.tools.perf_has("--realtime") {
            launch.arg("--realtime")
        } else {
            launch
        };
        // It knows best which of its threads belong where.
        if context.tools.perf_has("--cpu") {
            launch.args(["--cpu", &cpu.to_string()])
        } else {
            launch.on_cpu(cpu)
        }
    };
    let server = end(SERVER_CPU);
    let client = end(CLIENT_CPU).args(more).arg(context.network.address(SERVER).to_string());
    Ok(context.pair(&server, PERF_PORT, &client)?.client)
}

/// One operation of a group: the first `ranks` hosts, a rank each.
pub(crate) fn allreduce(
    name: &'static str,
    bytes: Size,
    ranks: Size,
    binding: Binding,
) -> Candidate {
    let label = match binding {
        Binding::Free => "roce",
        Binding::InTurn => "roce, bound",
    };
    Candidate::new(name, label, &["roce"], move |context| {
        let (bytes, ranks) = (bytes.of(context), ranks.of(context));
        let root = format!("{}:29500", context.network.address(0));
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let rank = |number: u64| {
            let launch = Launch::new(context.tools.ours("roce")).arg("allreduce");
            let launch =
                launch.args(iterations(bytes, context)).args(["--placement", "out", "--json"]);
            let launch = launch.args(["--average", "3", "--root-address", &root]);
            let launch = launch.args(["--size", &ranks.to_string()]);
            let launch = launch.args(["--rank", &number.to_string()]);
            match binding.of(number as usize, processors) {
                Some(cpu) => launch.on_cpu(cpu),
                None => launch,
            }
        };
        let mut running = (0..ranks).map(|number| context.start(number as usize, &rank(number)));
        let running = running.by_ref().collect::<Result<Vec<Running>, String>>()?;
        let printed: Vec<Result<String, String>> =
            running.into_iter().map(|rank| context.finish(rank)).collect();
        let printed = printed.into_iter().collect::<Result<Vec<String>, String>>()?;
        parse_allreduce(printed.first().map_or("", String::as_str))
    })
}

/// One size, and as many operations as take about as long as a run over time: the same for all
/// candidates.
pub(crate) fn iterations(bytes: u64, context: &RunContext<'_>) -> [String; 8] {
    // 30 µs and 1 ns a byte.
    let each = 30e-6 + bytes as f64 * 1e-9;
    // Long beside the milliseconds after which the system moves ranks to other processors.
    let count = context.operations(each).clamp(4.0, 20_000.0) as u64;
    let warm_up = (count / 5).clamp(1, 2000);
    let words = ["-b", &bytes.to_string(), "-e", &bytes.to_string()];
    let more = ["-n", &count.to_string(), "-w", &warm_up.to_string()];
    let all: Vec<String> = words.iter().chain(&more).map(ToString::to_string).collect();
    all.try_into().unwrap_or_default()
}

fn parse_bandwidth(text: &str) -> Result<Figures, String> {
    let (report, row) = first_result(text)?;
    if report["test_info"]["BW_unit"] != "Gb/sec" {
        return Err("roce reported another unit than Gb/sec".to_owned());
    }
    let mut figures = pick(&row, &[("BW_average", Figure::Gbits), ("MsgRate", Figure::PerSecond)])?;
    if let Some(rate) = figures.get_mut(&Figure::PerSecond) {
        *rate *= 1e6;
    }
    // Where there are several queue pairs.
    for (name, figure) in [("min_share", Figure::MinShare), ("max_share", Figure::MaxShare)] {
        if let Some(share) = row["fairness"][name].as_f64() {
            figures.insert(figure, share);
        }
    }
    // Of services without acknowledgements.
    if let Some(lost) = row["lost_percent"].as_f64() {
        figures.insert(Figure::LostPercent, lost);
    }
    Ok(figures)
}

fn parse_latency(text: &str) -> Result<Figures, String> {
    let (_, row) = first_result(text)?;
    pick(
        &row,
        &[
            ("t_min", Figure::MicrosMin),
            ("t_typical", Figure::MicrosMedian),
            ("t_avg", Figure::MicrosMean),
            ("percentile_99", Figure::Micros99),
            ("percentile_99.9", Figure::Micros999),
        ],
    )
}

fn parse_allreduce(text: &str) -> Result<Figures, String> {
    let (report, row) = first_result(text)?;
    if report["out_of_bounds"]["okay"] != true {
        return Err("roce allreduce: a result was wrong".to_owned());
    }
    let placed = &row["out_of_place"];
    pick(placed, &[("time", Figure::MicrosMean), ("bus_bw", Figure::BusGbytes)])
}

fn first_result(text: &str) -> Result<(Value, Value), String> {
    let report: Value =
        serde_json::from_str(text).map_err(|error| format!("roce printed no JSON: {error}"))?;
    let row = report["results"][0].clone();
    if row.is_object() { Ok((report, row)) } else { Err("roce printed no result".to_owned()) }
}

const PERF_PORT: u16 = 18515;
/// Seconds at both ends of a run that do not count.
const MARGIN: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_is_in_gigabits_and_rates_are_whole_messages() {
        let text = r#"{"results": [{"BW_average": 41.5, "BW_peak": null, "MsgRate": 0.00495,
            "MsgSize": 1048576, "n_iterations": 9900,
            "fairness": {"min_share": 0.97, "max_share": 1.02}}],
            "test_info": {"BW_unit": "Gb/sec", "Mtu": 4096}}"#;
        let figures = parse_bandwidth(text).unwrap();
        assert_eq!(figures[&Figure::Gbits], 41.5);
        assert!((figures[&Figure::PerSecond] - 4950.0).abs() < 1e-6);
        assert_eq!((figures[&Figure::MinShare], figures[&Figure::MaxShare]), (0.97, 1.02));
        let lossy = text.replace("\"MsgSize\"", "\"lost_percent\": 0.25, \"MsgSize\"");
        assert_eq!(parse_bandwidth(&lossy).unwrap()[&Figure::LostPercent], 0.25);
        let mebibytes = text.replace("Gb/sec", "MiB/sec");
        assert!(parse_bandwidth(&mebibytes).unwrap_err().contains("another unit"));
    }

    #[test]
    fn latency_has_its_percentiles() {
        let figures = parse_latency(include_str!("samples/roce_latency.json")).unwrap();
        assert_eq!(figures[&Figure::MicrosMin], 3.596);
        assert_eq!(figures[&Figure::Micros99], 134.243);
        assert_eq!(figures[&Figure::Micros999], 516.1155);
    }

    #[test]
    fn an_allreduce_with_a_wrong_result_is_a_failure() {
        let text = include_str!("samples/roce_allreduce.json");
        let figures = parse_allreduce(text).unwrap();
        assert_eq!(figures[&Figure::MicrosMean], 38.966);
        let wrong = text.replace("\"okay\": true", "\"okay\": false");
        assert_eq!(parse_allreduce(&wrong).unwrap_err(), "roce allreduce: a result was wrong");
    }

    #[test]
    fn what_is_no_result_is_said() {
        assert!(first_result("").unwrap_err().starts_with("roce printed no JSON"));
        assert_eq!(first_result("{\"results\": []}").unwrap_err(), "roce printed no result");
    }
}
