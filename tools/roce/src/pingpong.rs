//! `roce pingpong`: what the pingpong programs of rdma-core do, for and against them.
//!
//! Options, printed lines and behaviour on the wire are those of `ibv_rc_pingpong`, and with
//! `--service` those of `ibv_uc_pingpong`, `ibv_ud_pingpong` and `ibv_srq_pingpong`, so that either
//! end of a run may be the one or the other. Both use one buffer for what they send and what they
//! receive, one completion queue, and post receives again when no more than one is left for each
//! queue pair. With `--cm` the ends find each other by connection management, as programs on
//! librdmacm do. With UC and UD a message that is lost ends the exchange: both ends wait for ever.

mod connection;
mod queue_pairs;
mod service;

use std::fmt;
use std::io::{self, Write};
use std::net::{Ipv6Addr, TcpListener};
use std::time::{Duration, Instant};

use clap::Args;
use roce_verbs::exchange::QpDest;
use roce_verbs::{
    AccessFlags, AckTimeout, Completion, CompletionChannel, CompletionQueue, ConnectOptions,
    Device, MemoryRegion, PathMtu, RecvWr, SendOperation, SendWr,
};

use crate::error::{CliError, Result};
use crate::link::{self, LinkDownLimit};
use crate::output::print;
use crate::status::succeeded;
use crate::traffic::{self, Traffic};
use crate::{local, parse_number};
use connection::Connection;
use queue_pairs::QueuePairs;
use service::PingPongService;

/// Bounce a message between two hosts; compatible with ibv_rc_pingpong and the like at the other end
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Server to connect to [default: run as the server]
    #[arg(conflicts_with = "local")]
    host: Option<String>,
    /// Service, the same at both ends
    #[arg(long, value_enum, default_value_t = PingPongService::Rc)]
    service: PingPongService,
    /// Queue pairs of service srq [default: 16]
    #[arg(short = 'q', long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    num_qp: Option<u32>,
    /// TCP port for exchanging addresses, or port of connection management
    #[arg(short, long, default_value_t = 18515, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Find the other end over RDMA, by connection management, at this port of the interface's address
    /// (give it at both ends; service rc only; the path MTU follows from the interfaces)
    #[arg(long)]
    cm: bool,
    /// Interface to use [default: the first that can carry RoCE]
    #[arg(short = 'd', long = "ib-dev", alias = "dev", value_name = "INTERFACE")]
    device: Option<String>,
    /// Port of the device; an interface has only port 1
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=1))]
    ib_port: u8,
    /// Bytes of a message [default: 4096; for ud 2048, at most the port's MTU]
    #[arg(short, long, value_name = "BYTES")]
    #[arg(value_parser = parse_number::parse_message_len)]
    size: Option<u32>,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096, the same at both ends (not ud)
    #[arg(short, long, value_name = "BYTES", default_value = "1024", value_parser = path_mtu)]
    mtu: PathMtu,
    /// Receives to post at a time
    #[arg(short, long, value_name = "N", default_value_t = 500)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    rx_depth: u32,
    /// Messages each way, of all queue pairs together
    #[arg(short = 'n', long = "iters", value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = parse_number::parse_u32)]
    iterations: u32,
    /// Service level; ignored by RoCE
    #[arg(short = 'l', long, value_name = "N", default_value_t = 0)]
    sl: u8,
    /// Sleep until a completion comes, instead of polling
    #[arg(short, long)]
    events: bool,
    /// Row of the GID table to use [default: the first IPv4 address, else IPv6]
    #[arg(short, long, value_name = "INDEX")]
    gid_idx: Option<u8>,
    /// Check the first byte of each received page (give it at both ends)
    #[arg(short = 'c', long = "chk")]
    check: bool,
    #[command(flatten)]
    missing: Missing,
    #[command(flatten)]
    traffic: Traffic,
}

/// Options of `ibv_rc_pingpong` that need hardware features; they fail as that program does on a
/// device without them.
#[derive(Args, Clone, Copy, Debug)]
struct Missing {
    #[arg(short, long, hide = true)]
    odp: bool,
    #[arg(short = 'O', long, hide = true)]
    iodp: bool,
    #[arg(short = 'P', long, hide = true)]
    prefetch: bool,
    #[arg(short, long, hide = true)]
    ts: bool,
    #[arg(short = 'j', long, hide = true)]
    dm: bool,
    /// Another way to post the same work; no effect here.
    #[arg(short = 'N', long = "new_send", hide = true)]
    _new_send: bool,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    options.missing.report_unsupported()?;
    if options.traffic.local && options.traffic.role.is_none() {
        return local::run(&options.traffic);
    }
    local::begin(options.traffic.role)?;
    options.traffic.on_device(options.device.as_deref(), |device| run_on(options, device))
}

fn run_on(options: &Options, device: &Device) -> Result {
    traffic::check_gid(device, options.gid_idx)?;
    let service = options.service;
    if options.num_qp.is_some() && service != PingPongService::Srq {
        return Err(CliError::new("-q needs --service srq: the others use one queue pair"));
    }
    if options.cm && service != PingPongService::Rc {
        return Err(CliError::new("--cm needs --service rc"));
    }
    if service != PingPongService::Ud && !options.cm {
        traffic::path_mtu(device, Some(options.mtu))?;
    }
    service.check_size(options.size(), device)?;
    QueuePairs::check_count(options.qps(), options.rx_depth)?;
    let mut end = End::new(options, device)?;
    let server = options
        .host
        .clone()
        .or_else(|| local::server_of(options.traffic.role, options.device.as_deref()));
    match options.cm {
        true => end.connect_by_address(server.as_deref(), device)?,
        false => end.exchange_dests(server.as_deref(), device)?,
    }
    end.run_rounds(device, server.is_some())?;
    let sound = server.is_some() || end.check_contents()?;
    io::stdout().flush()?;
    match &end.connection {
        // The client ends the connection once its last message is acknowledged.
        Some(connection) => connection.end(server.is_some())?,
        None if server.is_none() && service.is_reliable() => end.answer_retries(device)?,
        None => {}
    }
    local::linger(options.traffic.role);
    if sound { Ok(()) } else { Err(CliError::new("what was received is not what was sent")) }
}

/// The options that must be the same at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SharedOptions {
    size: u64,
    path_mtu: u64,
    iterations: u64,
}

impl From<&Options> for SharedOptions {
    fn from(options: &Options) -> Self {
        Self {
            size: options.size().into(),
            path_mtu: options.mtu.bytes() as u64,
            iterations: options.iterations.into(),
        }
    }
}

impl fmt::Display for SharedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-s {} -m {} -n {}", self.size, self.path_mtu, self.iterations)
    }
}

impl SharedOptions {
    /// Parses the text of another end; `None` if it has another format.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut number = |name| {
            let is_named = words.next() == Some(name);
            words.next().filter(|_| is_named).and_then(|word| word.parse().ok())
        };
        Some(Self { size: number("-s")?, path_mtu: number("-m")?, iterations: number("-n")? })
    }

    /// Returns an error that names each option with different values.
    fn check(self, other: Self) -> Result<(), String> {
        let options = [
            ("-s", self.size, other.size),
            ("-m", self.path_mtu, other.path_mtu),
            ("-n", self.iterations, other.iterations),
        ];
        let differences: Vec<String> = options
            .iter()
            .filter(|(_, own, other)| own != other)
            .map(|(name, own, other)| format!("{name} is {own} here and {other} at the other end"))
            .collect();
        match differences.is_empty() {
            true => Ok(()),
            false => Err(format!("{}; use the same value at both ends", differences.join(", "))),
        }
    }
}

/// One end of the test.
struct End<'a> {
    options: &'a Options,
    connect: ConnectOptions,
    region: MemoryRegion,
    channel: Option<CompletionChannel>,
    queue: CompletionQueue,
    qps: QueuePairs,
    /// With `--cm`.
    connection: Option<Connection>,
    score: Counts,
}

/// Counts of messages.
#[derive(Debug, Default)]
struct Counts {
    sent: u32,
    received: u32,
    /// Receives posted and not completed.
    posted: u32,
    /// Completions that the next message of each queue pair waits for: bits of [`RECEIVE`] and
    /// [`SEND`].
    pending: Vec<u64>,
}

impl Options {
    fn size(&self) -> u32 {
        self.size.unwrap_or(self.service.default_size())
    }

    fn qps(&self) -> u32 {
        self.num_qp.unwrap_or(if self.service == PingPongService::Srq { 16 } else { 1 })
    }
}

impl<'a> End<'a> {
    fn new(options: &'a Options, device: &Device) -> Result<Self> {
        let pd = device.alloc_pd()?;
        let len = options.size() as usize + options.service.header_len();
        let region = pd.register(len.max(1), AccessFlags::LOCAL_WRITE)?;
        region.write(0, &vec![FILLING; len])?;
        let channel = options.events.then(|| device.create_completion_channel()).transpose()?;
        let queue =
            device.create_cq((options.rx_depth + options.qps()) as usize, channel.as_ref())?;
        let connect = ConnectOptions {
            gid_index: options.gid_idx,
            path_mtu: Some(options.mtu),
            access: AccessFlags::empty(),
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            traffic_class: options.traffic.tclass,
            ..ConnectOptions::default()
        };
        let (service, count) = (options.service, options.qps() as usize);
        let qps = QueuePairs::new(service, count, options.rx_depth, pd, &queue, &connect)?;
        let score = Counts { pending: vec![0; count], ..Counts::default() };
        let connection = None;
        let mut end = Self { options, connect, region, channel, queue, qps, connection, score };
        end.post_receives(options.rx_depth)?;
        end.queue.arm(false);
        Ok(end)
    }

    /// Exchanges addresses with the peer and connects to it.
    fn exchange_dests(&mut self, host: Option<&str>, device: &Device) -> Result {
        let mine = self.qps.dests(self.options.gid_idx)?;
        let port = self.options.port;
        // Before printing the line below: its reader may start the client.
        let listener = host.is_none().then(|| listen(port)).transpose()?;
        for dest in &mine {
            print(&format!("  local address:  {}\n", in_words(dest)))?;
        }
        let own = SharedOptions::from(self.options);
        let text = own.to_string();
        let (theirs, other) = match (&listener, host) {
            (Some(listener), _) => {
                local::announce_ready(self.options.traffic.role);
                self.qps.exchange_as_server(listener, &mine, &text, &self.connect, device)?
            }
            (None, host) => {
                let host = host.unwrap_or_default();
                let (theirs, other) = self
                    .qps
                    .exchange_as_client((host, port), &mine, &text)
                    .map_err(|error| CliError::context(format!("{host}:{port}"), error))?;
                self.qps.connect(&theirs, &self.connect, device)?;
                (theirs, other)
            }
        };
        self.qps.check_peer(&theirs)?;
        for dest in theirs.iter().take(mine.len()) {
            print(&format!("  remote address: {}\n", in_words(dest)))?;
        }
        // Not sent by the programs of rdma-core.
        match other.as_deref().and_then(SharedOptions::parse) {
            Some(other) => own.check(other).map_err(CliError::new),
            None => Ok(()),
        }
    }

    /// Connects to the peer by connection management.
    fn connect_by_address(&mut self, host: Option<&str>, device: &Device) -> Result {
        let Options { gid_idx, port, .. } = *self.options;
        let own = SharedOptions { path_mtu: 0, ..SharedOptions::from(self.options) };
        let (qp, text) = (self.qps.first(), own.to_string());
        let connection = match host {
            Some(host) => Connection::connect(device, gid_idx, (host, port), qp, &text)?,
            None => Connection::accept(device, gid_idx, port, qp, &text, |address| {
                print(&format!("  listening on {address}\n"))?;
                local::announce_ready(self.options.traffic.role);
                Ok(())
            })?,
        };
        let [mine, theirs] = connection.ends(qp)?;
        print(&format!("  local address:  {}\n", in_words(&mine)))?;
        print(&format!("  remote address: {}\n", in_words(&theirs)))?;
        // Other programs send something else.
        if let Some(other) = SharedOptions::parse(&connection.private_data) {
            own.check(other).map_err(CliError::new)?;
        }
        self.connection = Some(connection);
        Ok(())
    }

    fn run_rounds(&mut self, device: &Device, first: bool) -> Result {
        self.score.pending.fill(RECEIVE);
        if first {
            if self.options.check {
                self.pages().try_for_each(|page| self.region.store_u8(page, MARK))?;
            }
            (0..self.qps.len()).try_for_each(|index| self.post_send(index))?;
        }
        let start = Instant::now();
        let mut completions = Vec::with_capacity(2);
        let mut patience = LinkDownLimit::new(self.retries());
        let mut polls = 0_u32;
        while self.score.received < self.options.iterations
            || self.score.sent < self.options.iterations
        {
            if let Some(channel) = &self.channel {
                channel.wait(Some(link::CHECK_INTERVAL))?;
                patience.look(device)?;
                self.check_connection()?;
                self.queue.arm(false);
            }
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS_PER_CHECK) {
                patience.look(device)?;
                self.check_connection()?;
            }
            // After an event, poll all completions: a second one has no event.
            while self.queue.poll(&mut completions, 2) > 0 {
                for completion in completions.drain(..) {
                    self.take(&completion)?;
                }
            }
        }
        self.print_result(start.elapsed())?;
        Ok(())
    }

    /// Fails if the peer has ended the connection before the last message, after which the client does.
    fn check_connection(&self) -> Result {
        match &self.connection {
            Some(connection) if self.score.received < self.options.iterations => connection.check(),
            _ => Ok(()),
        }
    }

    fn take(&mut self, completion: &Completion) -> Result {
        succeeded(completion)?;
        let index = self.qps.position(completion.qpn);
        let index = index.ok_or_else(|| CliError::new("a completion of another queue pair"))?;
        if completion.wr_id == SEND {
            self.score.sent += 1;
        } else {
            self.score.received += 1;
            self.score.posted -= 1;
            if self.score.posted <= self.qps.len() as u32 {
                self.post_receives(self.options.rx_depth - self.score.posted)?;
            }
        }
        self.score.pending[index] &= !completion.wr_id;
        if self.score.sent < self.options.iterations && self.score.pending[index] == 0 {
            self.post_send(index)?;
        }
        Ok(())
    }

    fn post_receives(&mut self, count: u32) -> Result {
        let len = self.options.service.header_len() + self.options.size() as usize;
        let work = RecvWr::new(RECEIVE, [self.region.sge(..len)?]);
        self.qps.post_recv((0..count).map(|_| work.clone()))?;
        self.score.posted += count;
        Ok(())
    }

    /// Sends a message on a queue pair, whose next one waits for this and for the peer's.
    fn post_send(&mut self, index: usize) -> Result {
        let start = self.options.service.header_len();
        let buffer = self.region.sge(start..start + self.options.size() as usize)?;
        self.score.pending[index] = RECEIVE | SEND;
        let work = SendWr::new(SEND, SendOperation::send(), [buffer]);
        self.qps.post_send(index, work.signaled())
    }

    /// Returns the time for which an unacknowledged message is retried.
    fn retries(&self) -> Duration {
        let timeout = AckTimeout::new(self.connect.timeout).and_then(AckTimeout::duration);
        timeout.unwrap_or(Duration::MAX).saturating_mul(u32::from(self.connect.retry_count) + 1)
    }

    /// Acknowledges retries of the client until there are none for some ACK timeouts: the client's
    /// last message has arrived, but its ACK may have been lost, and only this end can repeat it.
    fn answer_retries(&self, device: &Device) -> Result {
        let timeout = AckTimeout::new(self.connect.timeout).and_then(AckTimeout::duration);
        let Some(timeout) = timeout else { return Ok(()) };
        let mut heard = device.counter("rcvd_pkts")?;
        let mut quiet = 0;
        while quiet < 3 {
            std::thread::sleep(timeout);
            let now = device.counter("rcvd_pkts")?;
            quiet = if now == heard { quiet + 1 } else { 0 };
            heard = now;
        }
        Ok(())
    }

    fn print_result(&self, elapsed: Duration) -> Result {
        let (seconds, iterations) = (elapsed.as_secs_f64(), self.options.iterations);
        let bytes = u64::from(self.options.size()) * u64::from(iterations) * 2;
        let micros = seconds * 1e6;
        let rate = bytes as f64 * 8.0 / micros;
        print(&format!("{bytes} bytes in {seconds:.2} seconds = {rate:.2} Mbit/sec\n"))?;
        let each = micros / f64::from(iterations.max(1));
        print(&format!("{iterations} iters in {seconds:.2} seconds = {each:.2} usec/iter\n"))
    }

    /// Checks the first byte of each page, which the client has set.
    fn check_contents(&self) -> Result<bool> {
        let mut sound = true;
        for page in self.pages().filter(|_| self.options.check) {
            if self.region.load_u8(page)? != MARK {
                print(&format!("invalid data in page {}\n", page / PAGE))?;
                sound = false;
            }
        }
        Ok(sound)
    }

    fn pages(&self) -> impl Iterator<Item = usize> + use<> {
        let start = self.options.service.header_len();
        (start..start + self.options.size() as usize).step_by(PAGE)
    }
}

impl Missing {
    fn report_unsupported(self) -> Result {
        let missing = if self.odp || self.iodp {
            "the device isn't ODP capable or does not support RC send and receive with ODP"
        } else if self.prefetch {
            "prefetch is valid only with on-demand memory region"
        } else if self.dm {
            "device doesn't support dm allocation"
        } else if self.ts {
            "the device isn't completion timestamp capable"
        } else {
            return Ok(());
        };
        Err(CliError::new(missing))
    }
}

/// Listens on all addresses, IPv6 and IPv4 if the system has both.
pub(crate) fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind(("0.0.0.0", port)))
        .map_err(|error| {
            let hint = if error.kind() == io::ErrorKind::AddrInUse {
                "; another server may be running: stop it, or choose another port with -p"
            } else {
                ""
            };
            CliError::new(format!("cannot listen on TCP port {port}: {error}{hint}"))
        })
}

fn in_words(end: &QpDest) -> String {
    let gid = Ipv6Addr::from(end.gid.0);
    format!("LID 0x0000, QPN 0x{:06x}, PSN 0x{:06x}, GID {gid}", end.qpn.get(), end.psn.get())
}

/// Parses a path MTU given in bytes.
pub(crate) fn path_mtu(text: &str) -> Result<PathMtu, String> {
    let bytes = usize::try_from(parse_number::parse(text)?).ok();
    bytes
        .and_then(PathMtu::from_bytes)
        .ok_or_else(|| "a path MTU is 256, 512, 1024, 2048 or 4096".to_owned())
}

/// Ids of work requests, as bits, so that both can be pending.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// The initial bytes of the buffer.
const FILLING: u8 = 0x7b;
/// The first byte of each page of the client if the data is checked.
const MARK: u8 = 0;
const PAGE: usize = 4096;
/// Empty polls between two checks of the clock and the link.
const POLLS_PER_CHECK: u32 = 1024;

#[cfg(test)]
mod tests {
    use roce_verbs::{Gid, Psn, Qpn};

    use super::*;

    #[test]
    fn an_end_is_printed_as_ibv_rc_pingpong_prints_it() {
        let end = QpDest {
            qpn: Qpn::new(0x11).unwrap(),
            psn: Psn::new(0xabcdef).unwrap(),
            gid: Gid::from(std::net::IpAddr::from([10, 0, 0, 1])),
        };
        let line = "LID 0x0000, QPN 0x000011, PSN 0xabcdef, GID ::ffff:10.0.0.1";
        assert_eq!(in_words(&end), line);
    }

    #[test]
    fn options_that_differ_are_named_with_both_values() {
        let own = SharedOptions { size: 4096, path_mtu: 1024, iterations: 1000 };
        assert_eq!(SharedOptions::parse(&own.to_string()), Some(own));
        assert_eq!(SharedOptions::parse("-m 1024"), None);
        assert_eq!(own.check(own), Ok(()));
        let other = SharedOptions { path_mtu: 512, iterations: 10, ..own };
        assert_eq!(
            own.check(other),
            Err("-m is 1024 here and 512 at the other end, -n is 1000 here and 10 at the other end; \
                 use the same value at both ends"
                .to_owned())
        );
    }
}
