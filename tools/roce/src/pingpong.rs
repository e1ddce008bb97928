//! `roce pingpong`: what `ibv_rc_pingpong` does, for and against it.
//!
//! Options, printed lines and behaviour on the wire are those of the program in rdma-core,
//! so that either end of a run may be the one or the other. Both use one buffer for what
//! they send and what they receive, one completion queue, and post receives again when no
//! more than one is left.

use std::fmt;
use std::io::{self, Write};
use std::net::{Ipv6Addr, TcpListener};
use std::time::{Duration, Instant};

use clap::Args;
use roce_verbs::exchange::{self, QpDest};
use roce_verbs::{
    AccessFlags, AckTimeout, Completion, CompletionChannel, CompletionQueue, ConnectOptions,
    Device, MemoryRegion, PathMtu, QueuePair, RecvWr, SendOperation, SendWr, WrData,
};

use crate::error::{CliError, Result};
use crate::link::{self, LinkDownLimit};
use crate::output::print;
use crate::status::succeeded;
use crate::traffic::{self, Traffic};
use crate::{local, parse_number};

/// Bounce a message between two hosts; compatible with ibv_rc_pingpong at the other end
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Server to connect to [default: run as the server]
    #[arg(conflicts_with = "local")]
    host: Option<String>,
    /// TCP port for exchanging addresses
    #[arg(short, long, default_value_t = 18515, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Interface to use [default: the first that can carry RoCE]
    #[arg(short = 'd', long = "ib-dev", alias = "dev", value_name = "INTERFACE")]
    device: Option<String>,
    /// Port of the device; an interface has only port 1
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=1))]
    ib_port: u8,
    /// Bytes of a message
    #[arg(short, long, value_name = "BYTES", default_value_t = 4096)]
    #[arg(value_parser = parse_number::parse_message_len)]
    size: u32,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096, the same at both ends
    #[arg(short, long, value_name = "BYTES", default_value = "1024", value_parser = path_mtu)]
    mtu: PathMtu,
    /// Receives to post at a time
    #[arg(short, long, value_name = "N", default_value_t = 500)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    rx_depth: u32,
    /// Messages each way
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
    traffic::path_mtu(device, Some(options.mtu))?;
    traffic::check_gid(device, options.gid_idx)?;
    let mut end = End::new(options, device)?;
    let server = options.host.clone().or_else(|| local::server_of(options.traffic.role));
    end.exchange_dest(server.as_deref())?;
    end.run_rounds(device, server.is_some())?;
    let sound = server.is_some() || end.check_contents()?;
    io::stdout().flush()?;
    if server.is_none() {
        end.answer_retries(device)?;
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
            size: options.size.into(),
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
    qp: QueuePair,
    score: Counts,
}

/// Counts of messages.
#[derive(Debug, Default)]
struct Counts {
    sent: u32,
    received: u32,
    /// Receives posted and not completed.
    posted: u32,
    /// Completions that the next message waits for: bits of [`RECEIVE`] and [`SEND`].
    pending: u64,
}

impl<'a> End<'a> {
    fn new(options: &'a Options, device: &Device) -> Result<Self> {
        let pd = device.alloc_pd()?;
        let region = pd.register(options.size.max(1) as usize, AccessFlags::LOCAL_WRITE)?;
        region.write(0, &vec![FILLING; options.size as usize])?;
        let channel = options.events.then(|| device.create_completion_channel()).transpose()?;
        let queue = device.create_cq(options.rx_depth as usize + 1, channel.as_ref())?;
        let qp = pd
            .queue_pair(&queue, &queue)
            .max_send_wr(1)
            .max_recv_wr(options.rx_depth)
            .max_send_sge(1)
            .max_recv_sge(1)
            .build()?;
        let connect = ConnectOptions {
            gid_index: options.gid_idx,
            path_mtu: Some(options.mtu),
            access: AccessFlags::empty(),
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            ..ConnectOptions::default()
        };
        qp.init(&connect)?;
        let mut end =
            Self { options, connect, region, channel, queue, qp, score: Counts::default() };
        end.post_receives(options.rx_depth)?;
        end.queue.arm(false);
        Ok(end)
    }

    /// Exchanges addresses with the peer and connects to it.
    fn exchange_dest(&mut self, host: Option<&str>) -> Result {
        let mine = self.qp.dest(self.options.gid_idx)?;
        let port = self.options.port;
        // Before printing the line below: its reader may start the client.
        let listener = host.is_none().then(|| listen(port)).transpose()?;
        print(&format!("  local address:  {}\n", in_words(&mine)))?;
        let connect = |theirs: &QpDest| self.qp.connect_from_init(theirs, &self.connect);
        let own = SharedOptions::from(self.options);
        let (theirs, other) = match (&listener, host) {
            (Some(listener), _) => {
                local::announce_ready(self.options.traffic.role);
                let prepare = |theirs: &QpDest| connect(theirs).map(|()| mine);
                exchange::accept_with(listener, &own.to_string(), prepare)?
            }
            (None, host) => {
                let host = host.unwrap_or_default();
                let (theirs, other) = exchange::connect_with((host, port), &mine, &own.to_string())
                    .map_err(|error| CliError::context(format!("{host}:{port}"), error))?;
                connect(&theirs)?;
                (theirs, other)
            }
        };
        print(&format!("  remote address: {}\n", in_words(&theirs)))?;
        // Not sent by ibv_rc_pingpong.
        match other.as_deref().and_then(SharedOptions::parse) {
            Some(other) => own.check(other).map_err(CliError::new),
            None => Ok(()),
        }
    }

    fn run_rounds(&mut self, device: &Device, first: bool) -> Result {
        self.score.pending = RECEIVE;
        if first {
            if self.options.check {
                self.pages().try_for_each(|page| self.region.store_u8(page, MARK))?;
            }
            self.post_send()?;
            self.score.pending |= SEND;
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
                self.queue.arm(false);
            }
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS_PER_CHECK) {
                patience.look(device)?;
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

    fn take(&mut self, completion: &Completion) -> Result {
        succeeded(completion)?;
        if completion.wr_id == SEND {
            self.score.sent += 1;
        } else {
            self.score.received += 1;
            self.score.posted -= 1;
            if self.score.posted <= 1 {
                self.post_receives(self.options.rx_depth - self.score.posted)?;
            }
        }
        self.score.pending &= !completion.wr_id;
        if self.score.sent < self.options.iterations && self.score.pending == 0 {
            self.post_send()?;
            self.score.pending = RECEIVE | SEND;
        }
        Ok(())
    }

    fn post_receives(&mut self, count: u32) -> Result {
        let buffer = self.region.sge(..self.options.size as usize)?;
        let work = RecvWr { wr_id: RECEIVE, sg_list: [buffer].into() };
        self.qp.post_recv((0..count).map(|_| work.clone()))?;
        self.score.posted += count;
        Ok(())
    }

    fn post_send(&self) -> Result {
        let buffer = self.region.sge(..self.options.size as usize)?;
        Ok(self.qp.post_send([SendWr {
            wr_id: SEND,
            operation: SendOperation::Send { immediate: None, invalidate: None },
            data: WrData::Sges([buffer].into()),
            signaled: true,
            solicited: false,
            fence: false,
            defer_ack: false,
        }])?)
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
        let bytes = u64::from(self.options.size) * u64::from(iterations) * 2;
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
        (0..self.options.size as usize).step_by(PAGE)
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
