//! Which frames a packet socket lets in, as a classic BPF program.

use crate::ROCE_UDP_PORT;

/// Which frames a device lets in: UDP to one port over IPv4 (no options, no fragments) or IPv6,
/// untagged, and to the queue pairs of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Destination UDP port.
    pub udp_port: u16,
    /// Destination queue pairs.
    pub qpn_blocks: QpnBlocks,
}

/// Queue pair numbers by blocks of 4 096: a block is `number >> 12`, 0..=0xfff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QpnBlocks {
    /// Every queue pair.
    Any,
    /// These blocks alone; an empty list lets nothing in.
    Only(Vec<u16>),
}

impl Default for Filter {
    fn default() -> Self {
        Self { udp_port: ROCE_UDP_PORT, qpn_blocks: QpnBlocks::Any }
    }
}
