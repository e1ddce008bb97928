//! TCP connections that are opened at a time, until all are accepted.
//!
//! ```text
//! server# sockets_connections --listen --cpu 1
//! client# sockets_connections --to 10.0.0.1 --cpu 0 --count 1000
//! {"connections":1000,"per_second":91324.2,"program":"sockets_connections","seconds":0.01095}
//! ```

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::{Value, json};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{CONNECT_TIMEOUT, broken};
use crate::control_channel::ControlChannel;
use crate::program::{EndOptions, Failure};

/// TCP connections a second: all are opened without waiting, and accepted.
#[derive(Clone, Debug, Parser)]
#[command(name = "sockets_connections", about)]
pub struct Options {
    /// Which end this is. It measures once, whatever the time.
    #[command(flatten)]
    pub end: EndOptions,
    /// Number of connections. The client's word counts.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub count: u32,
}

/// Runs one end and returns what there is to report.
///
/// # Errors
/// The other end is missing or goes.
pub fn run(options: &Options) -> Result<Value, Failure> {
    let Some(server) = options.end.server() else {
        let mut control = ControlChannel::listen(options.end.port)?;
        return accept_all(&mut control);
    };
    let mut control = ControlChannel::connect(server, options.end.port)?;
    control.send(&options.count)?;
    let port: u16 = control.receive()?;
    let address = SocketAddr::from((control.peer(), port));
    let started = Instant::now();
    let opened = connect_all(address, options.count)?;
    // Now the other end has accepted all.
    control.receive::<()>()?;
    let seconds = started.elapsed().as_secs_f64();
    let report = json!({
        "program": "sockets_connections",
        "connections": opened.len(),
        "seconds": seconds,
        "per_second": opened.len() as f64 / seconds,
    });
    control.send(&report)?;
    Ok(report)
}

fn accept_all(control: &mut ControlChannel) -> Result<Value, Failure> {
    let count: u32 = control.receive()?;
    let listener = listener(control.local()).map_err(Failure::doing("opening a socket"))?;
    let address = listener.local_addr().map_err(Failure::doing("looking up a port"))?;
    let port = address.as_socket().map(|address| address.port());
    control.send(&port.ok_or_else(|| Failure::told("the socket has no port"))?)?;
    let mut accepted = Vec::new();
    for _ in 0..count {
        let (socket, _) = listener.accept().map_err(Failure::doing("waiting for a connection"))?;
        accepted.push(socket);
    }
    control.send(&())?;
    control.receive()
}

/// Returns a socket that takes a thousand connections before the first is accepted.
fn listener(address: Ipv4Addr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    // On Linux this is how long `accept` waits.
    socket.set_read_timeout(Some(CONNECT_TIMEOUT))?;
    socket.bind(&SocketAddr::from((address, 0)).into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Opens all connections, and waits for each.
fn connect_all(address: SocketAddr, count: u32) -> Result<Vec<Socket>, Failure> {
    let failed = || broken(format!("connecting to {address}"));
    let to = SockAddr::from(address);
    let mut sockets = Vec::new();
    for _ in 0..count {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).map_err(failed())?;
        socket.set_nonblocking(true).map_err(failed())?;
        match socket.connect(&to) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => {
                return Err(failed()(error));
            }
            _ => sockets.push(socket),
        }
    }
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    for socket in &sockets {
        wait(socket, deadline).map_err(failed())?;
    }
    Ok(sockets)
}

fn wait(socket: &Socket, deadline: Instant) -> io::Result<()> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;

    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    let mut entry = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut entry, timeout)? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    socket.take_error()?.map_or(Ok(()), Err)
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn all_connections_are_accepted_and_counted() {
        let (mut server, mut client) = ControlChannel::pair();
        let serving = thread::spawn(move || accept_all(&mut server));
        client.send(&20).unwrap();
        let port: u16 = client.receive().unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let opened = connect_all(address, 20).unwrap();
        client.receive::<()>().unwrap();
        assert!(opened.len() == 20 && opened.iter().all(|socket| socket.peer_addr().is_ok()));
        client.send(&json!("a report")).unwrap();
        assert_eq!(serving.join().unwrap().unwrap(), json!("a report"));
    }

    #[test]
    fn a_port_where_nothing_listens_is_an_error() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let refused = connect_all(free, 3).unwrap_err().to_string();
        assert!(refused.contains("the other end is gone"), "{refused}");
    }
}
