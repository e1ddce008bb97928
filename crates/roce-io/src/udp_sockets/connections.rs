//! Connections to the devices of other processes, by which datagrams are passed on.

use std::io;
use std::os::fd::AsFd;

use socket2::{Domain, Type};

use crate::{
    sockets::{abstract_address, namespace_of},
    sys::{self, socket::Socket},
};

/// Connections that may wait until a device takes them.
pub(super) const BACKLOG: i32 = 1024;
/// Connections that are kept.
const MAX_CONNECTIONS: usize = 64;
/// Sockets that are made with the device, for threads in other network namespaces.
const SPARE: usize = 16;
/// Bytes of send buffer of each connection to request.
const SEND_BUFFER_LEN: i32 = 4 << 20;

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsent {
    /// Another user has the name.
    NotOurs,
    /// No process has the name, or it has no room.
    NotTaken,
}

/// Connections to names that processes of this user have, the one used last behind the others.
#[derive(Debug)]
pub(super) struct Connections {
    pub(super) user: u32,
    namespace: Option<u64>,
    /// Of the device's network namespace, whatever namespace the thread that needs one is in.
    spare: Vec<Socket>,
    /// One that could not be connected or bound, and is used next.
    unconnected: Option<Socket>,
    all: Vec<(String, Socket)>,
}

impl Connections {
    /// Makes the set for a device in this thread's network namespace.
    pub(super) fn new() -> io::Result<Self> {
        let spare = (0..SPARE).map(|_| open()).collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            user: sys::passing::effective_user(),
            namespace: spare.first().and_then(namespace_of),
            spare,
            unconnected: None,
            all: Vec::new(),
        })
    }

    /// Returns a socket of the device's network namespace that is neither bound nor connected.
    ///
    /// # Errors
    /// The kernel's; `NotFound` if this thread is in another namespace and has used what was made for that.
    pub(super) fn socket(&mut self) -> io::Result<Socket> {
        if let Some(kept) = self.unconnected.take() {
            return Ok(kept);
        }
        let socket = open()?;
        if namespace_of(&socket) == self.namespace {
            return Ok(socket);
        }
        self.spare.pop().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Takes a socket back that is still neither bound nor connected.
    pub(super) fn give_back(&mut self, socket: Socket) {
        self.unconnected = Some(socket);
    }

    /// Sends a message to the process that has a name, if it is one of this user.
    pub(super) fn send(&mut self, name: &str, message: &[u8]) -> Result<(), Unsent> {
        if let Some(place) = self.all.iter().position(|(known, _)| known == name) {
            let connection = self.all.remove(place);
            match transmit(&connection.1, message) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.all.push(connection);
                    return Err(Unsent::NotTaken);
                }
                // Its process has ended, or has closed the connection for want of room.
                Err(_) => {}
                Ok(()) => {
                    self.all.push(connection);
                    return Ok(());
                }
            }
        }
        let socket = self.connect(name)?;
        let sent = transmit(&socket, message);
        if self.all.len() >= MAX_CONNECTIONS {
            self.all.remove(0);
        }
        self.all.push((name.to_owned(), socket));
        sent.map_err(|_| Unsent::NotTaken)
    }

    /// Returns true if a user at the other end of a connection is this one.
    pub(super) fn is_own(&self, user: u32) -> bool {
        sys::passing::is_user(user, self.user)
    }

    /// Finds out whether a process of this user has a name.
    pub(super) fn check(&mut self, name: &str) -> Result<(), Unsent> {
        self.connect(name).map(drop)
    }

    /// Connects to a name. Nothing is sent before the kernel has told the user that has it.
    fn connect(&mut self, name: &str) -> Result<Socket, Unsent> {
        let address = abstract_address(name).map_err(|_| Unsent::NotTaken)?;
        let socket = self.socket().map_err(|_| Unsent::NotTaken)?;
        if let Err(error) = socket.connect(&address) {
            self.give_back(socket);
            // A socket of another kind is none of ours.
            return Err(match error.raw_os_error() {
                Some(libc::EPROTOTYPE) => Unsent::NotOurs,
                _ => Unsent::NotTaken,
            });
        }
        match sys::passing::peer_user(socket.as_fd()) {
            Ok(user) if self.is_own(user) => Ok(socket),
            _ => Err(Unsent::NotOurs),
        }
    }
}

fn open() -> io::Result<Socket> {
    let socket = sys::socket::open(Domain::UNIX, Type::SEQPACKET, None)?;
    socket.set_nonblocking(true)?;
    let force = (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE);
    if sys::socket::set_int(socket.as_fd(), force.0, force.1, SEND_BUFFER_LEN).is_err() {
        socket.set_send_buffer_size(SEND_BUFFER_LEN as usize)?;
    }
    Ok(socket)
}

fn transmit(socket: &Socket, message: &[u8]) -> io::Result<()> {
    socket.send_with_flags(message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_process_has_use_up_no_socket() {
        // As for a thread in another network namespace, which has only the sockets made for that.
        let mut connections = Connections { namespace: Some(0), ..Connections::new().unwrap() };
        for block in 0..=SPARE {
            let name = format!("roce-io/connections/{}/{block}", std::process::id());
            assert_eq!(connections.send(&name, b"message"), Err(Unsent::NotTaken));
            assert_eq!(connections.check(&name), Err(Unsent::NotTaken));
        }
        for left in (0..SPARE).rev() {
            assert!(connections.socket().is_ok(), "{left} should be left");
        }
        assert_eq!(connections.socket().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
