//! The options of `roce perf`.

use clap::Args;
use roce_verbs::PathMtu;

use super::params::{
    AtomicKind, Connection, MAX_BUFFER_BYTES, MAX_RATE, MAX_REQUESTS, MIN_RATE, Params, Test, Verb,
};
use super::perftest_options::PerftestOptions;
use super::resources::LocalOptions;
use crate::error::{CliError, Result};
use crate::parse_number;
use crate::pingpong::path_mtu;
use crate::traffic::Traffic;

/// Measure bandwidth or latency of an operation, as perftest (ib_write_bw etc.) does
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Options {
    /// Operation
    #[arg(value_enum)]
    pub(super) verb: Verb,
    /// Measurement
    #[arg(value_enum)]
    pub(super) test: Test,
    /// Server to connect to [default: run as the server, with the client's settings]
    #[arg(conflicts_with = "local")]
    pub(super) host: Option<String>,
    /// Bytes of a message [default: 65536 for bw, 2 for lat; atomics have 8]
    ///
    /// A datagram has at most a path MTU, which is the default of bw with -c UD.
    #[arg(short, long, value_name = "BYTES")]
    #[arg(value_parser = parse_number::parse_message_len)]
    pub(super) size: Option<u32>,
    /// Run all sizes from 2 to 8 MiB, of datagrams to the path MTU
    #[arg(short, long, conflicts_with = "size")]
    pub(super) all: bool,
    /// Messages of each size [default: 1000, for write bw 5000]
    #[arg(short = 'n', long = "iters", value_name = "N", value_parser = parse_number::parse)]
    pub(super) iterations: Option<u64>,
    /// Run for a number of seconds instead
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iterations")]
    pub(super) duration: Option<f64>,
    /// Seconds to leave out at both ends of a duration [default: 2, at most a quarter]
    #[arg(short = 'f', long, value_name = "SECONDS", requires = "duration")]
    pub(super) margin: Option<f64>,
    /// Outstanding messages of each queue pair [default: 128; with many, 4096 in all]
    #[arg(short, long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(super) tx_depth: Option<u32>,
    /// Posted receives of each queue pair [default: 512; with many, 16384 in all]
    #[arg(short, long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(super) rx_depth: Option<u32>,
    /// Queue pairs of a bandwidth test
    #[arg(short, long = "qp", value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) qps: u32,
    /// Service of the queue pairs: UC has send and write, UD has send
    ///
    /// The rows of UC and UD name the messages that were lost, most of them at the receiver: its
    /// receive ring was full, or it had no receive posted (-r). In a latency test these are the round
    /// trips without a response within half a second.
    #[arg(short, long, value_enum, hide_possible_values = true, default_value = "RC")]
    #[arg(value_name = "RC|UC|UD")]
    pub(super) connection: Connection,
    /// Static rate of each queue pair of UC or UD in Gbit/s, packets from BTH to ICRC
    #[arg(long, value_name = "GBITS")]
    pub(super) rate: Option<f64>,
    /// Path MTU in bytes [default: the largest that both ends carry]
    #[arg(short, long, value_name = "BYTES", value_parser = path_mtu)]
    pub(super) mtu: Option<PathMtu>,
    /// Messages per completion [default: 100 up to 8 KiB, else 1]
    #[arg(short = 'Q', long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) cq_mod: Option<u32>,
    /// Requests to post with each call [default: 1]
    ///
    /// Each call posts a list of N requests, as in ib_write_bw -l. The default of 1 is perftest's,
    /// and what most programs do. A longer list requires bw, must fit into the TX depth, divide the
    /// number of messages, and be a multiple of -Q, whose default it becomes.
    #[arg(short = 'l', long = "post_list", alias = "post-list", value_name = "N")]
    #[arg(default_value_t = 1, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(super) post_list: u32,
    /// Outstanding READs or atomics
    #[arg(short, long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=128))]
    pub(super) outs: u8,
    /// Atomic operation
    #[arg(short = 'A', long, value_enum, default_value_t = AtomicKind::FetchAndAdd)]
    pub(super) atomic_type: AtomicKind,
    /// Largest inline message in bytes
    #[arg(short = 'I', long = "inline_size", alias = "inline-size", value_name = "BYTES")]
    #[arg(default_value_t = 0, value_parser = parse_number::parse_u32)]
    pub(super) inline: u32,
    /// Bytes of the buffer that consecutive messages cycle through (bw)
    #[arg(long, value_name = "BYTES", value_parser = parse_number::parse)]
    pub(super) working_set: Option<u64>,
    /// Use huge pages for this end's memory
    #[arg(long)]
    pub(super) huge_pages: bool,
    /// Sleep until completions come instead of polling (this end)
    #[arg(short, long)]
    pub(super) events: bool,
    /// ACK timeout: 4.096 us * 2^N
    #[arg(short = 'u', long, value_name = "N", default_value_t = 14)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=31))]
    pub(super) qp_timeout: u8,
    /// Row of the GID table to use [default: the first IPv4 address, else IPv6]
    #[arg(short = 'x', long, value_name = "INDEX")]
    pub(super) gid_index: Option<u8>,
    /// TCP port for exchanging addresses
    #[arg(short, long, default_value_t = 18515, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) port: u16,
    /// Interface to use [default: the first that can carry RoCE]
    #[arg(short = 'd', long = "ib-dev", alias = "dev", value_name = "INTERFACE")]
    pub(super) device: Option<String>,
    /// Report Gb/sec (10^9 bits) instead of MiB/sec (2^20 bytes)
    #[arg(long = "report_gbits", alias = "report-gbits")]
    pub(super) gbits: bool,
    /// Print the result as JSON, with perftest's names
    #[arg(long, alias = "out_json", overrides_with = "json")]
    pub(super) json: bool,
    /// Also measure TCP (iperf3, with bbr and with cubic) in the same private network
    #[arg(long, requires = "local", conflicts_with = "host")]
    pub(super) compare: bool,
    #[command(flatten)]
    pub(super) perftest: Box<PerftestOptions>,
    #[command(flatten)]
    pub(super) traffic: Traffic,
}

const NOTES: &str = "\
Latencies are half round trips for send and write, whole ones for read and atomic. As in
perftest, the two slowest of a run are left out. Bandwidth tests of send, write and read compare
received with sent data at the end of each size, unless messages were lost. Start the server with
the same operation and measurement; the client sends it the other settings. With --local,
--cpu 0,1 runs the client on CPU 0 and the server on CPU 1; -e --spin 0 shows the cost of waking
up.";

impl Options {
    pub(super) fn params(&self, mtu: PathMtu) -> Result<Params> {
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

    pub(super) fn local_options(&self) -> LocalOptions {
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
