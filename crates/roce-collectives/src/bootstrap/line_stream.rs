//! LineStream over a socket that does not block.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::message::{Message, MessageError};
use socket2::{SockRef, TcpKeepalive};

/// After how long a dead host is found.
const DEAD_HOST_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes that may wait to be sent to somebody who does not read.
const MAX_UNSENT: usize = 1 << 20;

/// A connection that carries lines.
#[derive(Debug)]
pub(crate) struct LineStream {
    stream: TcpStream,
    received: Vec<u8>,
    unsent: VecDeque<u8>,
    has_ended: bool,
}

impl LineStream {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        let keepalive = TcpKeepalive::new()
            .with_time(DEAD_HOST_TIMEOUT - Duration::from_secs(3))
            .with_interval(Duration::from_secs(1))
            .with_retries(3);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(DEAD_HOST_TIMEOUT))?;
        Ok(Self { stream, received: Vec::new(), unsent: VecDeque::new(), has_ended: false })
    }

    /// Sends a line, now or as soon as there is room.
    ///
    /// # Errors
    /// What the socket says; also when the other side has not read for very long.
    pub(crate) fn send(&mut self, message: &Message) -> io::Result<()> {
        let text =
            message.encode().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        if self.unsent.len() + text.len() > MAX_UNSENT {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.unsent.extend(text.as_bytes());
        self.flush()
    }

    /// Sends what waits, as far as there is room.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            let (first, _) = self.unsent.as_slices();
            match self.stream.write(first) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether all that was said is with the kernel.
    pub(crate) fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Says that nothing more will be said.
    pub(crate) fn shutdown_write(&self) {
        // The other side may be gone already, which is all the same.
        let _shut = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// Whether the other side has ended the connection, and all it said was taken.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The next message that has come, if one has; never waits.
    pub(crate) fn next_message(&mut self) -> Option<Result<Message, MessageError>> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let bytes: Vec<u8> = self.received.drain(..=end).collect();
                let text =
                    String::from_utf8(bytes).map_err(|_| MessageError::BadWord(String::new()));
                return Some(text.and_then(|text| Message::parse(&text)));
            }
            if self.received.len() >= Message::MAX_BYTES {
                self.received.clear();
                self.has_ended = true;
                return Some(Err(MessageError::TooLong));
            }
            if self.has_ended {
                return None;
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => self.has_ended = true,
                Ok(read) => self.received.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.has_ended = true,
            }
        }
    }
}

impl AsFd for LineStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
