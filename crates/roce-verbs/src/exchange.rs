//! The out-of-band exchange over TCP, in the format of `ibv_rc_pingpong`.
//!
//! Before two queue pairs can connect, each end must learn the other's queue pair number, first PSN
//! and GID. The pingpong programs of rdma-core send these in one line of text over TCP,
//! `LID:QPN:PSN:GID` in hexadecimal with a zero byte behind, and confirm with `done`. This module
//! uses the same format, so either end may be such a program.
//!
//! ```
//! use roce_verbs::exchange::{self, QpDest};
//! use roce_wire::{Gid, Psn, Qpn};
//!
//! let mine = QpDest {
//!     qpn: Qpn::new(0x11).unwrap(),
//!     psn: Psn::new(0x123456).unwrap(),
//!     gid: Gid::from(std::net::IpAddr::from([10, 0, 0, 1])),
//! };
//! let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! let port = listener.local_addr()?.port();
//! let client = std::thread::spawn(move || exchange::connect(("127.0.0.1", port), &mine));
//! let seen = exchange::accept(&listener, |_client| Ok::<_, std::convert::Infallible>(mine))?;
//! assert_eq!(seen, mine);
//! assert_eq!(client.join().unwrap()?, mine);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use roce_wire::{Gid, Psn, Qpn};

/// The destination that a queue pair is to its peer; as `struct pingpong_dest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpDest {
    /// The queue pair's number.
    pub qpn: Qpn,
    /// The PSN of the first request that it will send.
    pub psn: Psn,
    /// The address that it sends from.
    pub gid: Gid,
}

/// Bytes of a message: the text and the zero byte behind it.
const MESSAGE_LEN: usize = "0000:000000:000000:00000000000000000000000000000000".len() + 1;

/// Longest time that a connected peer may take to send its line.
const PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// An error of the exchange.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// TCP failed.
    #[error(
        "out-of-band exchange over TCP: {0}; check that the server is running and uses the same port"
    )]
    Tcp(#[from] io::Error),
    /// The peer sent a line of another format.
    #[error("the peer sent {0:?}, not LID:QPN:PSN:GID; check that it is a pingpong program")]
    InvalidDest(String),
    /// The caller could not prepare its own end.
    #[error(transparent)]
    Local(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for QpDest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The LID belongs to InfiniBand's own addressing and is zero on RoCE.
        write!(f, "{:04x}:{:06x}:{:06x}:", 0, self.qpn.get(), self.psn.get())?;
        self.gid.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for QpDest {
    type Err = ExchangeError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut fields = line.split(':');
            u16::from_str_radix(fields.next()?, 16).ok()?;
            let qpn = Qpn::new(u32::from_str_radix(fields.next()?, 16).ok()?)?;
            let psn = Psn::new(u32::from_str_radix(fields.next()?, 16).ok()?)?;
            let text = fields.next()?;
            let whole = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
            let gid = whole.then(|| u128::from_str_radix(text, 16).ok()).flatten()?;
            fields.next().is_none().then_some(Self { qpn, psn, gid: Gid(gid.to_be_bytes()) })
        };
        parse().ok_or_else(|| ExchangeError::InvalidDest(line.chars().take(80).collect()))
    }
}

/// Runs the client's part: sends `mine`, receives the server's, confirms.
///
/// # Errors
/// See [`ExchangeError`].
pub fn connect(server: impl ToSocketAddrs, mine: &QpDest) -> Result<QpDest, ExchangeError> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PEER_TIMEOUT))?;
    send(&mut stream, mine)?;
    let theirs = receive(&mut stream)?;
    stream.write_all(b"done\0")?;
    Ok(theirs)
}

/// Runs the server's part: waits for one client, calls `prepare` with the client's destination (a
/// pingpong server connects its queue pair before it replies), and sends what that returns.
///
/// # Errors
/// See [`ExchangeError`]; an error of `prepare` is returned as [`ExchangeError::Local`].
pub fn accept<E>(
    listener: &TcpListener,
    prepare: impl FnOnce(&QpDest) -> Result<QpDest, E>,
) -> Result<QpDest, ExchangeError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PEER_TIMEOUT))?;
    let theirs = receive(&mut stream)?;
    let mine = prepare(&theirs).map_err(|e| ExchangeError::Local(e.into()))?;
    send(&mut stream, &mine)?;
    // "done", with or without its zero byte; its absence means the client is gone.
    stream.read_exact(&mut [0; 4])?;
    Ok(theirs)
}

fn send(stream: &mut TcpStream, mine: &QpDest) -> io::Result<()> {
    let mut line = mine.to_string().into_bytes();
    line.push(0);
    stream.write_all(&line)
}

fn receive(stream: &mut TcpStream) -> Result<QpDest, ExchangeError> {
    let mut line = [0; MESSAGE_LEN];
    stream.read_exact(&mut line)?;
    let text = line.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).parse()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn the_line_is_the_one_that_rdma_core_prints() {
        let mine = QpDest {
            qpn: Qpn::new(0x11).unwrap(),
            psn: Psn::new(0xabcdef).unwrap(),
            gid: Gid::from(IpAddr::from([10, 9, 0, 2])),
        };
        let line = "0000:000011:abcdef:00000000000000000000ffff0a090002";
        assert_eq!(mine.to_string(), line);
        assert_eq!(line.parse::<QpDest>().unwrap(), mine);
        assert_eq!(line.len() + 1, MESSAGE_LEN);
    }

    #[test]
    fn a_line_of_another_format_is_refused() {
        let lines = [
            "",
            "0000:000011:abcdef",
            "0000:1000000:abcdef:00000000000000000000ffff0a090002",
            "0000:000011:abcdef:+0000000000000000000ffff0a090002",
            "0000:000011:abcdef:00000000000000000000ffff0a090002:7",
            "GET / HTTP/1.1",
        ];
        for line in lines {
            assert!(line.parse::<QpDest>().is_err(), "{line}");
        }
    }
}
