//! `roce simulate fabric`: flows over switches with queues, marks and pauses.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use roce_lab::{
    EcnMarking, FabricControl, FabricReport, FabricScenario, FabricShape, FabricWorkload,
    FlowSizes, Rate, Recovery, Span, plot_fabric,
};
use serde_json::json;

use crate::error::{CliError, Result};
use crate::output::print;
use crate::parse_number;

/// Time flows over a fabric of switches with queues, ECN marks and pauses
///
/// The hosts run the protocol engine of `roce` itself, with a connection for each flow. Switches share a
/// buffer among their ports, mark packets, and pause their neighbours with --pfc. Only time is simulated.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Hosts, switches and links
    #[arg(long, value_enum, default_value_t = Shape::Incast)]
    topology: Shape,
    /// Number of hosts, rounded up to what the topology needs
    #[arg(long, default_value = "8", value_parser = hosts)]
    hosts: usize,
    /// Flows
    #[arg(long, value_enum, default_value_t = Workload::Incast)]
    workload: Workload,
    /// Bytes of each flow, or of the vector of an allreduce
    #[arg(long, default_value = "1M", value_parser = parse_number::parse)]
    bytes: u64,
    /// Load of the hosts' links with websearch and hadoop, 0 to 1
    #[arg(long, default_value = "0.5", value_parser = parse_number::parse_probability)]
    load: f64,
    /// Congestion control; several give a row each
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,ecn,dcqcn,swift")]
    cc: Vec<Control>,
    /// Make data lossless by priority-based flow control
    #[arg(long)]
    pfc: bool,
    /// Longest pause of a queue before the watchdog drops it, with --pfc
    #[arg(long, value_name = "TIME")]
    watchdog: Option<Span>,
    /// ECN marking: from which queue, up to which, and the probability there [default: in
    /// proportion to the rate, 400K:1600K:0.2 at 100G]
    #[arg(long, value_name = "KMIN:KMAX:PMAX", value_parser = parse_number::parse_marking)]
    ecn: Option<EcnMarking>,
    /// Bytes of each switch's buffer
    #[arg(long, default_value = "32M", value_parser = parse_number::parse)]
    buffer: u64,
    /// A queue may hold this times the free bytes of the buffer; roce switch, which has few ports,
    /// begins with 1
    #[arg(long, value_name = "FACTOR", default_value = "0.125", value_parser = parse_number::parse_factor)]
    alpha: f64,
    /// Probability that a link loses a packet, 0 to 1
    #[arg(long, default_value = "0", value_parser = parse_number::parse_probability)]
    loss: f64,
    /// Reaction to lost packets
    #[arg(long, value_enum, default_value_t = Repair::GoBackN)]
    recovery: Repair,
    /// Largest number of unacknowledged bytes of a flow [default: none]
    #[arg(long, value_name = "BYTES", value_parser = parse_number::parse)]
    window: Option<u64>,
    /// Send each packet over a random path
    #[arg(long)]
    spray: bool,
    /// Bits per second of each link
    #[arg(long, default_value = "100G")]
    rate: Rate,
    /// Propagation delay of each link
    #[arg(long, default_value = "1us")]
    delay: Span,
    /// Path MTU in bytes
    #[arg(long, default_value = "4096", value_parser = path_mtu)]
    mtu: u32,
    /// Longest virtual time
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    limit: Span,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also plot rates, queues, marks and pauses over time; needs one --cc
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// Half of the hosts behind each of two switches
    Dumbbell,
    /// All hosts around one switch
    Incast,
    /// Four hosts on each leaf, two spines
    LeafSpine,
    /// Three switches in a ring, which packets pass in one direction
    Ring,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// All hosts to one
    Incast,
    /// Host i to host i + N/2; in a ring, to two switches further
    Pairs,
    /// Each host to one other
    Permutation,
    /// Each host to each other
    AllToAll,
    /// A ring allreduce
    Allreduce,
    /// Random flows with the sizes of web search
    Websearch,
    /// Random flows with the sizes of Hadoop
    Hadoop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Control {
    /// Line rate
    #[value(alias = "loss")]
    None,
    /// A window that reacts to marks
    Ecn,
    /// DCQCN with the defaults of ConnectX cards
    Dcqcn,
    /// DCQCN with the parameters of its paper
    DcqcnPaper,
    /// A window that reacts to delay
    Swift,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Repair {
    /// Send everything from the lost packet on again
    GoBackN,
    /// Send only lost packets again; the receiver keeps the others
    Keep,
}

const EXAMPLES: &str = "\
  roce simulate fabric --hosts 9 --cc none,dcqcn --pfc
  roce simulate fabric --topology leaf-spine --hosts 32 --workload websearch --load 0.6
  roce simulate fabric --topology ring --hosts 6 --workload pairs --bytes 100M --pfc --cc none \\
      --buffer 500K --watchdog 500us --svg ring.svg

Columns: done are finished flows; Gbit/s is the payload of all flows over the whole time; fair is
Jain's index of the flows' rates; p50 and p99 are completion times in us; queue is the longest queue
in KB; pauses are XOFF frames of switches; drops are packets lost in switches.";

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    if options.svg.is_some() && options.cc.len() != 1 {
        return Err(CliError::new("--svg plots one run; give one --cc".to_owned()));
    }
    let started = Instant::now();
    let mut rows = Vec::new();
    let mut packets = 0;
    if let Some(control) = options.cc.first().filter(|_| !options.json) {
        print(&head(options, scenario(options, *control).topology().hosts().len()))?;
    }
    for control in &options.cc {
        let report = scenario(options, *control).simulate()?;
        packets += report.results.fabric.sent_frames;
        if options.json {
            rows.push(to_json(*control, &report));
        } else {
            print(&row(*control, &report))?;
        }
        if let Some(path) = &options.svg {
            let failed = |why| CliError::context(format!("cannot write {}", path.display()), why);
            std::fs::write(path, plot_fabric(&report)?).map_err(failed)?;
        }
    }
    if options.json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&rows)?));
    }
    print(&format!("# {packets} packets in {:.1} s\n", started.elapsed().as_secs_f64()))
}

fn scenario(options: &Options, control: Control) -> FabricScenario {
    FabricScenario {
        shape: match options.topology {
            Shape::Dumbbell => FabricShape::Dumbbell,
            Shape::Incast => FabricShape::Star,
            Shape::LeafSpine => FabricShape::LeafSpine,
            Shape::Ring => FabricShape::Ring,
        },
        hosts: options.hosts,
        workload: match options.workload {
            Workload::Incast => FabricWorkload::Incast,
            Workload::Pairs => FabricWorkload::Pairs,
            Workload::Permutation => FabricWorkload::Permutation,
            Workload::AllToAll => FabricWorkload::AllToAll,
            Workload::Allreduce => FabricWorkload::RingAllreduce,
            Workload::Websearch => FabricWorkload::Sizes(FlowSizes::WebSearch, options.load),
            Workload::Hadoop => FabricWorkload::Sizes(FlowSizes::Hadoop, options.load),
        },
        bytes: options.bytes,
        control: match control {
            Control::None => FabricControl::None,
            Control::Ecn => FabricControl::Ecn,
            Control::Dcqcn => FabricControl::Dcqcn,
            Control::DcqcnPaper => FabricControl::DcqcnPaper,
            Control::Swift => FabricControl::Swift,
        },
        bits_per_sec: options.rate.bits_per_sec(),
        delay: options.delay.duration(),
        payload: options.mtu,
        buffer: options.buffer,
        alpha: options.alpha,
        marking: options.ecn,
        pfc: options.pfc,
        watchdog: options.watchdog.map(|span| span.duration()),
        loss: options.loss,
        recovery: match options.recovery {
            Repair::GoBackN => Recovery::GoBackN,
            Repair::Keep => Recovery::Keep,
        },
        window: options.window.unwrap_or(u64::MAX),
        spray: options.spray,
        seed: options.seed,
        limit: options.limit.duration(),
    }
}

fn name(control: Control) -> String {
    control.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn head(options: &Options, hosts: usize) -> String {
    format!(
        "# {} hosts, each link {} and {} one way; buffer {} bytes{}\n\
         {:<11} {:>11} {:>7} {:>5} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>7} {:>7}\n",
        hosts,
        options.rate,
        options.delay,
        options.buffer,
        if options.pfc { ", PFC" } else { "" },
        "cc",
        "done",
        "Gbit/s",
        "fair",
        "p50(us)",
        "p99(us)",
        "queue p50",
        "queue p99",
        "marks",
        "CNPs",
        "pauses",
        "drops",
        "resent"
    )
}

fn row(control: Control, report: &FabricReport) -> String {
    let results = &report.results;
    let done = results.flows.iter().filter(|flow| flow.finished.is_some()).count();
    let time = |share| results.completion_time(share).map_or_else(|| "n/a".to_owned(), micros);
    format!(
        "{:<11} {:>11} {:>7.2} {:>5.3} {:>9} {:>9} {:>9.1} {:>9.1} {:>7} {:>7} {:>7} {:>7} {:>7}\n",
        name(control),
        format!("{done}/{}", results.flows.len()),
        results.goodput() / 1e9,
        results.fairness(),
        time(0.5),
        time(0.99),
        results.queue.p50 as f64 / 1e3,
        results.queue.p99 as f64 / 1e3,
        results.switches.marked_frames,
        results.cnps,
        results.switches.xoff_sent,
        results.switches.dropped_frames + results.switches.discarded_frames,
        results.resent,
    )
}

fn to_json(control: Control, report: &FabricReport) -> serde_json::Value {
    let results = &report.results;
    let flow = |flow: &roce_lab::FlowResult| {
        json!({
            "from": flow.spec.from,
            "to": flow.spec.to,
            "delivered_bytes": flow.delivered,
            "seconds": flow.completion_time().map(|it| it.as_secs_f64()),
            "goodput_bits_per_second": flow.goodput(results.time),
        })
    };
    let (fabric, switches) = (&results.fabric, &results.switches);
    json!({
        "cc": name(control),
        "seconds": results.time.as_nanos() as f64 / 1e9,
        "goodput_bits_per_second": results.goodput(),
        "fairness": results.fairness(),
        "queue_bytes": {
            "mean": results.queue.mean,
            "deviation": results.queue.deviation,
            "p50": results.queue.p50,
            "p99": results.queue.p99,
            "max": results.queue.max,
        },
        "packets": fabric.sent_frames,
        "lost": fabric.lost_frames,
        "resent": results.resent,
        "cnps": results.cnps,
        "timeouts": results.timeouts,
        "pause_frames": fabric.pause_frames,
        "marked": switches.marked_frames,
        "dropped": switches.dropped_frames,
        "discarded": switches.discarded_frames,
        "xoff": switches.xoff_sent,
        "xon": switches.xon_sent,
        "watchdog_expiries": switches.watchdog_expiries,
        "flows": results.flows.iter().map(flow).collect::<Vec<_>>(),
    })
}

fn micros(span: Duration) -> String {
    format!("{:.1}", span.as_secs_f64() * 1e6)
}

fn hosts(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(hosts @ 2..=1024) => Ok(hosts),
        _ => Err("a number of hosts lies between 2 and 1024".to_owned()),
    }
}

fn path_mtu(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(bytes @ (256 | 512 | 1024 | 2048 | 4096)) => Ok(bytes),
        _ => Err("a path MTU is 256, 512, 1024, 2048 or 4096".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn reports(line: &str) -> Vec<FabricReport> {
        let line = Line::try_parse_from(std::iter::once("fabric").chain(line.split(' '))).unwrap();
        let run = |control: &Control| scenario(&line.options, *control).simulate().unwrap();
        line.options.cc.iter().map(run).collect()
    }

    #[test]
    fn a_row_shows_what_a_congestion_control_does() {
        let line = "--rate 10G --buffer 1M --hosts 5 --bytes 500K --mtu 1024";
        let options = Line::try_parse_from(std::iter::once("fabric").chain(line.split(' ')));
        let options = options.unwrap().options;
        let rows = options.cc.iter().zip(reports(line)).map(|(cc, report)| row(*cc, &report));
        insta::assert_snapshot!("fabric", head(&options, 5) + &rows.collect::<String>());
    }

    #[test]
    fn every_topology_runs_every_workload() {
        for topology in ["dumbbell", "incast", "leaf-spine", "ring"] {
            for workload in
                ["incast", "pairs", "permutation", "all-to-all", "allreduce", "websearch", "hadoop"]
            {
                let line = format!(
                    "--topology {topology} --workload {workload} --hosts 6 --bytes 50K --limit 2ms \
                     --cc dcqcn --load 0.05"
                );
                let report = &reports(&line)[0];
                let flows = &report.results.flows;
                let done = flows.iter().filter(|flow| flow.finished.is_some()).count();
                assert!(!flows.is_empty() && done * 4 >= flows.len() * 3, "{line}: {done} done");
            }
        }
    }

    #[test]
    fn a_plot_has_lines_for_flows_throughput_queue_and_counters() {
        let report = &reports("--hosts 4 --cc ecn --pfc")[0];
        let svg = plot_fabric(report).unwrap();
        assert!(svg.matches("<polyline").count() >= 3 + 1 + 1 + 3);
        let nothing = &reports("--hosts 2 --bytes 1 --cc none --limit 500ns")[0];
        assert!(plot_fabric(nothing).unwrap_err().to_string().contains("two samples"));
    }
}
