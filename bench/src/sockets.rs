//! The same over the kernel's sockets: what people use when they have no RDMA.
//!
//! [`pingpong`] measures half round trips of 8 bytes, [`rate`] messages of 8 bytes a second with
//! one `send` each.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use socket2::SockRef;

use crate::control_channel::ControlChannel;
use crate::program::Failure;

pub mod pingpong;
pub mod rate;

/// Which sockets.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A stream.
    Tcp,
    /// Datagrams.
    Udp,
}

/// Bytes of each message.
pub const MESSAGE_LEN: usize = 8;

/// A socket that is connected with the other end's.
#[derive(Debug)]
enum Link {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Link {
    /// The end that listens.
    fn listen(control: &mut ControlChannel, kind: Kind, congestion: &str) -> Result<Self, Failure> {
        let doing = || Failure::doing("opening a socket");
        match kind {
            Kind::Tcp => {
                let listener = TcpListener::bind((control.local(), 0)).map_err(doing())?;
                control.send(&listener.local_addr().map_err(doing())?.port())?;
                Self::over(accept(&listener, control)?, congestion)
            }
            Kind::Udp => {
                let socket = UdpSocket::bind((control.local(), 0)).map_err(doing())?;
                control.send(&socket.local_addr().map_err(doing())?.port())?;
                let port: u16 = control.receive()?;
                socket.connect((control.peer(), port)).map_err(doing())?;
                Ok(Self::Udp(socket))
            }
        }
    }

    /// The other end.
    fn connect(
        control: &mut ControlChannel,
        kind: Kind,
        congestion: &str,
    ) -> Result<Self, Failure> {
        let port: u16 = control.receive()?;
        let (local, peer): (Ipv4Addr, _) =
            (control.local(), SocketAddr::from((control.peer(), port)));
        let doing = || Failure::doing(format!("opening a socket to {peer}"));
        match kind {
            Kind::Tcp => {
                let stream = TcpStream::connect_timeout(&peer, CONNECT_TIMEOUT);
                Self::over(stream.map_err(broken(format!("connecting to {peer}")))?, congestion)
            }
            Kind::Udp => {
                let socket = UdpSocket::bind((local, 0)).map_err(doing())?;
                socket.connect(peer).map_err(doing())?;
                control.send(&socket.local_addr().map_err(doing())?.port())?;
                Ok(Self::Udp(socket))
            }
        }
    }

    fn over(stream: TcpStream, congestion: &str) -> Result<Self, Failure> {
        let doing = format!(
            "choosing the congestion control {congestion} (`sysctl \
             net.ipv4.tcp_available_congestion_control` lists those of this kernel)"
        );
        let chosen = SockRef::from(&stream).set_tcp_congestion(congestion.as_bytes());
        chosen.map_err(Failure::doing(doing))?;
        Ok(Self::Tcp(stream))
    }

    fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(nodelay),
            Self::Udp(_) => Ok(()),
        }
    }

    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Self::Udp(socket) => socket.set_nonblocking(nonblocking),
        }
    }

    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        let socket = match self {
            Self::Tcp(stream) => SockRef::from(stream),
            Self::Udp(socket) => SockRef::from(socket),
        };
        socket.set_read_timeout(Some(timeout)).and(socket.set_write_timeout(Some(timeout)))
    }

    #[inline]
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => io::Write::write(&mut &*stream, bytes),
            Self::Udp(socket) => socket.send(bytes),
        }
    }

    #[inline]
    fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => io::Read::read(&mut &*stream, into),
            Self::Udp(socket) => socket.recv(into),
        }
    }
}

/// Waits for the client that was told the port, as long as it is there.
fn accept(listener: &TcpListener, control: &mut ControlChannel) -> Result<TcpStream, Failure> {
    // On Linux this is how long `accept` waits.
    let limited = SockRef::from(listener).set_read_timeout(Some(CHECK_INTERVAL));
    limited.map_err(Failure::doing("limiting a wait"))?;
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Ok(stream),
            Err(error) if !is_timeout(&error) => {
                return Err(Failure::doing("waiting for the client")(error));
            }
            // It has nothing to say before it has connected: it is gone, and that is the error.
            Err(_) if control.is_readable() => control.receive::<()>()?,
            Err(_) if Instant::now() > deadline => {
                return Err(Failure::told("the other end is there and does not connect"));
            }
            Err(_) => {}
        }
    }
}

/// Nothing came, or nothing could be sent, within the time that was set.
fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// For `map_err`: a send or a receive failed, most likely because the other end is gone.
fn broken(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
    move |error| match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::BrokenPipe => Failure::told(format!(
            "the other end is gone ({error}): see what it wrote to its standard error"
        )),
        _ => Failure::doing(doing)(error),
    }
}

/// How long the other end may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a wait goes on before it is looked whether the other end is still there.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_client_that_goes_before_it_connects_is_missed() {
        let (mut server, client) = ControlChannel::pair();
        let gone = thread::spawn(move || {
            let mut client = client;
            client.receive::<u16>()
        });
        let missed = Link::listen(&mut server, Kind::Tcp, "cubic").unwrap_err().to_string();
        assert!(missed.starts_with("the other end is gone"), "{missed}");
        gone.join().unwrap().unwrap();
    }

    #[test]
    fn a_server_that_goes_before_its_client_connects_is_missed() {
        let (mut server, mut client) = ControlChannel::pair();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        server.send(&listener.local_addr().unwrap().port()).unwrap();
        drop((server, listener));
        let missed = Link::connect(&mut client, Kind::Tcp, "cubic").unwrap_err().to_string();
        assert!(missed.starts_with("the other end is gone"), "{missed}");
    }
}
