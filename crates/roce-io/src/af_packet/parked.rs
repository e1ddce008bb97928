//! Sockets of closed devices, for the next device on their interface.

use std::os::fd::AsFd;

use super::{AfPacket, AfPacketConfig, Receiver};
use crate::sys::socket::Socket;
use crate::{filter, interfaces::find_interface, sys};

/// A packet socket without a user, with its receive ring. It receives no frame.
///
/// The kernel waits for all processors when such a socket is closed, and clears the memory of a ring
/// when one is made: some 20 ms each. A process that opens devices often keeps sockets instead. Dropping
/// one closes it.
#[derive(Debug)]
pub struct ParkedSocket {
    config: AfPacketConfig,
    socket: Socket,
    receiver: Receiver,
}

/// Most frames that can wait in a socket: those of the longest ring, and of the largest buffer.
const MAX_WAITING: usize = 1 << 16;

impl ParkedSocket {
    /// Parks the socket of a device; `None` closes it, as it cannot be kept: it is promiscuous, another process has
    /// given it, or the
    /// kernel refuses to change its filter.
    pub fn of(device: AfPacket) -> Option<Self> {
        let AfPacket { config, mut receiver, socket, giver, .. } = device;
        if config.promiscuous || giver.is_some() {
            return None;
        }
        socket.attach_filter(&filter::drop_all()).ok()?;
        receiver.clear(socket.as_fd(), MAX_WAITING).ok()?;
        Some(Self { config, socket, receiver })
    }

    /// Returns true if [`AfPacket::open`] with this configuration would make such a socket; the filter
    /// may differ.
    pub fn fits(&self, config: &AfPacketConfig) -> bool {
        let filter = self.config.filter.clone();
        self.config == AfPacketConfig { filter, ..config.clone() }
    }

    /// Makes a device of the socket, as [`AfPacket::open`] would; `None` closes it, as it cannot be
    /// used: it does not [fit](Self::fits), the program has closed its descriptor, or the interface was removed,
    /// is down, or has another name.
    pub fn reopen(mut self, config: &AfPacketConfig) -> Option<AfPacket> {
        if !self.socket.is_open() {
            return None;
        }
        let interface = find_interface(&config.interface).ok()?;
        let bound = sys::socket::bound_interface(&self.socket.local_addr().ok()?);
        if bound != Some(interface.index) || !self.fits(config) {
            return None;
        }
        // What happened to the interface meanwhile is over: it is up.
        let _past = self.socket.take_error().ok()?;
        // A processor may have been inside the filter of before when the socket was parked.
        self.receiver.clear(self.socket.as_fd(), MAX_WAITING).ok()?;
        sys::socket::packet_statistics(self.socket.as_fd()).ok()?;
        if config.qdisc_bypass {
            // The first train may have ended it.
            let (fd, level) = (self.socket.as_fd(), libc::SOL_PACKET);
            sys::socket::set_int(fd, level, libc::PACKET_QDISC_BYPASS, 1).ok()?;
        }
        let program = config.filter.program(interface.flags.loopback);
        self.socket.attach_filter(&program).ok()?;
        Some(AfPacket::of(config, interface, self.socket, self.receiver))
    }
}
