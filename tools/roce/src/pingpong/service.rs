//! The services of ping-pongs, each that of a program in rdma-core.

use clap::ValueEnum;
use roce_verbs::{Device, GRH_LEN, Service};

use crate::error::{CliError, Result};

/// What a ping-pong runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PingPongService {
    /// Reliable connection, as ibv_rc_pingpong
    Rc,
    /// Unreliable connection, as ibv_uc_pingpong
    Uc,
    /// Datagrams, as ibv_ud_pingpong
    Ud,
    /// Reliable connections with a shared receive queue, as ibv_srq_pingpong
    Srq,
}

impl PingPongService {
    /// Returns the service of its queue pairs.
    pub(super) fn of_queue_pairs(self) -> Service {
        match self {
            Self::Rc | Self::Srq => Service::Rc,
            Self::Uc => Service::Uc,
            Self::Ud => Service::Ud,
        }
    }

    /// Returns true if lost messages are sent again.
    pub(super) fn is_reliable(self) -> bool {
        self.of_queue_pairs() == Service::Rc
    }

    /// Returns the bytes in front of each received message.
    pub(super) fn header_len(self) -> usize {
        if self == Self::Ud { GRH_LEN } else { 0 }
    }

    /// Returns the addresses that each end sends, whatever the number of its queue pairs.
    pub(super) fn lines(self) -> usize {
        if self == Self::Srq { 256 } else { 1 }
    }

    /// Returns the default bytes of a message.
    pub(super) fn default_size(self) -> u32 {
        if self == Self::Ud { 2048 } else { 4096 }
    }

    /// Checks that a message fits: a datagram is one packet.
    pub(super) fn check_size(self, size: u32, device: &Device) -> Result {
        let mtu = device.port()?.active_mtu.map_or(0, roce_verbs::PathMtu::bytes);
        if self == Self::Ud && size as usize > mtu {
            return Err(CliError::new(format!(
                "a datagram of {size} bytes is longer than the port MTU of {mtu}: lower -s or \
                 raise the MTU of {}",
                device.interface()
            )));
        }
        Ok(())
    }
}
