//! A rank's connection to the bootstrap server.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use roce_ring::Operation;
use roce_verbs::Generation;
use socket2::{Domain, Protocol, Socket, Type};

use super::line_stream::LineStream;
use super::progress::{self, Departure};
use crate::config::{GroupConfig, MAX_TIMEOUT};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::message::Message;
use crate::wait_notice::WaitNotice;

/// The connection of a rank to the bootstrap server.
#[derive(Debug)]
pub(crate) struct BootstrapClient {
    stream: LineStream,
    /// A child after fork shares the connection with its parent, and uses it for nothing.
    generation: Generation,
    interrupt: Interrupt,
    wait_notice: WaitNotice,
    rank: u32,
    root: String,
    /// The server takes and sends the messages of [`progress`].
    has_progress: bool,
    /// The first rank that left the group.
    departure: Option<Departure>,
    /// The operation of which the server asks what this rank calls.
    question: Option<u64>,
}

/// Time between two attempts to connect.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Time between two questions whether the program gives up.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(100);
/// Time for one attempt to connect to an address that does not answer.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a rank waits beyond the server's timeout, to receive the server's reason.
const SERVER_GRACE: Duration = Duration::from_secs(10);

impl BootstrapClient {
    /// Connects the rank of a configuration to the server at `root`, retrying for up to its timeout.
    ///
    /// # Errors
    /// [`Error::NoRoot`]; [`Error::Interrupted`].
    pub(crate) fn connect(root: &str, config: &GroupConfig) -> Result<Self, Error> {
        let (begin, rank) = (Instant::now(), config.rank);
        let deadline = begin + config.timeout.min(MAX_TIMEOUT);
        let mut told = String::new();
        loop {
            config.interrupt.check()?;
            match Self::attempt(root, deadline, &config.interrupt)? {
                Ok(stream) => return Ok(Self::over(stream, root, config)),
                Err(source) if Instant::now() + RETRY_INTERVAL >= deadline => {
                    let (address, seconds) = (root.to_owned(), config.timeout.as_secs());
                    return Err(Error::NoRoot { address, seconds, source });
                }
                Err(source) => {
                    let reason = source.to_string();
                    if begin.elapsed() >= progress::PATIENCE && reason != told {
                        let text = format!("rank {rank} waits for rank 0 at {root}: {reason}");
                        config.wait_notice.tell(&text);
                        told = reason;
                    }
                    std::thread::sleep(RETRY_INTERVAL);
                }
            }
        }
    }

    /// Connects at once, to say that this rank failed; `None` if the server does not answer soon.
    pub(crate) fn connect_once(root: &str, config: &GroupConfig) -> Option<Self> {
        let deadline = Instant::now() + INTERRUPT_INTERVAL;
        let stream = Self::attempt(root, deadline, &config.interrupt).ok()?.ok()?;
        Some(Self::over(stream, root, config))
    }

    fn over(stream: LineStream, root: &str, config: &GroupConfig) -> Self {
        Self {
            stream,
            generation: Generation::current(),
            interrupt: config.interrupt.clone(),
            wait_notice: config.wait_notice.clone(),
            rank: config.rank,
            root: root.to_owned(),
            has_progress: false,
            departure: None,
            question: None,
        }
    }

    /// Tries each address of the server once. The outer error is [`Error::Interrupted`].
    fn attempt(
        root: &str,
        deadline: Instant,
        interrupt: &Interrupt,
    ) -> Result<io::Result<LineStream>, Error> {
        let addresses = match root.to_socket_addrs() {
            Ok(addresses) => addresses,
            Err(error) => return Ok(Err(error)),
        };
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            let left = deadline.saturating_duration_since(Instant::now()).max(RETRY_INTERVAL);
            match open(address, left.min(ATTEMPT_TIMEOUT), interrupt)? {
                Ok(stream) => return Ok(LineStream::new(stream)),
                Err(error) => last = error,
            }
        }
        Ok(Err(last))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Error::RankFailed`] for rank 0 if the connection has ended; [`Error::Ended`] in a child after fork.
    pub(crate) fn send(&mut self, message: &Message) -> Result<(), Error> {
        message.encode()?;
        self.check_process()?;
        match self.stream.send(message) {
            Ok(()) => Ok(()),
            // The server may have sent the reason.
            Err(error) => {
                Err(self.check().err().unwrap_or_else(|| root_failed(&error.to_string())))
            }
        }
    }

    /// Takes the first message of the server, which says what it knows.
    pub(crate) fn handle_welcome(&mut self, welcome: &Message) {
        self.has_progress = progress::is_spoken(welcome);
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

    /// Leaves the group after so many operations; returns when all ranks have left.
    ///
    /// # Errors
    /// As [`expect`](Self::expect); the rank that was waited for if it does not leave within `timeout`.
    pub(crate) fn leave(
        &mut self,
        operations: u64,
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        self.send(&Message::new("BYE").with("operations", operations))?;
        let begin = Instant::now();
        loop {
            match self.next()? {
                Some(message) if message.word() == "BYE" => return Ok(()),
                // The server sends nothing else while a rank leaves.
                Some(message) => return Err(unexpected(&message)),
                None => {
                    self.interrupt.check()?;
                    if let Some(timeout) = timeout.filter(|timeout| begin.elapsed() >= *timeout) {
                        return Err(self.report_late(operations, timeout));
                    }
                    self.wait(INTERRUPT_INTERVAL)?;
                }
            }
        }
    }

    /// Checks, without waiting, that no rank has left before operation `number`, which this rank calls.
    ///
    /// # Errors
    /// [`Error::Left`].
    pub(crate) fn check_departure(&self, number: u64) -> Result<(), Error> {
        match &self.departure {
            Some(Departure { rank, operations }) if *operations <= number => {
                Err(Error::Left { rank: *rank, operations: *operations, number })
            }
            _ => Ok(()),
        }
    }

    /// Tells the server that this rank has waited for a while in operation `number`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(crate) fn report_wait(&mut self, number: u64) -> Result<(), Error> {
        if self.has_progress { self.send(&progress::waits(number)) } else { Ok(()) }
    }

    /// Tells the server what this rank calls as operation `number`, if it has asked.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(crate) fn answer(
        &mut self,
        number: u64,
        operation: Option<&Operation>,
    ) -> Result<(), Error> {
        match (self.question.take(), operation) {
            (Some(asked), Some(operation)) if asked == number => {
                self.send(&progress::calls(number, operation))
            }
            _ => Ok(()),
        }
    }

    /// Tells the server that a neighbour calls another operation than this rank, and returns the error that
    /// says what each calls, if the neighbour answers.
    pub(crate) fn report_difference(
        &mut self,
        number: u64,
        operation: &Operation,
    ) -> Option<Error> {
        if !self.has_progress {
            return None;
        }
        match self.send(&progress::calls(number, operation)) {
            Ok(()) => self.failure_reason(progress::VERDICT_TIMEOUT),
            Err(error) => Some(error),
        }
    }

    /// Asks the server which rank this one has waited for in vain, in operation `number`, and returns the
    /// error that names it.
    pub(crate) fn report_late(&mut self, number: u64, timeout: Duration) -> Error {
        if self.has_progress {
            if let Err(error) = self.send(&progress::late(number, timeout)) {
                return error;
            }
            if let Some(verdict) = self.failure_reason(progress::VERDICT_TIMEOUT) {
                return verdict;
            }
        }
        Error::Late { number, timeout }
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

    /// Returns the next message, or the error that ends the group. Those about the progress of other ranks are
    /// handled here.
    fn next(&mut self) -> Result<Option<Message>, Error> {
        loop {
            match self.receive()? {
                Some(message) if self.handle_progress(&message)? => {}
                other => return Ok(other),
            }
        }
    }

    fn check_process(&self) -> Result<(), Error> {
        match self.generation.is_current() {
            true => Ok(()),
            false => Err(Error::Ended("it was joined before fork; join in this process".into())),
        }
    }

    fn receive(&mut self) -> Result<Option<Message>, Error> {
        self.check_process()?;
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

    /// Handles a message about the progress of other ranks; false if it is another.
    fn handle_progress(&mut self, message: &Message) -> Result<bool, Error> {
        match message.word() {
            "MISSING" => {
                let text = format!(
                    "rank {} waits for {} at {}",
                    self.rank,
                    message.text("ranks")?,
                    self.root
                );
                self.wait_notice.tell(&text);
            }
            "CALLS" => self.question = Some(message.number("operation")?),
            "LEFT" => {
                self.departure.get_or_insert(Departure::from_message(message)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
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

/// Connects to an address; asks meanwhile whether the program gives up. The outer error is
/// [`Error::Interrupted`].
fn open(
    address: SocketAddr,
    limit: Duration,
    interrupt: &Interrupt,
) -> Result<io::Result<TcpStream>, Error> {
    let begun = || -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(nix::libc::EINPROGRESS) => Err(error),
            _ => Ok(socket),
        }
    };
    let socket = match begun() {
        Ok(socket) => socket,
        Err(error) => return Ok(Err(error)),
    };
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = left.min(INTERRUPT_INTERVAL) + Duration::from_millis(1);
        let mut set = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut set, PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => {
                return Ok(match socket.take_error() {
                    Ok(None) => Ok(socket.into()),
                    Ok(Some(error)) | Err(error) => Err(error),
                });
            }
            Err(errno) => return Ok(Err(errno.into())),
        }
        interrupt.check()?;
        if left.is_zero() {
            return Ok(Err(io::ErrorKind::TimedOut.into()));
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
