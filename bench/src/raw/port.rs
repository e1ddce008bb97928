//! An interface opened as a RoCE device opens it.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::frame::{self, Addresses, ROCE_PORT};
use super::sys::{self, Interface, PacketSocket, Ring};
use crate::control_channel::ControlChannel;
use crate::program::Failure;

/// A packet socket with its ring, and the socket that holds the UDP port.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) interface: Interface,
    pub(crate) socket: PacketSocket,
    pub(crate) ring: Ring,
    _held: UdpSocket,
}

impl Port {
    /// Opens an interface of this thread's network namespace, with a ring of at least `slots`.
    pub(crate) fn open(name: &str, slots: usize) -> Result<Self, Failure> {
        let interface = sys::interface(name).map_err(|source| {
            Failure::told(format!(
                "no interface {name} here ({source}): `ip link` shows those of this namespace"
            ))
        })?;
        let held = format!("holding UDP port {ROCE_PORT} (a RoCE program or rdma_rxe has it?)");
        let held = sys::hold_udp_port(ROCE_PORT).map_err(Failure::doing(held))?;
        let socket = PacketSocket::new(&frame::filter(), true)
            .map_err(Failure::doing("opening a packet socket"))?;
        let ring = Ring::new(socket.as_fd(), slots)
            .map_err(Failure::doing(format!("making a ring of {slots} slots of 64 KiB")))?;
        socket.bind(interface.index).map_err(Failure::doing(format!("binding to {name}")))?;
        Ok(Self { interface, socket, ring, _held: held })
    }

    /// Source and destination of frames to the peer.
    pub(crate) fn addresses(&self, control: &ControlChannel) -> Result<Addresses, Failure> {
        self.addresses_to(control.local(), control.peer())
    }

    /// Source and destination of frames from this host's address to a neighbour.
    pub(crate) fn addresses_to(
        &self,
        local: Ipv4Addr,
        peer: Ipv4Addr,
    ) -> Result<Addresses, Failure> {
        Ok(Addresses {
            source_mac: self.interface.mac,
            destination_mac: neighbour(peer)?,
            source: local.octets(),
            destination: peer.octets(),
        })
    }

    /// Sends frames, and waits where the interface takes none for a moment.
    pub(crate) fn send_all<'a>(
        &self,
        frames: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ) -> Result<(), Failure> {
        let (mut sent, mut refused_since) = (0, None);
        while sent < frames.len() {
            match self.socket.send_many(frames.clone().skip(sent)) {
                Ok(count) => (sent, refused_since) = (sent + count, None),
                // A full queue, or a carrier that is not there yet.
                Err(error) if is_passing(&error) => {
                    let since: Instant = *refused_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > SEND_TIMEOUT {
                        return Err(Failure::doing("sending (is the link up at both ends?)")(
                            error,
                        ));
                    }
                }
                Err(error) => return Err(Failure::doing("sending trains")(error)),
            }
        }
        Ok(())
    }
}

const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The MAC address of a neighbour that this host has just spoken with.
fn neighbour(address: Ipv4Addr) -> Result<[u8; 6], Failure> {
    let table = "/proc/thread-self/net/arp";
    let text = fs::read_to_string(table).map_err(Failure::doing(format!("reading {table}")))?;
    mac_in(&text, address).ok_or_else(|| {
        Failure::told(format!(
            "{address} is not a neighbour: the two ends have to be on one Ethernet, in two \
             namespaces"
        ))
    })
}

/// The row of `address` in the kernel's table: address, type, flags, MAC address, mask, device.
fn mac_in(table: &str, address: Ipv4Addr) -> Option<[u8; 6]> {
    let address = address.to_string();
    let row = table.lines().find(|row| row.split_whitespace().next() == Some(&address))?;
    let mut bytes = row.split_whitespace().nth(3)?.split(':');
    let mut mac = [0; 6];
    for byte in &mut mac {
        *byte = u8::from_str_radix(bytes.next()?, 16).ok()?;
    }
    (mac != [0; 6]).then_some(mac)
}

/// Whether an error of a send passes by itself: the device's queue is full, or has no carrier yet.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN | libc::EINTR | libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use super::mac_in;

    #[test]
    fn a_neighbour_is_found_by_its_whole_address() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     10.0.0.11        0x1         0x2         02:00:00:00:00:0b     *        eth0\n\
                     10.0.0.1         0x1         0x2         02:00:00:00:00:01     *        eth0\n\
                     10.0.0.3         0x1         0x0         00:00:00:00:00:00     *        eth0\n";
        let mac = |text: &str| mac_in(table, text.parse().unwrap());
        assert_eq!(mac("10.0.0.1"), Some([2, 0, 0, 0, 0, 1]));
        assert_eq!(mac("10.0.0.11"), Some([2, 0, 0, 0, 0, 11]));
        assert_eq!(mac("10.0.0.3"), None, "not resolved");
        assert_eq!(mac("10.0.0.2"), None);
    }
}
