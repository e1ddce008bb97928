//! Messages over a nonblocking socket, one per line.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::message::{Message, MessageError};
use socket2::{SockRef, TcpKeepalive};

/// Time after which a dead host is detected.
const DEAD_HOST_TIMEOUT: Duration = Duration::from_secs(5);

/// The most unsent bytes to a peer that does not read.
const MAX_UNSENT: usize = 1 << 20;

/// A connection that carries messages.
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

    /// Queues a message and sends as much as the socket accepts.
    ///
    /// # Errors
    /// Errors of the socket, and a timeout if the peer has not read [`MAX_UNSENT`] bytes.
    pub(crate) fn send(&mut self, message: &Message) -> io::Result<()> {
        let text =
            message.encode().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        if self.unsent.len() + text.len() > MAX_UNSENT {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.unsent.extend(text.as_bytes());
        self.flush()
    }

    /// Sends as much of the queue as the socket accepts.
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

    /// Returns true if no bytes are queued.
    pub(crate) fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Ends the sending direction.
    pub(crate) fn shutdown_write(&self) {
        // The peer may have closed the connection already.
        let _shut = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// Returns true if the peer has ended the connection and all its messages were returned.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the next received message; never waits.
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
