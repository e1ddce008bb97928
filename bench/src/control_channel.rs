//! A TCP connection over which two ends of a measurement agree on its parameters and exchange its
//! results. While they measure it is idle.
//!
//! ```
//! use roce_bench::control_channel::ControlChannel;
//! use std::{net::Ipv4Addr, thread};
//!
//! # let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
//! # /*
//! let free = 47_911;
//! # */
//! let server = thread::spawn(move || {
//!     let mut control = ControlChannel::listen(free)?;
//!     let number: u32 = control.receive()?;
//!     control.send(&(number + 1))
//! });
//! let mut control = ControlChannel::connect(Ipv4Addr::LOCALHOST, free)?;
//! control.send(&41)?;
//! assert_eq!(control.receive::<u32>()?, 42);
//! server.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Serialize, de::DeserializeOwned};
use socket2::SockRef;

use crate::program::Failure;

/// A connection between the two ends.
#[derive(Debug)]
pub struct ControlChannel {
    stream: BufReader<TcpStream>,
    local: Ipv4Addr,
    peer: Ipv4Addr,
}

impl ControlChannel {
    /// Waits for a client, for at most a minute.
    ///
    /// # Errors
    /// The port is taken, or no client connected.
    pub fn listen(port: u16) -> Result<Self, Failure> {
        let at = format!("listening at TCP port {port} (another run that is still there?)");
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
        let listener = listener.map_err(Failure::doing(at))?;
        // On Linux this is how long `accept` waits.
        let limited = SockRef::from(&listener).set_read_timeout(Some(TIMEOUT));
        limited.map_err(Failure::doing("limiting a wait"))?;
        match listener.accept() {
            Ok((stream, _)) => Self::over(stream),
            Err(error) if is_timeout(&error) => Err(Failure::told(format!(
                "no client connected within {} s: start it with `--to` this end's address",
                TIMEOUT.as_secs()
            ))),
            Err(error) => Err(Failure::doing("waiting for a client")(error)),
        }
    }

    /// Connects to a server, which may take ten seconds to start listening.
    ///
    /// # Errors
    /// No server listens there.
    pub fn connect(server: Ipv4Addr, port: u16) -> Result<Self, Failure> {
        let address = SocketAddr::from((server, port));
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match TcpStream::connect_timeout(&address, START_TIMEOUT) {
                Ok(stream) => return Self::over(stream),
                // It may not listen yet.
                Err(_) if Instant::now() < deadline => thread::sleep(RETRY_INTERVAL),
                Err(source) => {
                    return Err(Failure::told(format!(
                        "no server listens at {address} ({source}): start the other end with \
                         --listen, in a network that this one reaches"
                    )));
                }
            }
        }
    }

    fn over(stream: TcpStream) -> Result<Self, Failure> {
        let doing = || Failure::doing("setting up the connection to the other end");
        stream.set_nodelay(true).map_err(doing())?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(doing())?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(doing())?;
        let (local, peer) =
            (stream.local_addr().map_err(doing())?.ip(), stream.peer_addr().map_err(doing())?.ip());
        let (std::net::IpAddr::V4(local), std::net::IpAddr::V4(peer)) = (local, peer) else {
            return Err(Failure::told("the ends have met over IPv6: give an IPv4 address"));
        };
        Ok(Self { stream: BufReader::new(stream), local, peer })
    }

    /// This end's address.
    pub fn local(&self) -> Ipv4Addr {
        self.local
    }

    /// The other end's address.
    pub fn peer(&self) -> Ipv4Addr {
        self.peer
    }

    /// Sends a value as a line of JSON.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn send(&mut self, what: &impl Serialize) -> Result<(), Failure> {
        let mut line =
            serde_json::to_string(what).map_err(|error| Failure::told(error.to_string()))?;
        line.push('\n');
        let written = self.stream.get_mut().write_all(line.as_bytes());
        written.map_err(|error| gone(&error))
    }

    /// Receives a value; waits for at most a minute.
    ///
    /// # Errors
    /// The other end sends nothing, is gone, or sends another type.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let mut line = String::new();
        let mut limited = (&mut self.stream).take(MAX_LINE_LEN);
        match limited.read_line(&mut line) {
            Ok(_) if line.ends_with('\n') => serde_json::from_str(&line).map_err(|error| {
                let program = "is it the same program of the same version?";
                Failure::told(format!(
                    "the other end sent something unexpected ({error}): {program}"
                ))
            }),
            Ok(_) => Err(gone(&io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(gone(&error)),
        }
    }

    /// Returns true if [`receive`](Self::receive) would return at once: a line is there, or the other
    /// end is gone. Costs one system call.
    pub fn is_readable(&self) -> bool {
        if !self.stream.buffer().is_empty() {
            return true;
        }
        let stream = self.stream.get_ref();
        let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
        let back = stream.set_nonblocking(false);
        !matches!((peeked, back), (Err(error), Ok(())) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

fn gone(error: &io::Error) -> Failure {
    let how = if is_timeout(error) {
        format!("sent nothing for {} s", TIMEOUT.as_secs())
    } else {
        format!("is gone ({error})")
    };
    Failure::told(format!("the other end {how}: see what it wrote to its standard error"))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Limit on the wait for a line.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Limit on the start of a server.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
const MAX_LINE_LEN: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    impl ControlChannel {
        /// Two ends that have met over the loopback interface.
        pub(crate) fn pair() -> (Self, Self) {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (Self::over(here).unwrap(), Self::over(listener.accept().unwrap().0).unwrap())
        }
    }

    #[test]
    fn an_end_that_closes_is_readable_and_an_error() {
        let (mut here, there) = ControlChannel::pair();
        assert!(!here.is_readable());
        drop(there);
        while !here.is_readable() {
            thread::yield_now();
        }
        assert!(here.receive::<u32>().unwrap_err().to_string().contains("is gone"));
    }

    #[test]
    fn lines_that_arrive_together_are_received_one_by_one() {
        let (mut here, mut there) = ControlChannel::pair();
        there.send(&1).unwrap();
        there.send(&2).unwrap();
        assert_eq!(here.receive::<u32>().unwrap(), 1);
        assert_eq!(here.receive::<u32>().unwrap(), 2);
        assert!(!here.is_readable());
    }

    #[test]
    fn a_line_of_another_type_is_an_error() {
        let (mut here, mut there) = ControlChannel::pair();
        there.send(&"seven").unwrap();
        assert!(here.receive::<u32>().is_err());
    }
}
