//! `roce perf`: bandwidth and latency as perftest measures and prints them.

mod bandwidth;
mod compare;
mod control;
mod fairness;
mod latency;
mod loss;
mod params;
mod report;
mod resources;
mod sender;
mod statistics;
mod work_request;
mod working_set;

use clap::Args;
use roce_verbs::{Device, PathMtu};

use crate::error::{CliError, Result};
use crate::output::print;
use crate::pingpong::path_mtu;
use crate::traffic::{self, Traffic};
use crate::{local, parse_number, pingpong};
use control::{ControlChannel, PeerInfo};
use params::{
    AtomicKind, Connection, MAX_BUFFER_BYTES, MAX_RATE, MAX_REQUESTS, MIN_RATE, Params, Test, Verb,
};
use report::SizeResult;
use resources::{LocalOptions, Resources};

/// Measure bandwidth or latency of an operation, as perftest (ib_write_bw etc.) does
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Options {
    /// Operation
    #[arg(value_enum)]
    verb: Verb,
    /// Measurement
    #[arg(value_enum)]
    test: Test,
    /// Server to connect to [default: run as the server, with the client's settings]
    #[arg(conflicts_with = "local")]
    host: Option<String>,
    /// Bytes of a message [default: 65536 for bw, 2 for lat; atomics have 8]
    ///
    /// A datagram has at most a path MTU, which is the default of bw with -c UD.
    #[arg(short, long, value_name = "BYTES")]
    #[arg(value_parser = parse_number::parse_message_len)]
    size: Option<u32>,
    /// Run all sizes from 2 to 8 MiB, of datagrams to the path MTU
    #[arg(short, long, conflicts_with = "size")]
    all: bool,
    /// Messages of each size [default: 1000, for write bw 5000]
    #[arg(short = 'n', long = "iters", value_name = "N", value_parser = parse_number::parse)]
    iterations: Option<u64>,
    /// Run for a number of seconds instead
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iterations")]
    duration: Option<f64>,
    /// Seconds to leave out at both ends of a duration [default: 2, at most a quarter]
    #[arg(short = 'f', long, value_name = "SECONDS", requires = "duration")]
    margin: Option<f64>,
    /// Outstanding messages of each queue pair [default: 128; with many, 4096 in all]
    #[arg(short, long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16384))]
    tx_depth: Option<u32>,
    /// Posted receives of each queue pair [default: 512; with many, 16384 in all]
    #[arg(short, long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16384))]
    rx_depth: Option<u32>,
    /// Queue pairs of a bandwidth test
    #[arg(short, long = "qp", value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    qps: u32,
    /// Service of the queue pairs: UC has send and write, UD has send
    ///
    /// The rows of UC and UD name the messages that were lost, most of them at the receiver: its
    /// receive ring was full, or it had no receive posted (-r). In a latency test these are the round
    /// trips without a response within half a second.
    #[arg(short, long, value_enum, hide_possible_values = true, default_value = "RC")]
    #[arg(value_name = "RC|UC|UD")]
    connection: Connection,
    /// Static rate of each queue pair of UC or UD in Gbit/s, packets from BTH to ICRC
    #[arg(long, value_name = "GBITS")]
    rate: Option<f64>,
    /// Path MTU in bytes [default: the largest that both ends carry]
    #[arg(short, long, value_name = "BYTES", value_parser = path_mtu)]
    mtu: Option<PathMtu>,
    /// Messages per completion [default: 100 up to 8 KiB, else 1]
    #[arg(short = 'Q', long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    cq_mod: Option<u32>,
    /// Requests to post with each call [default: 1]
    ///
    /// Each call posts a list of N requests, as in ib_write_bw -l. The default of 1 is perftest's,
    /// and what most programs do. A longer list requires bw, must fit into the TX depth, divide the
    /// number of messages, and be a multiple of -Q, whose default it becomes.
    #[arg(short = 'l', long = "post_list", alias = "post-list", value_name = "N")]
    #[arg(default_value_t = 1, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16384))]
    post_list: u32,
    /// Outstanding READs or atomics
    #[arg(short, long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=128))]
    outs: u8,
    /// Atomic operation
    #[arg(short = 'A', long, value_enum, default_value_t = AtomicKind::FetchAndAdd)]
    atomic_type: AtomicKind,
    /// Largest inline message in bytes
    #[arg(short = 'I', long = "inline_size", alias = "inline-size", value_name = "BYTES")]
    #[arg(default_value_t = 0, value_parser = parse_number::parse_u32)]
    inline: u32,
    /// Bytes of the buffer that consecutive messages cycle through (bw)
    #[arg(long, value_name = "BYTES", value_parser = parse_number::parse)]
    working_set: Option<u64>,
    /// Use huge pages for this end's memory
    #[arg(long)]
    huge_pages: bool,
    /// Sleep until completions come instead of polling (this end)
    #[arg(short, long)]
    events: bool,
    /// ACK timeout: 4.096 us * 2^N
    #[arg(short = 'u', long, value_name = "N", default_value_t = 14)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=31))]
    qp_timeout: u8,
    /// Row of the GID table to use [default: the first IPv4 address, else IPv6]
    #[arg(short = 'x', long, value_name = "INDEX")]
    gid_index: Option<u8>,
    /// TCP port for exchanging addresses
    #[arg(short, long, default_value_t = 18515, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Interface to use [default: the first that can carry RoCE]
    #[arg(short = 'd', long = "ib-dev", alias = "dev", value_name = "INTERFACE")]
    device: Option<String>,
    /// Report Gb/sec (10^9 bits) instead of MiB/sec (2^20 bytes)
    #[arg(long = "report_gbits", alias = "report-gbits")]
    gbits: bool,
    /// Print the result as JSON, with perftest's names
    #[arg(long, overrides_with = "json")]
    json: bool,
    /// Also measure TCP (iperf3, with bbr and with cubic) in the same private network
    #[arg(long, requires = "local", conflicts_with = "host")]
    compare: bool,
    /// Accepted for compatibility
    #[arg(short = 'F', hide = true)]
    _cpu_frequency: bool,
    #[command(flatten)]
    traffic: Traffic,
}

const NOTES: &str = "\
Latencies are half round trips for send and write, whole ones for read and atomic. As in
perftest, the two slowest of a run are left out. Bandwidth tests of send, write and read compare
received with sent data at the end of each size, unless messages were lost. Start the server with
the same operation and measurement; the client sends it the other settings. With --local,
--cpu 0,1 runs the client on CPU 0 and the server on CPU 1; -e --spin 0 shows the cost of waking
up.";

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    if options.traffic.local && options.traffic.role.is_none() {
        if options.compare {
            return compare::run(options);
        }
        return local::run(&options.traffic);
    }
    local::begin(options.traffic.role)?;
    let host = options.host.clone().or_else(|| local::server_of(options.traffic.role));
    options.traffic.on_device(options.device.as_deref(), |device| match host {
        Some(host) => run_client(options, device, &host),
        None => run_server(options, device),
    })
}

fn run_client(options: &Options, device: &Device, host: &str) -> Result {
    let mtu = traffic::path_mtu(device, options.mtu)?;
    let mut params = options.params(mtu)?;
    traffic::check_gid(device, options.gid_index)?;
    let mut control = ControlChannel::connect(host, options.port, &params, mtu)?;
    params.path_mtu = Some(control.agreed_mtu().bytes());
    check_datagrams(&params, control.agreed_mtu())?;
    let mut end = Resources::new(device, &params, options.local_options())?;
    control.fail_after(params.retries())?;
    let mut report = report::Report::new(options.into(), &params, &end, true)?;
    let mut theirs = control.exchange_info(&end.peer_info(options.gid_index)?)?;
    report.peer_info(&end.peer_info(options.gid_index)?, &theirs)?;
    end.connect(&theirs, &params, options.gid_index)?;
    control.synchronize()?;
    for (number, size) in params.sizes.clone().into_iter().enumerate() {
        if number > 0 && params.connection.is_unreliable() {
            theirs = reconnect(&mut end, &params, options.gid_index, &mut control)?;
        }
        if params.test == Test::Lat {
            end.prepare(&params, size)?;
        }
        end.prepare_data(&params, size, true)?;
        control.synchronize()?;
        let result = match params.test {
            Test::Bw => bandwidth::initiate(&end, &theirs, &params, size, &mut control)?,
            Test::Lat => latency::initiate(&end, &theirs, &params, size, &mut control)?,
        };
        control.send(&result)?;
        end.verify_data(&params, size, true, &result)?;
        report.result(result)?;
    }
    report.finish()?;
    control.synchronize()
}

fn run_server(options: &Options, device: &Device) -> Result {
    // Before the client starts: in a private network, one end alone reports the error.
    let mtu = traffic::path_mtu(device, options.mtu)?;
    traffic::check_gid(device, options.gid_index)?;
    let listener = pingpong::listen(options.port)?;
    if !options.json && options.traffic.role.is_none() {
        print("\n************************************\n")?;
        print("* Waiting for client to connect... *\n")?;
        print("************************************\n")?;
    }
    local::announce_ready(options.traffic.role);
    let (mut control, mut params) =
        ControlChannel::accept(&listener, options.verb, options.test, mtu)?;
    params.path_mtu = Some(control.agreed_mtu().bytes());
    let mut end = Resources::new(device, &params, options.local_options())?;
    control.fail_after(params.retries())?;
    let mut report = report::Report::new(options.into(), &params, &end, false)?;
    let mut theirs = control.exchange_info(&end.peer_info(options.gid_index)?)?;
    report.peer_info(&end.peer_info(options.gid_index)?, &theirs)?;
    end.connect(&theirs, &params, options.gid_index)?;
    control.synchronize()?;
    for (number, size) in params.sizes.clone().into_iter().enumerate() {
        if number > 0 && params.connection.is_unreliable() {
            theirs = reconnect(&mut end, &params, options.gid_index, &mut control)?;
        }
        end.prepare(&params, size)?;
        end.prepare_data(&params, size, false)?;
        let uc_messages = end.uc_messages()?;
        control.synchronize()?;
        match params.test {
            Test::Bw => bandwidth::serve(&end, &params, size, uc_messages, &mut control)?,
            Test::Lat => latency::serve(&end, &theirs, &params, size, &mut control)?,
        }
        let result: SizeResult = control.receive()?;
        end.verify_data(&params, size, false, &result)?;
        report.result(result)?;
    }
    report.finish()?;
    control.synchronize()
}

/// Connects the queue pairs anew: messages may have been lost, and their receives are still posted.
fn reconnect(
    end: &mut Resources,
    params: &Params,
    gid_index: Option<u8>,
    control: &mut ControlChannel,
) -> Result<PeerInfo> {
    end.reset()?;
    let theirs = control.exchange_info(&end.peer_info(gid_index)?)?;
    end.connect(&theirs, params, gid_index)?;
    control.synchronize()?;
    Ok(theirs)
}

/// Checks that each message fits into a datagram, if the test sends datagrams.
fn check_datagrams(params: &Params, mtu: PathMtu) -> Result {
    let (size, mtu) = (params.longest(), mtu.bytes());
    if params.connection == Connection::Ud && size as usize > mtu {
        return Err(CliError::new(format!(
            "a datagram of {size} bytes is longer than the path MTU of {mtu}: lower -s or raise the \
             MTU of both interfaces"
        )));
    }
    Ok(())
}

impl Options {
    fn params(&self, mtu: PathMtu) -> Result<Params> {
        let connection = self.connection;
        if !connection.has(self.verb) {
            return Err(CliError::new(match connection {
                Connection::Ud => "UD has SENDs only: use `perf send`, or -c RC",
                _ => "UC has no READs and atomics: use `perf send` or `perf write`, or -c RC",
            }));
        }
        if let Some(rate) = self.rate {
            if !connection.is_unreliable() {
                return Err(CliError::new("--rate needs -c UC or -c UD: RC has no static rate"));
            }
            if !(MIN_RATE..=MAX_RATE).contains(&rate) {
                return Err(CliError::new(format!(
                    "--rate must be {MIN_RATE} to {MAX_RATE} Gbit/s"
                )));
            }
        }
        let most = if connection == Connection::Ud { mtu.bytes() as u32 } else { u32::MAX };
        let sizes = match (self.verb, self.all, self.size) {
            (Verb::Atomic, false, None | Some(8)) => vec![8],
            (Verb::Atomic, ..) => {
                return Err(CliError::new("atomics have 8 bytes: leave out -s and -a"));
            }
            (_, true, _) => (1..=23).map(|power| 1 << power).filter(|size| *size <= most).collect(),
            (_, false, Some(size)) => vec![size],
            (_, false, None) => vec![if self.test == Test::Bw { most.min(65536) } else { 2 }],
        };
        if self.test == Test::Lat && self.verb == Verb::Write && sizes.contains(&0) {
            return Err(CliError::new(
                "a write of 0 bytes has no last byte to poll: use -s 1 or more",
            ));
        }
        if self.duration.is_some() && self.all {
            return Err(CliError::new("-D needs one size: leave out -a"));
        }
        if self.duration.is_some_and(|seconds| !(0.01..=86_400.0).contains(&seconds)) {
            return Err(CliError::new("-D must be 0.01 to 86400 seconds"));
        }
        let usual = if (self.verb, self.test) == (Verb::Write, Test::Bw) { 5000 } else { 1000 };
        let iterations = self.iterations.unwrap_or(usual);
        if iterations < MIN_ITERATIONS {
            return Err(CliError::new(format!(
                "-n must be {MIN_ITERATIONS} or more: the two slowest are left out"
            )));
        }
        if self.test == Test::Lat && self.qps > 1 {
            return Err(CliError::new("-q needs bw: lat uses one queue pair"));
        }
        if self.test == Test::Lat && self.working_set.is_some() {
            return Err(CliError::new("--working-set needs bw: lat uses one buffer"));
        }
        if self.events && (self.verb, self.test) == (Verb::Write, Test::Lat) {
            return Err(CliError::new(
                "the target of a write gets no event: leave out -e, or use send lat",
            ));
        }
        let cq_mod = self.cq_mod.or((self.post_list > 1).then_some(self.post_list));
        let longest = self.duration.unwrap_or(0.0) / 4.0;
        let qps = if self.test == Test::Bw { self.qps } else { 1 };
        let params = Params {
            verb: self.verb,
            test: self.test,
            connection,
            rate: self.rate,
            sizes,
            iterations,
            duration: self.duration,
            margin: self.margin.unwrap_or(DEFAULT_MARGIN).clamp(0.0, longest),
            tx_depth: self.tx_depth.unwrap_or((DEFAULT_TOTAL_SENDS / qps).clamp(4, 128)),
            rx_depth: self.rx_depth.unwrap_or((4 * DEFAULT_TOTAL_SENDS / qps).clamp(16, 512)),
            qps,
            path_mtu: self.mtu.map(PathMtu::bytes),
            cq_mod,
            post_list: self.post_list,
            outs: self.outs,
            atomic: self.atomic_type,
            inline: self.inline,
            qp_timeout: self.qp_timeout,
            working_set: self.working_set,
            traffic_class: self.traffic.tclass,
        };
        if let Some(why) = params.list_error() {
            return Err(CliError::new(why));
        }
        if params.requests() > MAX_REQUESTS {
            return Err(CliError::new(format!(
                "{qps} queue pairs of depths {} and {} exceed {MAX_REQUESTS} requests in total: \
                 lower -t, -r or -q",
                params.tx_depth, params.rx_depth
            )));
        }
        if params.room() > MAX_BUFFER_BYTES {
            return Err(CliError::new("--working-set must be 2G or less"));
        }
        Ok(params)
    }

    fn local_options(&self) -> LocalOptions {
        let Self { gid_index, events, huge_pages, .. } = *self;
        LocalOptions { gid_index, events, huge_pages }
    }
}

/// The minimum of perftest.
const MIN_ITERATIONS: u64 = 5;
/// Default of outstanding messages of all queue pairs together, so that memory does not grow with
/// the number of queue pairs.
const DEFAULT_TOTAL_SENDS: u32 = 4096;
/// Default margin in seconds.
const DEFAULT_MARGIN: f64 = 2.0;
