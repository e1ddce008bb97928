//! The out-of-band exchange over TCP, in the format of `ibv_rc_pingpong`.
//!
//! Before two queue pairs can connect, each end must learn the other's queue pair number, first PSN
//! and GID. The pingpong programs of rdma-core send these in one line of text over TCP,
//! `LID:QPN:PSN:GID` in hexadecimal with a zero byte behind, and confirm with `done`. This module
//! uses the same format, so either end may be such a program. Behind `done`, two ends of this
//! module may also compare their options, with [`connect_many`] and [`accept_many`].
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
use std::io::{self, BufRead, BufReader, Read, Write};
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

/// Longest time that a peer may take to send its options. A peer without options closes the
/// connection at once.
const OPTIONS_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of a peer's options that are read.
const MAX_OPTIONS_LEN: u64 = 256;

/// An error of the exchange.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// TCP failed.
    #[error(
        "out-of-band exchange over TCP: {0}; check that the server is running and uses the same port"
    )]
    Tcp(#[from] io::Error),
    /// The server's name has no address.
    #[error("{0}; check the server's name, or give its address")]
    UnknownHost(io::Error),
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
    let (theirs, _) = connect_to(server, std::slice::from_ref(mine), 1)?;
    first_of(theirs)
}

/// Runs the client's part as [`connect`] does, for several queue pairs: both ends send `lines` lines,
/// those behind the last queue pair zero. (`ibv_srq_pingpong` sends 256.) Then sends `options`, a short
/// text without a zero byte. Returns those of the server, too, or `None` for a server that sends none,
/// such as a pingpong program of rdma-core.
///
/// # Errors
/// See [`ExchangeError`].
pub fn connect_many(
    server: impl ToSocketAddrs,
    mine: &[QpDest],
    lines: usize,
    options: &str,
) -> Result<(Vec<QpDest>, Option<String>), ExchangeError> {
    let (theirs, mut stream) = connect_to(server, mine, lines)?;
    // The server sends first: a pingpong program expects nothing behind "done".
    let of_server = receive_options(&mut stream);
    if of_server.is_some() {
        send_options(&mut stream, options)?;
    }
    Ok((theirs, of_server))
}

fn connect_to(
    server: impl ToSocketAddrs,
    mine: &[QpDest],
    lines: usize,
) -> Result<(Vec<QpDest>, TcpStream), ExchangeError> {
    let addresses = server.to_socket_addrs().map_err(ExchangeError::UnknownHost)?;
    let mut stream = TcpStream::connect(addresses.collect::<Vec<_>>().as_slice())?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PEER_TIMEOUT))?;
    send(&mut stream, mine, lines)?;
    let theirs = receive(&mut stream, lines)?;
    stream.write_all(b"done\0")?;
    Ok((theirs, stream))
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
    let prepare = |theirs: &[QpDest]| prepare(&theirs[0]).map(|mine| vec![mine]);
    first_of(accept_from(listener, 1, prepare)?.0)
}

/// Runs the server's part as [`accept`] does, for several queue pairs and with `options`; see
/// [`connect_many`]. `prepare` gets as many destinations as there are lines.
///
/// # Errors
/// As for [`accept`].
pub fn accept_many<E>(
    listener: &TcpListener,
    lines: usize,
    options: &str,
    prepare: impl FnOnce(&[QpDest]) -> Result<Vec<QpDest>, E>,
) -> Result<(Vec<QpDest>, Option<String>), ExchangeError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (theirs, mut stream) = accept_from(listener, lines, prepare)?;
    // A client without options has closed the connection.
    let sent = send_options(&mut stream, options);
    Ok((theirs, sent.ok().and_then(|()| receive_options(&mut stream))))
}

fn accept_from<E>(
    listener: &TcpListener,
    lines: usize,
    prepare: impl FnOnce(&[QpDest]) -> Result<Vec<QpDest>, E>,
) -> Result<(Vec<QpDest>, TcpStream), ExchangeError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PEER_TIMEOUT))?;
    let theirs = receive(&mut stream, lines)?;
    let mine = prepare(&theirs).map_err(|e| ExchangeError::Local(e.into()))?;
    send(&mut stream, &mine, lines)?;
    // "done", with or without its zero byte; its absence means the client is gone.
    stream.read_exact(&mut [0; 4])?;
    Ok((theirs, stream))
}

fn send_options(stream: &mut TcpStream, options: &str) -> io::Result<()> {
    stream.write_all(format!("{options}\0").as_bytes())
}

/// Returns the peer's options, or `None` if it closes the connection or says nothing.
fn receive_options(stream: &mut TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(OPTIONS_TIMEOUT)).ok()?;
    let mut texts = BufReader::new(stream.take(MAX_OPTIONS_LEN)).split(0);
    let first = texts.next()?.ok()?;
    // The zero byte of "done".
    let options = if first.is_empty() { texts.next()?.ok()? } else { first };
    String::from_utf8(options).ok()
}

fn first_of(dests: Vec<QpDest>) -> Result<QpDest, ExchangeError> {
    dests.into_iter().next().ok_or_else(|| ExchangeError::InvalidDest(String::new()))
}

fn send(stream: &mut TcpStream, mine: &[QpDest], lines: usize) -> io::Result<()> {
    const NONE: QpDest =
        QpDest { qpn: Qpn::from_be_bytes([0; 3]), psn: Psn::ZERO, gid: Gid([0; 16]) };
    let mut text = Vec::with_capacity(lines * MESSAGE_LEN);
    for dest in mine.iter().chain(std::iter::repeat(&NONE)).take(lines) {
        text.extend(dest.to_string().bytes());
        text.push(0);
    }
    stream.write_all(&text)
}

fn receive(stream: &mut TcpStream, lines: usize) -> Result<Vec<QpDest>, ExchangeError> {
    let mut receive_line = || {
        let mut line = [0; MESSAGE_LEN];
        stream.read_exact(&mut line)?;
        let text = line.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).parse()
    };
    (0..lines).map(|_| receive_line()).collect()
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

    fn dest() -> QpDest {
        "0000:000011:abcdef:00000000000000000000ffff0a090002".parse().unwrap()
    }

    fn exchange<T: Send + 'static>(
        client: impl FnOnce(std::net::SocketAddr) -> T + Send + 'static,
    ) -> (Option<String>, T) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = std::thread::spawn(move || client(address));
        let prepare = |_: &[QpDest]| Ok::<_, io::Error>(vec![dest()]);
        let (theirs, options) = accept_many(&listener, 1, "size=1", prepare).unwrap();
        assert_eq!(theirs, [dest()]);
        (options, client.join().unwrap())
    }

    #[test]
    fn two_ends_exchange_their_options_behind_done() {
        let client = |address| connect_many(address, &[dest()], 1, "size=2").unwrap();
        let (of_client, (_, of_server)) = exchange(client);
        assert_eq!((of_client.as_deref(), of_server.as_deref()), (Some("size=2"), Some("size=1")));
    }

    #[test]
    fn a_peer_without_options_is_served() {
        let (of_client, _) = exchange(|address| connect(address, &dest()).unwrap());
        assert_eq!(of_client, None);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client =
            std::thread::spawn(move || connect_many(address, &[dest()], 1, "size=2").unwrap());
        accept(&listener, |_| Ok::<_, io::Error>(dest())).unwrap();
        assert_eq!(client.join().unwrap(), (vec![dest()], None));
    }

    #[test]
    fn ends_with_several_queue_pairs_exchange_as_many_lines_as_they_agree_on() {
        let dests = |first: u32| -> Vec<QpDest> {
            (first..first + 3)
                .map(|number| QpDest {
                    qpn: Qpn::new(number).unwrap(),
                    psn: Psn::ZERO,
                    gid: Gid::from(IpAddr::from([10, 0, 0, 1])),
                })
                .collect()
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client =
            std::thread::spawn(move || connect_many(address, &dests(20), 256, "-s 1").unwrap());
        let prepare = |_: &[QpDest]| Ok::<_, io::Error>(dests(40));
        let (theirs, of_client) = accept_many(&listener, 256, "-s 2", prepare).unwrap();
        let (seen, of_server) = client.join().unwrap();
        assert_eq!((&theirs[..3], &seen[..3]), (&dests(20)[..], &dests(40)[..]));
        assert_eq!((of_client.as_deref(), of_server.as_deref()), (Some("-s 1"), Some("-s 2")));
        assert_eq!((theirs.len(), seen.len()), (256, 256));
        assert!(theirs[3..].iter().all(|dest| dest.qpn.get() == 0));
    }

    #[test]
    fn a_server_without_an_address_is_told_from_one_that_does_not_listen() {
        // A label of 64 letters is no name, so that no server is asked for it.
        let name = format!("{}:1", "x".repeat(64));
        assert!(matches!(connect(name, &dest()), Err(ExchangeError::UnknownHost(_))));
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(matches!(connect(closed, &dest()), Err(ExchangeError::Tcp(_))));
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
