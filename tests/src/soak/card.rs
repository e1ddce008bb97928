//! Information that the two ends of a pair exchange before they connect.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use roce_verbs::exchange::QpDest;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::Result;

/// One end: its queue pair and the memory that the other end may use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Card {
    pub(super) pair: u32,
    dest: String,
    /// The region that the other end writes and reads.
    pub(super) address: u64,
    pub(super) key: u32,
    /// Keys that the other end may invalidate, in this order.
    pub(super) disposable: Vec<u32>,
}

impl Card {
    pub(super) fn new(pair: u32, dest: &QpDest, address: u64, key: u32) -> Self {
        Self { pair, dest: dest.to_string(), address, key, disposable: Vec::new() }
    }

    pub(super) fn dest(&self) -> Result<QpDest> {
        Ok(self.dest.parse()?)
    }
}

/// A TCP connection that lasts as long as both processes do.
#[derive(Debug)]
pub(super) struct Line {
    stream: BufReader<TcpStream>,
}

impl Line {
    pub(super) fn connect(address: SocketAddr) -> Result<Self> {
        Self::new(TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?)
    }

    pub(super) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(message)?;
        text.push(b'\n');
        Ok(self.stream.get_mut().write_all(&text)?)
    }

    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut text = String::new();
        if self.stream.read_line(&mut text)? == 0 {
            return Err("the other process has ended".into());
        }
        Ok(serde_json::from_str(&text)?)
    }

    /// Tells the other process that this one ends by itself, and is not killed.
    pub(super) fn complain(&mut self) {
        // The other process may have ended too.
        let _ = self.send(&true);
    }

    /// Returns true once the other process has ended, after at most `patience`; false at once if it
    /// [complains](Self::complain).
    pub(super) fn is_closed_within(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let stream = self.stream.get_ref();
        let left = patience.max(Duration::from_micros(1));
        // On this connection nothing is said any more but a complaint.
        let closed = stream.set_read_timeout(Some(left)).is_err()
            || match stream.peek(&mut [0]) {
                Ok(0) => true,
                // The other process complains, and is alive.
                Ok(_) => return false,
                Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            };
        closed || Instant::now() < deadline && self.is_closed_within(deadline - Instant::now())
    }
}

/// Time for the response of the other process, which may first have to wait for a failure.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
