//! `roce allreduce` and the other collectives over a ring, measured as nccl-tests does.

mod bench;
mod case;
mod info;
mod input_data;
mod job;
mod nccl_env;
mod number_format;
mod options;
mod options_without_effect;
mod progress;
mod rank_assignment;
mod report;
mod report_collector;
mod selector;
mod steps;
mod trace;

use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use clap::Subcommand;
use roce_collectives::{Group, GroupConfig, LauncherEnv};
use roce_io::OpenError;
use roce_ring::Collective;
use roce_verbs::{Device, DeviceConfig, Trace};
use serde_json::Value;

use crate::backend;
use crate::capture_pipe;
use crate::error::{CliError, Result};
use crate::faults;
use crate::local::ring;
use crate::rails;
use crate::traffic;
use bench::{Bench, RankZeroOutput};
use info::Info;
use job::Job;
use nccl_env::NcclEnv;
use options::Options;
use rank_assignment::RankAssignment;
use report::{Report, Style};
use report_collector::ReportCollector;
use trace::{Event, Form};

/// The collectives.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Sum vectors over a ring of ranks, and measure it as nccl-tests does (all_reduce_perf)
    #[command(name = "allreduce", aliases = ["all-reduce", "all_reduce", "all_reduce_perf"])]
    AllReduce(Options),
    /// Give every rank the vectors of all (all_gather_perf)
    #[command(name = "all-gather", aliases = ["allgather", "all_gather", "all_gather_perf"])]
    AllGather(Options),
    /// Sum vectors, and give every rank its part of the sum (reduce_scatter_perf)
    #[command(name = "reduce-scatter")]
    #[command(aliases = ["reducescatter", "reduce_scatter", "reduce_scatter_perf"])]
    ReduceScatter(Options),
    /// Give every rank the root's vector (broadcast_perf)
    #[command(name = "broadcast", alias = "broadcast_perf")]
    Broadcast(Options),
    /// Sum vectors at the root (reduce_perf)
    #[command(name = "reduce", alias = "reduce_perf")]
    Reduce(Options),
}

/// Runs the command.
pub(crate) fn run(command: &Command) -> Result {
    let (collective, options) = match command {
        Command::AllReduce(options) => (Collective::AllReduce, options),
        Command::AllGather(options) => (Collective::AllGather, options),
        Command::ReduceScatter(options) => (Collective::ReduceScatter, options),
        Command::Broadcast(options) => (Collective::Broadcast, options),
        Command::Reduce(options) => (Collective::Reduce, options),
    };
    let job = options.job(collective)?;
    let nccl_env = NcclEnv::from_environment().map_err(CliError::new)?;
    match (options.local, options.local_rank) {
        (Some(ranks), None) => {
            Options::check_ranks(&job, ranks)?;
            let net = &options.net;
            ring::run(ranks, u32::from(net.rails), net.link_mtu, &net.switch)
        }
        (Some(size), Some(rank)) => ring::within(|| {
            let assignment = RankAssignment {
                rank,
                size,
                root: ring::ROOT.to_owned(),
                source: "--local".to_owned(),
                is_first_on_host: rank == 0,
            };
            run_rank(options, &job, &nccl_env, &assignment)
        }),
        (None, _) => {
            let launch = LauncherEnv::from_environment();
            let assignment =
                RankAssignment::find(&options.assignment, nccl_env.root.as_deref(), launch)?;
            Options::check_ranks(&job, assignment.size)?;
            run_rank(options, &job, &nccl_env, &assignment)
                .map_err(|failure| named(failure, &assignment))
        }
    }
}

/// Adds the rank to a message: launchers mix the output of ranks.
fn named(failure: CliError, assignment: &RankAssignment) -> CliError {
    match failure {
        CliError::Message(text) if assignment.size > 1 => {
            CliError::Message(format!("rank {} stops: {text}", assignment.rank))
        }
        other => other,
    }
}

fn run_rank(
    options: &Options,
    job: &Job,
    nccl_env: &NcclEnv,
    assignment: &RankAssignment,
) -> Result {
    options.net.faults.check_ranks(Some(assignment.size))?;
    options.net.faults.check_rails(faults::Rails::OfCommand(options.net.rails.into()))?;
    let info = Info::new(nccl_env, assignment.rank)?;
    if assignment.rank == 0 {
        info.version();
    }
    if assignment.is_first_on_host {
        let of_options = options.warnings();
        of_options.iter().chain(&nccl_env.warnings).for_each(|warning| info.warn(warning));
    }
    let (interfaces, why) = interfaces(options, nccl_env, assignment)?;
    info.before(assignment, &interfaces, &why);
    let trace = options.wants_trace().then(|| Trace::new(MAX_EVENTS));
    let config = config(options, job, nccl_env, assignment, interfaces, trace.clone())?;
    let choice = config.device.backend;
    let files = Files::create(options, assignment)?;
    let mut group = Group::join(config).map_err(explain)?;
    if assignment.is_first_on_host
        && let Some(device) = group.devices().next()
    {
        backend::tell(choice, device);
    }
    info.after(&group, nccl_env.gid_index, nccl_env.qps_per_connection.unwrap_or(1));
    let outcome = work(options, job, nccl_env, &mut group, trace.as_ref(), files);
    if options.counters && assignment.rank == 0 {
        group.devices().try_for_each(traffic::print_counters)?;
    }
    for device in group.devices() {
        device.flush_capture()?;
    }
    let script = options.net.faults.script();
    let events = group.devices().flat_map(Device::fault_events).collect();
    let faults = faults::Report::new(&script, events);
    let wrong = outcome?;
    group.leave()?;
    if wrong > 0 {
        let much = if wrong == 1 { "1 element is" } else { &format!("{wrong} elements are") };
        return Err(CliError::new(format!(
            "{much} wrong, which no network may cause: please report it with the command line, and a \
             --pcap capture if it happens again"
        )));
    }
    // What other ranks send is not known here.
    faults.finish(|rule| rule.rank() == Some(assignment.rank))
}

/// Runs the measurement of a rank. Rank 0 gets the number of wrong elements.
fn work(
    options: &Options,
    job: &Job,
    nccl_env: &NcclEnv,
    group: &mut Group,
    trace: Option<&Trace>,
    files: Files,
) -> Result<u64> {
    let devices: Vec<String> =
        group.devices().map(|device| info::describe(device, nccl_env.gid_index)).collect();
    let devices = if devices.is_empty() { "none".to_owned() } else { devices.join(", ") };
    let (pid, host) = (std::process::id().to_string(), info::host_name());
    group.report("device", &[("pid", pid), ("host", host), ("devices", devices)])?;
    if group.rank() != 0 {
        Bench::new(group, job, options.steps)?.run::<io::Stdout>(None)?;
        report_events(group, trace)?;
        return Ok(0);
    }
    let mut collector = ReportCollector::default();
    let mut report = Report::new(options.style(), job, group.size(), io::stdout())?;
    let average = options.average();
    let office = RankZeroOutput { collector: &mut collector, report: &mut report, average };
    Bench::new(group, job, options.steps)?.run(Some(office))?;
    report_events(group, trace)?;
    if trace.is_some() {
        collector.wait_for_traces(group)?;
    }
    show_more(options, collector, &mut report, group.size(), files.trace_json)?;
    report.finish()?;
    if let Some(mut file) = files.output {
        writeln!(file, "{:#}", report.to_json())?;
    }
    Ok(report.wrong())
}

/// Prints the output requested beside the table.
fn show_more(
    options: &Options,
    mut collector: ReportCollector,
    report: &mut Report<io::Stdout>,
    ranks: u32,
    trace_json: Option<File>,
) -> Result {
    let table = report.style() == Style::Table;
    for line in collector.value_lines(ranks) {
        report.note(&line)?;
        report.add("values", collector.values_json());
    }
    if options.steps {
        report.text(&steps::table(&collector.steps))?;
        report.add("steps", collector.steps.iter().map(steps::StepLine::to_json).collect());
    }
    if !options.wants_trace() {
        return Ok(());
    }
    let events = trace::merge(std::mem::take(&mut collector.events));
    if let Some(file) = trace_json {
        let mut file = io::BufWriter::new(file);
        for line in trace::lines(&events, Form::Json) {
            writeln!(file, "{line}")?;
        }
        file.flush()?;
    }
    if let Some(form) = options.trace {
        if table {
            if form == Form::Text {
                report.text(&format!("{}\n", trace::COLUMNS))?;
            }
            for line in trace::lines(&events, form) {
                report.text(&format!("{line}\n"))?;
            }
        } else {
            let lines = trace::lines(&events, Form::Json);
            let parsed = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
            report.add("trace", parsed.collect());
        }
    }
    if collector.lost_events > 0 {
        let (lost, most) = (collector.lost_events, MAX_EVENTS);
        eprintln!("{lost} events are missing: each rank keeps {most}. Use -n 1 -w 0 -c 0");
    }
    Ok(())
}

/// Reports this rank's events to rank 0.
fn report_events(group: &mut Group, trace: Option<&Trace>) -> Result {
    let Some(trace) = trace else { return Ok(()) };
    let events: Vec<Event> = group.timeline().iter().map(Event::from).collect();
    for text in trace::pack(&events) {
        group.report("trace", &[("events", text)])?;
    }
    Ok(group.report("traced", &[("lost", trace.lost().to_string())])?)
}

/// Returns the interfaces to use, and the reason.
fn interfaces(
    options: &Options,
    nccl_env: &NcclEnv,
    assignment: &RankAssignment,
) -> Result<(Vec<String>, String)> {
    if assignment.size == 1 {
        return Ok((Vec::new(), "one rank needs none".to_owned()));
    }
    let usable = traffic::usable_interfaces()?;
    let none = |name: &str, selector: &selector::Selector| {
        let there_are = if usable.is_empty() { "none".to_owned() } else { usable.join(", ") };
        CliError::new(format!(
            "{name}={selector} matches no interface that can carry RoCE now (available: {there_are}); \
             use interface names of `roce devices`"
        ))
    };
    if let Some(selector) = &nccl_env.hca {
        let picked = selector.pick(&usable);
        let picked = (!picked.is_empty()).then_some(picked);
        let picked = picked.ok_or_else(|| none("NCCL_IB_HCA", selector))?;
        return Ok((picked, format!("NCCL_IB_HCA={selector}")));
    }
    if let Some(selector) = &nccl_env.ifname {
        let first = selector.pick(&usable).into_iter().next();
        let first = first.ok_or_else(|| none("NCCL_SOCKET_IFNAME", selector))?;
        return Ok((vec![first], format!("the first of NCCL_SOCKET_IFNAME={selector}")));
    }
    if options.local_rank.is_some() {
        let all = (0..u32::from(options.net.rails)).map(rails::interface).collect();
        return Ok((all, "all that this private host has".to_owned()));
    }
    let first = traffic::first_usable()?;
    Ok((vec![first], "the first that can carry RoCE; NCCL_IB_HCA chooses others".to_owned()))
}

fn config(
    options: &Options,
    job: &Job,
    nccl_env: &NcclEnv,
    assignment: &RankAssignment,
    interfaces: Vec<String>,
    trace: Option<Trace>,
) -> Result<GroupConfig> {
    let net = &options.net;
    let usual = GroupConfig::new(assignment.rank, assignment.size, assignment.root.clone());
    let device = DeviceConfig {
        backend: net.backend.choice()?,
        gso: net.gso.into(),
        capture: net.pcap.clone().filter(|_| assignment.rank == 0),
        // Faults are injected at the sender, once per packet.
        faults: net.faults.any().then(|| net.faults.of_sender(assignment.rank)),
        congestion: net.congestion.cc,
        link_rate: net.switch.link_rate(),
        trace,
        ..DeviceConfig::default()
    };
    let steps = if options.steps { step_records(job, assignment.size) } else { 0 };
    Ok(GroupConfig {
        interfaces,
        gid_index: nccl_env.gid_index,
        qps_per_connection: nccl_env.qps_per_connection.unwrap_or(usual.qps_per_connection),
        split: nccl_env.split,
        slots: net.slots,
        slot_bytes: net.slot_bytes,
        small_message_max: net
            .small_message_max
            .unwrap_or(usual.small_message_max)
            .min(net.slot_bytes),
        ack_timeout: nccl_env.ack_timeout.unwrap_or(usual.ack_timeout),
        retry_count: nccl_env.retry_count.unwrap_or(usual.retry_count),
        traffic_class: nccl_env.traffic_class.unwrap_or(usual.traffic_class),
        path_mtu: net.mtu,
        device,
        timeout: Duration::from_secs(options.timeout),
        job: job.fields(),
        steps,
        ..usual
    })
}

/// Returns the number of step records of all timed operations of a size with their barriers.
fn step_records(job: &Job, ranks: u32) -> usize {
    let of_one = 4 * u64::from(ranks);
    let all = job.iterations.saturating_mul(of_one).saturating_add(of_one);
    usize::try_from(all).unwrap_or(usize::MAX).min(MAX_STEP_RECORDS)
}

/// Adds the options of this command to an error.
fn explain(error: roce_collectives::Error) -> CliError {
    use roce_collectives::Error::{Refused, Verbs};
    match error {
        Refused { reason } => {
            let reason = job::name_option(&reason).unwrap_or(reason);
            CliError::new(format!("the ranks cannot form a group: {reason}"))
        }
        Verbs(roce_verbs::Error::Open(OpenError::NotPermitted { .. })) => {
            CliError::new(format!("{error}; or use --local, which needs no privileges"))
        }
        _ => error.into(),
    }
}

/// Files written at the end, created at the start so that errors come early.
struct Files {
    output: Option<File>,
    trace_json: Option<File>,
    /// The pipe to which packets go: its reader sees no end before the device has opened it, too.
    _pipe: Option<File>,
}

impl Files {
    fn create(options: &Options, assignment: &RankAssignment) -> Result<Self> {
        let create = |path: &Option<std::path::PathBuf>| match path {
            Some(path) if assignment.rank == 0 => {
                let file = File::create(path);
                let told = |error| CliError::context(format!("writing {}", path.display()), error);
                file.map(Some).map_err(told)
            }
            _ => Ok(None),
        };
        let capture = options.net.pcap.as_deref().filter(|_| assignment.rank == 0);
        // The device adds to it.
        let pipe = capture.map(capture_pipe::prepare).transpose()?.flatten();
        let (output, trace_json) = (create(&options.output_file)?, create(&options.trace_json)?);
        Ok(Self { output, trace_json, _pipe: pipe })
    }
}

/// The most events that a rank keeps for `--trace`.
const MAX_EVENTS: usize = 1 << 16;
const MAX_STEP_RECORDS: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_help_of_the_collectives_is_reviewed() {
        let mut command = crate::cli::Cli::command().term_width(100);
        command.build();
        let allreduce = command.find_subcommand_mut("allreduce").expect("the command exists");
        let help = allreduce.render_long_help().to_string();
        insta::assert_snapshot!("roce_allreduce", help);
    }
}
