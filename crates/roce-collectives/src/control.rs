//! A rank's connection to the hub.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use roce_ring::Line;

use crate::config::MAX_TIMEOUT;
use crate::error::Error;
use crate::lines::Lines;

/// What a rank says to the hub and hears from it.
#[derive(Debug)]
pub(crate) struct Control {
    lines: Lines,
}

/// How long to wait between two attempts to reach the hub.
const RETRY: Duration = Duration::from_millis(50);
/// How much longer than the hub a rank waits, so that it hears what the hub has to say.
const GRACE: Duration = Duration::from_secs(10);

impl Control {
    /// Connects to the hub, trying again until `timeout` is over.
    ///
    /// # Errors
    /// [`Error::NoRoot`].
    pub(crate) fn connect(root: &str, timeout: Duration) -> Result<Self, Error> {
        let deadline = Instant::now() + timeout.min(MAX_TIMEOUT);
        loop {
            match Self::attempt(root, deadline) {
                Ok(lines) => return Ok(Self { lines }),
                Err(source) if Instant::now() + RETRY >= deadline => {
                    let (address, seconds) = (root.to_owned(), timeout.as_secs());
                    return Err(Error::NoRoot { address, seconds, source });
                }
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }

    fn attempt(root: &str, deadline: Instant) -> io::Result<Lines> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in root.to_socket_addrs()? {
            let left = deadline.saturating_duration_since(Instant::now()).max(RETRY);
            match TcpStream::connect_timeout(&address, left.min(Duration::from_secs(5))) {
                Ok(stream) => return Lines::new(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Says a line.
    ///
    /// # Errors
    /// [`Error::RankFailed`] for rank 0 when nobody listens any more.
    pub(crate) fn say(&mut self, line: &Line) -> Result<(), Error> {
        line.encode()?;
        match self.lines.say(line) {
            Ok(()) => Ok(()),
            // It may have said why.
            Err(error) => Err(self.check().err().unwrap_or_else(|| gone(&error.to_string()))),
        }
    }

    /// Waits for the line `word`; the hub enforces `timeout`, this only outlasts it.
    ///
    /// # Errors
    /// What the hub said instead.
    pub(crate) fn expect(&mut self, word: &[&str], timeout: Duration) -> Result<Line, Error> {
        let deadline = Instant::now() + timeout.min(MAX_TIMEOUT) + GRACE;
        loop {
            match self.next()? {
                Some(line) if word.contains(&line.word()) => return Ok(line),
                Some(line) => {
                    let what = format!("{} instead of {}", line.word(), word.join(" or "));
                    return Err(Error::Bootstrap { who: "the hub".into(), what });
                }
                None => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(gone("silent"));
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
                Some(line) if line.word() == word => return Ok(()),
                // What this rank says at its end crosses nothing that the hub says.
                Some(line) => return Err(astray(&line)),
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
            Some(line) => Err(astray(&line)),
        }
    }

    /// Waits up to `limit` for the hub to say why the group is over.
    pub(crate) fn verdict(&mut self, limit: Duration) -> Option<Error> {
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
    fn next(&mut self) -> Result<Option<Line>, Error> {
        self.lines.flush().or_else(|error| match self.lines.has_ended() {
            true => Ok(()),
            // What it said before it went is still to be read.
            false if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            false => Err(gone(&error.to_string())),
        })?;
        let Some(line) = self.lines.next_line() else {
            return if self.lines.has_ended() { Err(gone("gone")) } else { Ok(None) };
        };
        let line = line?;
        let reason = || line.value("reason").unwrap_or("no reason given").to_owned();
        match line.word() {
            "REFUSE" => Err(Error::Refused { reason: reason() }),
            "ABORT" => Err(Error::RankFailed { rank: line.number_as("rank")?, reason: reason() }),
            _ => Ok(Some(line)),
        }
    }

    fn wait(&self, limit: Duration) -> io::Result<()> {
        let flags = if self.lines.is_flushed() {
            PollFlags::POLLIN
        } else {
            PollFlags::POLLIN | PollFlags::POLLOUT
        };
        let mut set = [PollFd::new(self.lines.as_fd(), flags)];
        let limit = limit + Duration::from_millis(1);
        let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        match poll(&mut set, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The hub said something else than belongs there.
fn astray(line: &Line) -> Error {
    let what = format!("{} out of place", line.word());
    Error::Bootstrap { who: "the hub".into(), what }
}

/// The hub is in rank 0's process: when it goes, so has rank 0.
fn gone(reason: &str) -> Error {
    Error::RankFailed { rank: 0, reason: reason.to_owned() }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lines.as_fd()
    }
}
