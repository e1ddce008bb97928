//! The control channel between the two ends: one JSON value per line, over TCP.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use roce_verbs::PathMtu;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use socket2::{SockRef, TcpKeepalive};

use super::params::{Params, Test, Verb};
use crate::error::{CliError, Result};

/// One end of the control channel.
#[derive(Debug)]
pub(crate) struct ControlChannel {
    stream: BufReader<TcpStream>,
    mtu: PathMtu,
}

/// The client's first message.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    version: u32,
    #[serde(rename = "plan")]
    params: Params,
    /// The client's largest path MTU in bytes.
    mtu: usize,
}

/// The server's reply.
#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    /// The test starts with this path MTU in bytes.
    Welcome {
        mtu: usize,
    },
    Refused {
        why: String,
    },
}

/// The addresses of an end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerInfo {
    pub(crate) qps: Vec<QpInfo>,
    pub(crate) gid: [u8; 16],
    /// The memory that the peer may write and read.
    pub(crate) address: u64,
    pub(crate) key: u32,
}

/// The address of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QpInfo {
    pub(crate) number: u32,
    pub(crate) first_psn: u32,
}

impl ControlChannel {
    /// Connects to a server and requests a test.
    pub(crate) fn connect(host: &str, port: u16, params: &Params, mtu: PathMtu) -> Result<Self> {
        let stream = TcpStream::connect((host, port)).map_err(|error| {
            CliError::new(format!(
                "cannot reach the server at {host}, TCP port {port}: {error}. Is it started, \
                 with the same command but without a host?"
            ))
        })?;
        let mut control = Self::over(stream, mtu)?;
        control.send(&Hello { version: VERSION, params: params.clone(), mtu: mtu.bytes() })?;
        match control.receive()? {
            Reply::Welcome { mtu } => {
                control.mtu = PathMtu::from_bytes(mtu).ok_or_else(protocol_error)?;
                Ok(control)
            }
            Reply::Refused { why } => Err(CliError::new(why)),
        }
    }

    /// Waits for a client with this test.
    pub(crate) fn accept(
        listener: &TcpListener,
        verb: Verb,
        test: Test,
        mtu: PathMtu,
    ) -> Result<(Self, Params)> {
        let (stream, _) = listener.accept()?;
        let mut control = Self::over(stream, mtu)?;
        let hello: Hello = control.receive()?;
        let why = if hello.version != VERSION {
            Some("the two ends have different versions of roce: use the same".to_owned())
        } else if (hello.params.verb, hello.params.test) != (verb, test) {
            let [ours, theirs] = [(verb, test), (hello.params.verb, hello.params.test)]
                .map(|(verb, test)| format!("roce perf {verb:?} {test:?}").to_lowercase());
            Some(format!("the server runs `{ours}`, the client `{theirs}`: start both alike"))
        } else if !hello.params.is_valid() {
            Some("the client requests more memory or queue pairs than the server allows".to_owned())
        } else {
            None
        };
        let theirs = PathMtu::from_bytes(hello.mtu).ok_or_else(protocol_error)?;
        if let Some(why) = why {
            control.send(&Reply::Refused { why: why.clone() })?;
            return Err(CliError::new(why));
        }
        control.mtu = mtu.min(theirs);
        control.send(&Reply::Welcome { mtu: control.mtu.bytes() })?;
        Ok((control, hello.params))
    }

    fn over(stream: TcpStream, mtu: PathMtu) -> Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), mtu })
    }

    /// Makes the channel fail when the peer is unreachable for longer than its requests are
    /// retried, plus some seconds: the peer has failed by then, and its message may never arrive.
    pub(crate) fn fail_after(&self, retries: Option<Duration>) -> Result {
        // Without an ACK timeout, requests and this channel wait forever.
        let Some(retries) = retries else { return Ok(()) };
        let idle = (2 * retries).clamp(MIN_KEEPALIVE_IDLE, MAX_KEEPALIVE_IDLE);
        let keepalive = TcpKeepalive::new()
            .with_time(idle)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_RETRIES);
        let stream = SockRef::from(self.stream.get_ref());
        stream.set_tcp_keepalive(&keepalive)?;
        Ok(stream.set_tcp_user_timeout(Some(idle + KEEPALIVE_INTERVAL * KEEPALIVE_RETRIES))?)
    }

    /// Returns the smaller of the two path MTUs.
    pub(crate) fn agreed_mtu(&self) -> PathMtu {
        self.mtu
    }

    /// Exchanges the addresses of both ends.
    pub(crate) fn exchange_info(&mut self, mine: &PeerInfo) -> Result<PeerInfo> {
        self.send(mine)?;
        let theirs: PeerInfo = self.receive()?;
        if theirs.qps.len() == mine.qps.len() { Ok(theirs) } else { Err(protocol_error()) }
    }

    /// Waits until the peer has reached the same point.
    pub(crate) fn synchronize(&mut self) -> Result {
        self.send(&SYNC_POINT)?;
        let heard: String = self.receive()?;
        if heard == SYNC_POINT { Ok(()) } else { Err(protocol_error()) }
    }

    /// Sends a value.
    pub(crate) fn send(&mut self, what: &impl Serialize) -> Result {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).map_err(|_| disconnected())
    }

    /// Waits for a value.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = Vec::new();
        self.stream
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)
            .map_err(|_| disconnected())?;
        if line.last() != Some(&b'\n') {
            return Err(if line.len() as u64 == MAX_LINE_BYTES {
                protocol_error()
            } else {
                disconnected()
            });
        }
        serde_json::from_slice(&line).map_err(|_| protocol_error())
    }

    /// Returns true if received bytes are buffered.
    pub(crate) fn has_unread(&self) -> bool {
        !self.stream.buffer().is_empty()
    }

    /// Returns true if input is available; never waits. Fails if the peer has disconnected.
    pub(crate) fn has_input(&mut self) -> Result<bool> {
        if self.has_unread() {
            return Ok(true);
        }
        let stream = self.stream.get_ref();
        stream.set_nonblocking(true)?;
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        match peeked {
            Ok(0) => Err(disconnected()),
            Ok(_) => Ok(true),
            Err(error) if is_nothing(&error) => Ok(false),
            Err(_) => Err(disconnected()),
        }
    }
}

/// Readable when the peer has sent a value or disconnected.
impl AsFd for ControlChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn disconnected() -> CliError {
    CliError::new("the other end has gone away: what it printed says why, or it was killed")
}

fn protocol_error() -> CliError {
    CliError::new(
        "the other end is not a `roce perf` of this version (perftest has another protocol)",
    )
}

/// Version of the messages; raise it when they change.
const VERSION: u32 = 5;
const SYNC_POINT: &str = "here";
/// Shortest idle time before keepalive probes.
const MIN_KEEPALIVE_IDLE: Duration = Duration::from_secs(3);
/// Longest idle time before keepalive probes: the kernel accepts about nine hours.
const MAX_KEEPALIVE_IDLE: Duration = Duration::from_secs(32_000);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_RETRIES: u32 = 3;
/// The most bytes of a line: enough for the addresses of 4096 queue pairs.
const MAX_LINE_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use roce_verbs::PathMtu;

    use super::super::params::{self, Test, Verb};
    use super::{ControlChannel, disconnected, protocol_error};
    use crate::error::CliError;

    fn text(failure: CliError) -> String {
        match failure {
            CliError::Message(text) => text,
            CliError::Reported(_) | CliError::Quit => panic!("nothing was told"),
        }
    }

    /// Connects a client with the example parameters to a server of another test.
    fn meeting(verb: Verb, test: Test) -> [Result<PathMtu, String>; 2] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = thread::spawn(move || {
            ControlChannel::connect("127.0.0.1", port, &params::example(), PathMtu::B1024)
                .map(|control| control.agreed_mtu())
                .map_err(text)
        });
        let server = ControlChannel::accept(&listener, verb, test, PathMtu::B4096)
            .map(|(control, _)| control.agreed_mtu())
            .map_err(text);
        [server, client.join().unwrap()]
    }

    #[test]
    fn both_ends_use_the_smaller_path_mtu() {
        assert_eq!(meeting(Verb::Write, Test::Bw), [Ok(PathMtu::B1024), Ok(PathMtu::B1024)]);
    }

    #[test]
    fn ends_with_different_tests_are_refused_with_the_reason() {
        for outcome in meeting(Verb::Read, Test::Lat) {
            let why = outcome.unwrap_err();
            assert!(why.contains("`roce perf read lat`"), "{why}");
            assert!(why.contains("`roce perf write bw`"), "{why}");
        }
    }

    #[test]
    fn a_disconnected_end_is_noticed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let stranger = thread::spawn(move || {
            ControlChannel::connect("127.0.0.1", port, &params::example(), PathMtu::B1024).map(drop)
        });
        let accepted = ControlChannel::accept(&listener, Verb::Write, Test::Bw, PathMtu::B4096);
        let (mut control, _) = accepted.unwrap();
        stranger.join().unwrap().unwrap();
        assert_eq!(text(control.synchronize().unwrap_err()), text(disconnected()));
    }

    #[test]
    fn another_program_on_the_port_is_refused() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let stranger = thread::spawn(move || {
            use std::io::Write;
            std::net::TcpStream::connect(address).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n")
        });
        let refusal = ControlChannel::accept(&listener, Verb::Write, Test::Bw, PathMtu::B4096);
        assert_eq!(text(refusal.map(drop).unwrap_err()), text(protocol_error()));
        stranger.join().unwrap().unwrap();
    }
}
