//! The options of sockets that receive.

use std::{io, os::fd::AsFd};

use socket2::SockFilter;

use crate::sys::socket::Socket;
use crate::{InterfaceInfo, sys};

/// How a socket that receives is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup<'a> {
    pub(super) interface: &'a InterfaceInfo,
    /// Bytes of receive buffer to request.
    pub(super) buffer_len: usize,
    /// Drops what no peer can have sent; none if it is empty.
    pub(super) filter: &'a [SockFilter],
}

impl Setup<'_> {
    /// Sets the options of a socket that is bound.
    pub(super) fn prepare(self, socket: &Socket) -> io::Result<()> {
        let set = |level, name, value| sys::socket::set_int(socket.as_fd(), level, name, value);
        if self.interface.kind.segments_in_software() {
            // A card would merge packets whose identifications differ.
            set(libc::SOL_UDP, libc::UDP_GRO, 1)?;
        }
        if !self.filter.is_empty() {
            socket.attach_filter(self.filter)?;
        }
        let len = i32::try_from(self.buffer_len).unwrap_or(i32::MAX);
        if set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, len).is_err() {
            socket.set_recv_buffer_size(self.buffer_len)?;
        }
        Ok(())
    }
}
