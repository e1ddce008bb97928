//! A rank's connection to the bootstrap server.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::message::Message;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::line_stream::LineStream;
use crate::config::MAX_TIMEOUT;
use crate::error::Error;
use crate::interrupt::Interrupt;

/// The connection of a rank to the bootstrap server.
#[derive(Debug)]
pub(crate) struct BootstrapClient {
    stream: LineStream,
    interrupt: Interrupt,
}

/// Time between two attempts to connect.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Time between two questions whether the program gives up.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(100);
/// Time that a rank waits beyond the server's timeout, to receive the server's reason.
const SERVER_GRACE: Duration = Duration::from_secs(10);

impl BootstrapClient {
    /// Connects to the server, retrying for up to `timeout`.
    ///
    /// # Errors
    /// [`Error::NoRoot`]; [`Error::Interrupted`].
    pub(crate) fn connect(
        root: &str,
        timeout: Duration,
        interrupt: Interrupt,
    ) -> Result<Self, Error> {
        let deadline = Instant::now() + timeout.min(MAX_TIMEOUT);
        loop {
            interrupt.check()?;
            match Self::attempt(root, deadline) {
                Ok(stream) => return Ok(Self { stream, interrupt }),
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

    /// Sends a message.
    ///
    /// # Errors
    /// [`Error::RankFailed`] for rank 0 if the connection has ended.
    pub(crate) fn send(&mut self, message: &Message) -> Result<(), Error> {
        message.encode()?;
        match self.stream.send(message) {
            Ok(()) => Ok(()),
            // The server may have sent the reason.
            Err(error) => {
                Err(self.check().err().unwrap_or_else(|| root_failed(&error.to_string())))
            }
        }
    }

    /// Waits for one of the messages `word`. The server enforces `timeout`; this wait outlasts it.
    ///
    /// # Errors
    /// The reason that the server sent instead; [`Error::Interrupted`].
    pub(crate) fn expect(&mut self, word: &[&str], timeout: Duration) -> Result<Message, Error> {
        let deadline = Instant::now() + timeout.min(MAX_TIMEOUT) + SERVER_GRACE;
        loop {
            match self.next()? {
                Some(message) if word.contains(&message.word()) => return Ok(message),
                Some(message) => {
                    let problem = format!("{} instead of {}", message.word(), word.join(" or "));
                    return Err(Error::Bootstrap { peer: "the bootstrap server".into(), problem });
                }
                None => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(root_failed("silent"));
            }
            self.interrupt.check()?;
            self.wait(left.min(INTERRUPT_INTERVAL))?;
        }
    }

    /// Waits for the message `word` without a timeout.
    ///
    /// # Errors
    /// As [`expect`](Self::expect).
    pub(crate) fn wait_for(&mut self, word: &str) -> Result<(), Error> {
        loop {
            match self.next()? {
                Some(message) if message.word() == word => return Ok(()),
                // The server sends nothing else while a rank leaves.
                Some(message) => return Err(unexpected(&message)),
                None => {
                    self.interrupt.check()?;
                    self.wait(INTERRUPT_INTERVAL)?;
                }
            }
        }
    }

    /// Checks, without waiting, that the group has not ended.
    ///
    /// # Errors
    /// The reason why it ended.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self.next()? {
            None => Ok(()),
            Some(message) => Err(unexpected(&message)),
        }
    }

    /// Waits up to `limit` for the reason why the group ended.
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

    /// Returns the next message, or the error that ends the group.
    fn next(&mut self) -> Result<Option<Message>, Error> {
        self.stream.flush().or_else(|error| match self.stream.has_ended() {
            true => Ok(()),
            // Messages sent before the connection ended are still to be read.
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

/// The error for a message that is out of place.
fn unexpected(message: &Message) -> Error {
    let problem = format!("{} out of place", message.word());
    Error::Bootstrap { peer: "the bootstrap server".into(), problem }
}

/// The error for the end of the server, which is in rank 0's process.
fn root_failed(reason: &str) -> Error {
    Error::RankFailed { rank: 0, reason: reason.to_owned() }
}

impl AsFd for BootstrapClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
