//! The line over which the two ends talk beside the test: one JSON value a line, over TCP.

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

/// One end of the line.
#[derive(Debug)]
pub(crate) struct ControlChannel {
    stream: BufReader<TcpStream>,
    mtu: PathMtu,
}

/// What a client says first.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    version: u32,
    #[serde(rename = "plan")]
    params: Params,
    /// The largest path MTU that suits it, in bytes.
    mtu: usize,
}

/// What the server answers.
#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    /// With the path MTU to use, in bytes.
    Welcome {
        mtu: usize,
    },
    Refused {
        why: String,
    },
}

/// What each end tells the other about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerInfo {
    pub(crate) qps: Vec<QpInfo>,
    pub(crate) gid: [u8; 16],
    /// The memory that the other end may write and read.
    pub(crate) address: u64,
    pub(crate) key: u32,
}

/// A queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QpInfo {
    pub(crate) number: u32,
    pub(crate) first_psn: u32,
}

impl ControlChannel {
    /// The client's part: connects, says what is to be done, learns whether it will be.
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

    /// The server's part: waits for a client that wants this test.
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
            Some("the two ends are of different versions of roce: use the same".to_owned())
        } else if (hello.params.verb, hello.params.test) != (verb, test) {
            let [ours, theirs] = [(verb, test), (hello.params.verb, hello.params.test)]
                .map(|(verb, test)| format!("roce perf {verb:?} {test:?}").to_lowercase());
            Some(format!("the server runs `{ours}`, the client `{theirs}`: start both alike"))
        } else if !hello.params.is_valid() {
            Some("the client asks for more than the server gives".to_owned())
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

    /// Finds out that the other end cannot be reached any more, even while nothing is said, once
    /// its requests have used up their `retries` and some seconds besides. Then it has failed, and
    /// the word of that may never arrive.
    pub(crate) fn fail_after(&self, retries: Option<Duration>) -> Result {
        // No ACK timeout: requests wait for ever, and so does this.
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

    /// The smaller of the two path MTUs.
    pub(crate) fn agreed_mtu(&self) -> PathMtu {
        self.mtu
    }

    /// Tells the other end about this one, and the other way round.
    pub(crate) fn exchange_info(&mut self, mine: &PeerInfo) -> Result<PeerInfo> {
        self.send(mine)?;
        let theirs: PeerInfo = self.receive()?;
        if theirs.qps.len() == mine.qps.len() { Ok(theirs) } else { Err(protocol_error()) }
    }

    /// Waits until the other end has come to the same point.
    pub(crate) fn synchronize(&mut self) -> Result {
        self.send(&SYNC_POINT)?;
        let heard: String = self.receive()?;
        if heard == SYNC_POINT { Ok(()) } else { Err(protocol_error()) }
    }

    /// Says something.
    pub(crate) fn send(&mut self, what: &impl Serialize) -> Result {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).map_err(|_| disconnected())
    }

    /// Waits for the other end to say something.
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

    /// Whether something of what the other end has said was received, but not heard yet.
    pub(crate) fn has_unread(&self) -> bool {
        !self.stream.buffer().is_empty()
    }

    /// Whether the other end has said something that was not heard yet, or is disconnected; never
    /// waits.
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

/// Readable when the other end has said something, or is gone.
impl AsFd for ControlChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn disconnected() -> CliError {
    CliError::new("the other end has gone away: what it printed says why")
}

fn protocol_error() -> CliError {
    CliError::new("the other end is not a `roce perf` of this version (perftest speaks otherwise)")
}

/// To be raised when what is said here changes.
const VERSION: u32 = 3;
const SYNC_POINT: &str = "here";
/// Silence on the line after which the other end is asked whether it is there, and how often.
const MIN_KEEPALIVE_IDLE: Duration = Duration::from_secs(3);
/// More than nine hours the kernel does not take.
const MAX_KEEPALIVE_IDLE: Duration = Duration::from_secs(32_000);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_RETRIES: u32 = 3;
/// Bytes: room for the introductions of 4096 queue pairs.
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
            CliError::Reported(_) => panic!("nothing was told"),
        }
    }

    /// Lets a client with the example plan meet a server of another test.
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
    fn ends_that_run_different_tests_are_told_so() {
        for outcome in meeting(Verb::Read, Test::Lat) {
            let why = outcome.unwrap_err();
            assert!(why.contains("`roce perf read lat`"), "{why}");
            assert!(why.contains("`roce perf write bw`"), "{why}");
        }
    }

    #[test]
    fn an_end_that_goes_away_is_noticed() {
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
    fn a_stranger_on_the_port_is_refused() {
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
