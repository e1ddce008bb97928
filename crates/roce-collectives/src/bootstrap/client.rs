//! A rank's connection to the hub.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::message::Message;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::line_stream::LineStream;
use crate::config::MAX_TIMEOUT;
use crate::error::Error;

/// What a rank says to the hub and hears from it.
#[derive(Debug)]
pub(crate) struct BootstrapClient {
    stream: LineStream,
}

/// How long to wait between two attempts to reach the hub.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// How much longer than the hub a rank waits, so that it hears what the hub has to say.
const SERVER_GRACE: Duration = Duration::from_secs(10);

impl BootstrapClient {
    /// Connects to the hub, trying again until `timeout` is over.
    ///
    /// # Errors
    /// [`Error::NoRoot`].
    pub(crate) fn connect(root: &str, timeout: Duration) -> Result<Self, Error> {
        let deadline = Instant::now() + timeout.min(MAX_TIMEOUT);
        loop {
            match Self::attempt(root, deadline) {
                Ok(stream) => return Ok(Self { stream }),
                Err(source) if Instant::now() + RETRY_INTERVAL >= deadline => {
                    let (address, seconds) = (root.to_owned(), timeout.as_secs());
                    return Err(Error::NoRoot { address, seconds, source });
                }
                Err(_) => std::thread::sleep(RETRY_INTERVAL),
            }
        }
    }

    fn attempt(root: &str, deadline: Instant) -> io::Result<LineStream> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in root.to_socket_addrs()? {
            let left = deadline.saturating_duration_since(Instant::now()).max(RETRY_INTERVAL);
            match TcpStream::connect_timeout(&address, left.min(Duration::from_secs(5))) {
                Ok(stream) => return LineStream::new(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Says a line.
    ///
    /// # Errors
    /// [`Error::RankFailed`] for rank 0 when nobody listens any more.
    pub(crate) fn send(&mut self, message: &Message) -> Result<(), Error> {
        message.encode()?;
        match self.stream.send(message) {
            Ok(()) => Ok(()),
            // It may have said why.
            Err(error) => {
                Err(self.check().err().unwrap_or_else(|| root_failed(&error.to_string())))
            }
        }
    }

    /// Waits for the message `word`; the hub enforces `timeout`, this only outlasts it.
    ///
    /// # Errors
    /// What the hub said instead.
    pub(crate) fn expect(&mut self, word: &[&str], timeout: Duration) -> Result<Message, Error> {
        let deadline = Instant::now() + timeout.min(MAX_TIMEOUT) + SERVER_GRACE;
        loop {
            match self.next()? {
                Some(message) if word.contains(&message.word()) => return Ok(message),
                Some(message) => {
                    let problem = format!("{} instead of {}", message.word(), word.join(" or "));
                    return Err(Error::Bootstrap { peer: "the hub".into(), problem });
                }
                None => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(root_failed("silent"));
            }
            self.wait(left)?;
        }
    }

    /// Waits for the line `word`, however long.
    ///
    /// # Errors
    /// As [`expect`](Self::expect).
    pub(crate) fn wait_for(&mut self, word: &str) -> Result<(), Error> {
        loop {
            match self.next()? {
                Some(message) if message.word() == word => return Ok(()),
                // What this rank says at its end crosses nothing that the hub says.
                Some(message) => return Err(unexpected(&message)),
                None => self.wait(Duration::from_secs(60))?,
            }
        }
    }

    /// Finds out whether the group is over; never waits.
    ///
    /// # Errors
    /// Why it is over.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self.next()? {
            None => Ok(()),
            Some(message) => Err(unexpected(&message)),
        }
    }

    /// Waits up to `limit` for the hub to say why the group is over.
    pub(crate) fn failure_reason(&mut self, limit: Duration) -> Option<Error> {
        let deadline = Instant::now() + limit;
        loop {
            if let Err(error) = self.check() {
                return Some(error);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.wait(left).is_err() {
                return None;
            }
        }
    }

    /// The next line, unless it ends the group.
    fn next(&mut self) -> Result<Option<Message>, Error> {
        self.stream.flush().or_else(|error| match self.stream.has_ended() {
            true => Ok(()),
            // What it said before it went is still to be read.
            false if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            false => Err(root_failed(&error.to_string())),
        })?;
        let Some(message) = self.stream.next_message() else {
            return if self.stream.has_ended() { Err(root_failed("gone")) } else { Ok(None) };
        };
        let message = message?;
        let reason = || message.value("reason").unwrap_or("no reason given").to_owned();
        match message.word() {
            "REFUSE" => Err(Error::Refused { reason: reason() }),
            "ABORT" => {
                Err(Error::RankFailed { rank: message.number_as("rank")?, reason: reason() })
            }
            _ => Ok(Some(message)),
        }
    }

    fn wait(&self, limit: Duration) -> io::Result<()> {
        let flags = if self.stream.is_flushed() {
            PollFlags::POLLIN
        } else {
            PollFlags::POLLIN | PollFlags::POLLOUT
        };
        let mut set = [PollFd::new(self.stream.as_fd(), flags)];
        let limit = limit + Duration::from_millis(1);
        let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        match poll(&mut set, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The hub said something else than belongs there.
fn unexpected(message: &Message) -> Error {
    let problem = format!("{} out of place", message.word());
    Error::Bootstrap { peer: "the hub".into(), problem }
}

/// The hub is in rank 0's process: when it goes, so has rank 0.
fn root_failed(reason: &str) -> Error {
    Error::RankFailed { rank: 0, reason: reason.to_owned() }
}

impl AsFd for BootstrapClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
