//! The bootstrap server, a thread of rank 0's process.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use roce_verbs::Generation;

use super::line_stream::LineStream;
use super::membership::{ConnId, Membership, Output, Phase};
use super::progress;
use crate::config::MAX_TIMEOUT;
use crate::error::Error;
use crate::report::Report;

/// The rendezvous of a group: compares the configurations of the ranks, sends them their
/// neighbours, and reports failures.
///
/// Joining a [`Group`](crate::Group) as rank 0 starts a server. It ends with the group; dropping it
/// earlier tells all ranks that rank 0 is gone.
#[derive(Debug)]
pub struct BootstrapServer {
    address: SocketAddr,
    reports: Receiver<Report>,
    /// Closing it stops the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    generation: Generation,
}

/// The most reports queued for rank 0's program; more are dropped.
const MAX_QUEUED_REPORTS: usize = 1 << 16;
/// The most connections beyond one per rank: unknown clients and late ranks.
const MAX_UNKNOWN_CLIENTS: usize = 64;
/// Time that the server stays after the group ends, even if rank 0's program drops it: all ranks,
/// late ones too, must learn the reason.
const LINGER: Duration = Duration::from_secs(3);

impl BootstrapServer {
    /// Starts a server for `size` ranks, which have `timeout` to arrive and as long again to
    /// connect. Port 0 selects a free port: see [`address`](Self::address).
    ///
    /// # Errors
    /// [`Error::Listen`].
    pub fn start(root: &str, size: u32, timeout: Duration) -> Result<Self, Error> {
        let listen = || -> io::Result<(TcpListener, SocketAddr)> {
            let addresses: Vec<SocketAddr> = root.to_socket_addrs()?.collect();
            let listener = TcpListener::bind(addresses.as_slice())?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) =
            listen().map_err(|source| Error::Listen { address: root.to_owned(), source })?;
        let (sender, reports) = mpsc::sync_channel(MAX_QUEUED_REPORTS);
        let (stop, stopped) = UnixStream::pair()?;
        let server_loop = ServerLoop {
            listener,
            stopped,
            membership: Membership::new(size),
            clients: BTreeMap::new(),
            next_id: 0,
            max_clients: size as usize + MAX_UNKNOWN_CLIENTS,
            reports: sender,
            timeout: timeout.min(MAX_TIMEOUT),
        };
        let thread = std::thread::Builder::new().name("ring bootstrap".into());
        let thread = Some(thread.spawn(move || server_loop.run())?);
        let generation = Generation::current();
        Ok(Self { address, reports, stop: Some(stop), thread, generation })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets the thread end by itself: it tells the ranks that have joined, and those that come within three
    /// seconds, that rank 0 is gone, while its program goes on.
    pub(crate) fn abandon(mut self) {
        self.stop = None;
        drop(self.thread.take());
    }

    /// Waits up to `timeout` for the next report of any rank.
    pub fn next_report(&self, timeout: Duration) -> Option<Report> {
        self.reports.recv_timeout(timeout).ok()
    }

    /// Returns all received reports.
    pub fn reports(&self) -> Vec<Report> {
        self.reports.try_iter().collect()
    }
}

impl Drop for BootstrapServer {
    fn drop(&mut self) {
        self.stop = None;
        // A child after fork has no such thread.
        if let Some(thread) = self.thread.take().filter(|_| self.generation.is_current()) {
            // The runtime has printed a panic of the thread.
            let _ended = thread.join();
        }
    }
}

/// The state of the thread.
#[derive(Debug)]
struct ServerLoop {
    listener: TcpListener,
    stopped: UnixStream,
    membership: Membership,
    clients: BTreeMap<ConnId, Client>,
    next_id: ConnId,
    max_clients: usize,
    reports: SyncSender<Report>,
    timeout: Duration,
}

#[derive(Debug)]
struct Client {
    stream: LineStream,
    /// True once all messages are queued: they are sent, then the peer closes.
    is_closing: bool,
    is_shutdown: bool,
}

impl ServerLoop {
    fn run(mut self) {
        let (mut phase, mut deadline) = (self.membership.phase(), Instant::now() + self.timeout);
        let mut told_at = Instant::now();
        loop {
            let now = Instant::now();
            if self.membership.phase() != phase {
                // Lanes and readiness share one timeout.
                let same = self.membership.phase() == Phase::Connecting && phase == Phase::Offering;
                phase = self.membership.phase();
                if !same {
                    let span = if phase == Phase::Over { LINGER } else { self.timeout };
                    deadline = now + span;
                }
            }
            let limit = (phase != Phase::Running).then(|| deadline.saturating_duration_since(now));
            if phase == Phase::Over {
                let all_closed = self.clients.is_empty() && self.membership.is_complete();
                if all_closed || limit.is_some_and(|limit| limit.is_zero()) {
                    return;
                }
            } else if limit.is_some_and(|limit| limit.is_zero()) {
                self.membership.handle_timeout(self.timeout.as_secs());
            }
            let mut wait = limit;
            if phase == Phase::Gathering {
                if now.duration_since(told_at) >= progress::PATIENCE {
                    told_at = now;
                    self.membership.handle_patience();
                }
                let next = progress::PATIENCE.saturating_sub(now.duration_since(told_at));
                wait = wait.map(|wait| wait.min(next));
            }
            self.serve();
            if self.membership.phase() == phase && self.wait(wait).is_err() {
                return;
            }
        }
    }

    /// Handles received messages and sends queued ones.
    fn serve(&mut self) {
        while self.clients.len() < self.max_clients
            && let Ok((stream, _)) = self.listener.accept()
        {
            if let Ok(stream) = LineStream::new(stream) {
                let client = Client { stream, is_closing: false, is_shutdown: false };
                self.clients.insert(self.next_id, client);
                self.next_id += 1;
            }
        }
        for (id, client) in &mut self.clients {
            while let Some(message) = client.stream.next_message() {
                self.membership.handle_message(*id, message);
            }
            if client.stream.has_ended() {
                self.membership.handle_disconnect(*id);
            }
        }
        while let Some(output) = self.membership.poll_output() {
            self.perform(output);
        }
        for (id, client) in &mut self.clients {
            if client.stream.flush().is_err() {
                self.membership.handle_disconnect(*id);
                client.is_closing = true;
                client.is_shutdown = true;
            } else if client.is_closing && client.stream.is_flushed() && !client.is_shutdown {
                client.stream.shutdown_write();
                client.is_shutdown = true;
            }
        }
        self.clients.retain(|_, client| !client.stream.has_ended());
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Send(id, message) => {
                if let Some(client) = self.clients.get_mut(&id)
                    && client.stream.send(&message).is_err()
                {
                    self.membership.handle_disconnect(id);
                }
            }
            Output::Close(id) => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.is_closing = true;
                }
            }
            Output::Report(report) => {
                // The queue is bounded, since the program may not fetch reports.
                let _kept = self.reports.try_send(report);
            }
        }
    }

    /// Sleeps until a message or a connection arrives.
    fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        // One more millisecond, so that the timeout has expired afterwards.
        let timeout = limit.map_or(PollTimeout::NONE, |limit| {
            PollTimeout::try_from(limit + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        // After the end, the final message must reach all ranks even if rank 0's program drops the
        // server.
        let all_flushed = self.clients.values().all(|client| client.stream.is_flushed());
        let waits_for_others = self.membership.phase() == Phase::Over
            && !(self.membership.is_complete() && all_flushed);
        let mut set = Vec::new();
        if !waits_for_others {
            set.push(PollFd::new(self.stopped.as_fd(), PollFlags::POLLIN));
        }
        if self.clients.len() < self.max_clients {
            set.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        }
        for client in self.clients.values() {
            let waits = !client.stream.is_flushed();
            let flags =
                if waits { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
            set.push(PollFd::new(client.stream.as_fd(), flags));
        }
        match poll(&mut set, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let stops = !waits_for_others && set[0].any().unwrap_or(true);
        if stops {
            // Rank 0's program has dropped the server.
            if self.membership.phase() == Phase::Over {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.membership.abort(0, "gone");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::hello;
    use crate::config::GroupConfig;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpStream;

    fn server(size: u32, timeout: Duration) -> BootstrapServer {
        BootstrapServer::start("127.0.0.1:0", size, timeout).unwrap()
    }

    fn connect(server: &BootstrapServer, text: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        BufReader::new(stream)
    }

    fn receive(stream: &mut BufReader<TcpStream>) -> String {
        let mut message = String::new();
        stream.read_line(&mut message).unwrap();
        message.trim_end().to_owned()
    }

    fn hello(rank: u32, size: u32) -> String {
        hello::message(&GroupConfig::new(rank, size, "x:1")).encode().unwrap()
    }

    #[test]
    fn a_group_of_one_starts_and_ends() {
        let server = server(1, Duration::from_secs(10));
        let mut rank = connect(&server, &hello(0, 1));
        assert_eq!(receive(&mut rank), "WELCOME progress=1");
        rank.get_mut().write_all(b"READY\nREPORT kind=time size=8\n").unwrap();
        assert_eq!(receive(&mut rank), "GO");
        let report = server.next_report(Duration::from_secs(10)).unwrap();
        assert_eq!(
            (report.rank, report.kind.as_str(), report.value("size")),
            (0, "time", Some("8"))
        );
        rank.get_mut().write_all(b"BYE\n").unwrap();
        assert_eq!(receive(&mut rank), "BYE");
        assert_eq!(receive(&mut rank), "", "the connection ends");
    }

    #[test]
    fn missing_ranks_are_named_to_the_others() {
        let server = server(3, Duration::from_millis(100));
        let mut rank = connect(&server, &hello(1, 3));
        let expected = "REFUSE reason=ranks%200,%202%20did%20not%20arrive%20within%200%20s";
        assert_eq!(receive(&mut rank), expected);
    }

    #[test]
    fn a_connection_that_ends_without_bye_fails_the_other_ranks() {
        let server = server(2, Duration::from_secs(10));
        let mut first = connect(&server, &hello(0, 2));
        let mut second = connect(&server, &hello(1, 2));
        assert_eq!(
            (receive(&mut first), receive(&mut second)),
            ("WELCOME progress=1".into(), "WELCOME progress=1".into())
        );
        drop(second);
        assert_eq!(receive(&mut first), "ABORT rank=1 reason=gone");
    }

    #[test]
    fn a_dropped_server_reports_that_rank_0_is_gone() {
        let server = server(2, Duration::from_secs(10));
        let mut rank = connect(&server, &hello(1, 2));
        std::thread::scope(|scope| {
            scope.spawn(move || drop(server));
            assert_eq!(receive(&mut rank), "ABORT rank=0 reason=gone");
            drop(rank);
        });
    }

    #[test]
    fn a_late_rank_gets_the_refusal_after_rank_0_has_left() {
        let server = server(3, Duration::from_secs(10));
        let address = server.address();
        let mut root = connect(&server, &hello(0, 3));
        let other = GroupConfig { slots: 3, ..GroupConfig::new(1, 3, "x:1") };
        let mut rank = connect(&server, &hello::message(&other).encode().unwrap());
        let why = receive(&mut root);
        assert!(why.starts_with("REFUSE reason=rank%201"), "{why}");
        assert_eq!(receive(&mut rank), why);
        drop((root, rank));
        std::thread::scope(|scope| {
            let leaving = scope.spawn(move || drop(server));
            let mut late = TcpStream::connect(address).unwrap();
            late.write_all(hello(2, 3).as_bytes()).unwrap();
            let mut late = BufReader::new(late);
            assert_eq!(receive(&mut late), why);
            drop(late);
            leaving.join().unwrap();
        });
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let server = server(2, Duration::from_secs(10));
        let mut stranger = connect(&server, "");
        let heard = std::thread::scope(|scope| {
            let mut writer = stranger.get_ref().try_clone().unwrap();
            // The server stops reading at some point, so the write may fail.
            scope.spawn(move || writer.write_all(&vec![b'A'; 8192]));
            receive(&mut stranger)
        });
        assert!(heard.starts_with("REFUSE reason=the%20line%20has%20more"), "{heard}");
    }

    #[test]
    fn unknown_clients_beyond_the_limit_do_not_keep_ranks_out() {
        let server = server(1, Duration::from_secs(10));
        let crowd: Vec<_> = (0..MAX_UNKNOWN_CLIENTS + 10).map(|_| connect(&server, "")).collect();
        drop(crowd);
        let mut rank = connect(&server, &hello(0, 1));
        assert_eq!(receive(&mut rank), "WELCOME progress=1");
    }
}
