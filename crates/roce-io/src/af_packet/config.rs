//! The configuration of a device over a packet socket.

use std::{io, net::Ipv4Addr, os::fd::AsFd, path::PathBuf};

use crate::{Filter, GsoMode, error::OpenError, sockets, sys, vnet_hdr};

/// Configuration of an [`AfPacket`](crate::AfPacket).
///
/// ```
/// use roce_io::{AfPacketConfig, GsoMode};
///
/// let config = AfPacketConfig { gso: GsoMode::Off, ..AfPacketConfig::new("eth0") };
/// assert_eq!(config.interface, "eth0");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfPacketConfig {
    /// The interface's name.
    pub interface: String,
    /// How frames are received.
    pub receive: ReceiveMode,
    /// Frames that may wait for the kernel, 1..=64. Default 8: more costs cache and gains nothing.
    pub transmit_slots: usize,
    /// Bypass the interface's queueing discipline. Default true. On an interface that does not
    /// take trains whole (a tap, a card) the device ends the bypass at the first train: the kernel
    /// segments only on the path through the queueing discipline.
    pub qdisc_bypass: bool,
    /// When to send trains. Default [`GsoMode::Auto`].
    pub gso: GsoMode,
    /// Maximum number of packets in a train, 1 to [`probe_max_segments`]. Default 64.
    pub max_train_packets: usize,
    /// Frames to receive.
    pub filter: Filter,
    /// Receive all frames of the interface instead, of any protocol and for any host. The kernel takes
    /// the outer VLAN tag off: [`RxFrame::vlan_tag`](crate::RxFrame::vlan_tag) has it. With
    /// [`ReceiveMode::Mmsg`] no frame with a tag is received. The interface is promiscuous as long as
    /// the device exists. Default false.
    pub promiscuous: bool,
    /// Bytes of the longest frame to receive, at most [`MAX_RECEIVED_LEN`](Self::MAX_RECEIVED_LEN), the
    /// default. Longer ones are counted as unusable.
    pub max_receive_len: usize,
    /// Bytes of socket receive buffer to request, for [`ReceiveMode::Mmsg`]. The system's limit
    /// silently reduces it. Default 64 MiB.
    pub receive_buffer_len: usize,
    /// Bytes of socket send buffer to request. Default 4 MiB.
    pub send_buffer_len: usize,
    /// A unix socket at which another process gives packet sockets, for a process that may not open any. Default:
    /// none.
    pub giver: Option<PathBuf>,
    /// Open the interface also while it is down: it carries packets as soon as it is up. Default false.
    pub may_be_down: bool,
}

impl AfPacketConfig {
    /// Bytes of the longest frame that can be received: an Ethernet header with two VLAN tags, and the
    /// longest IP packet.
    pub const MAX_RECEIVED_LEN: usize = vnet_hdr::MAX_RECEIVED_LEN;

    /// Returns the defaults for an interface.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            receive: ReceiveMode::default(),
            transmit_slots: 8,
            qdisc_bypass: true,
            gso: GsoMode::Auto,
            max_train_packets: 64,
            filter: Filter::default(),
            promiscuous: false,
            max_receive_len: Self::MAX_RECEIVED_LEN,
            receive_buffer_len: 64 << 20,
            send_buffer_len: 4 << 20,
            giver: None,
            may_be_down: false,
        }
    }

    pub(super) fn check(&self) -> Result<(), OpenError> {
        let bad = |what| Err(OpenError::BadConfig { what });
        match self.receive {
            ReceiveMode::Ring { slots } if !(1..=MAX_RING_SLOTS).contains(&slots) => {
                return bad("a receive ring has 1 to 4096 slots");
            }
            ReceiveMode::Mmsg { batch } if !(1..=sys::mmsg::MAX_BATCH).contains(&batch) => {
                return bad("a receive batch has 1 to 64 frames");
            }
            _ => {}
        }
        if !(1..=sys::mmsg::MAX_BATCH).contains(&self.transmit_slots) {
            return bad("there are 1 to 64 transmit slots");
        }
        if !(1..=Self::MAX_RECEIVED_LEN).contains(&self.max_receive_len) {
            return bad("a received frame has 1 to 65557 bytes");
        }
        if self.max_train_packets == 0 {
            return bad("a train holds at least one packet");
        }
        Ok(())
    }
}

/// How frames are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveMode {
    /// A ring shared with the kernel: lowest latency, highest throughput, and needs no privileged
    /// buffer size.
    Ring {
        /// Frames the ring holds, 1..=4096. A block of 1 MiB holds 15, or more of a lower
        /// `max_receive_len`; the number is rounded up to whole blocks.
        slots: usize,
    },
    /// `recvmmsg` into `batch` buffers of 64 KiB.
    Mmsg {
        /// Frames received in one system call, 1..=64.
        batch: usize,
    },
}

impl Default for ReceiveMode {
    fn default() -> Self {
        Self::Ring { slots: 128 }
    }
}

/// Returns the maximum number of packets that this kernel takes in one train: 64 on older kernels,
/// 128 on newer ones, 64 if the probe fails, for example while `lo` is down.
pub fn probe_max_segments() -> usize {
    if takes_segments(128).unwrap_or(false) { 128 } else { 64 }
}

/// Returns true if a UDP socket can send itself `count` segments of one byte at once: the kernel
/// has one limit for UDP and packet sockets.
fn takes_segments(count: usize) -> io::Result<bool> {
    let socket = sockets::bind_udp((Ipv4Addr::LOCALHOST, 0).into())?;
    sys::socket::set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 1)?;
    match socket.send_to(&vec![0; count], socket.local_addr()?) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

const MAX_RING_SLOTS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_64_or_128_segments_and_not_a_thousand() {
        assert!([64, 128].contains(&probe_max_segments()));
        assert!(!takes_segments(1000).unwrap_or(false));
    }

    #[test]
    fn an_invalid_configuration_is_refused() {
        let fine = AfPacketConfig::new("lo");
        assert!(fine.check().is_ok());
        for bad in [
            AfPacketConfig { receive: ReceiveMode::Ring { slots: 0 }, ..fine.clone() },
            AfPacketConfig { receive: ReceiveMode::Ring { slots: 4097 }, ..fine.clone() },
            AfPacketConfig { receive: ReceiveMode::Mmsg { batch: 65 }, ..fine.clone() },
            AfPacketConfig { transmit_slots: 0, ..fine.clone() },
            AfPacketConfig { transmit_slots: 65, ..fine.clone() },
            AfPacketConfig { max_receive_len: 0, ..fine.clone() },
            AfPacketConfig { max_receive_len: 1 << 20, ..fine.clone() },
            AfPacketConfig { max_train_packets: 0, ..fine.clone() },
        ] {
            assert!(matches!(bad.check(), Err(OpenError::BadConfig { .. })), "{bad:?}");
        }
    }
}
