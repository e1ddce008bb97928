//! Where a datagram goes.

use roce_wire::{PathMtu, Qpn};

use crate::PathAttributes;

/// Where a datagram goes; as `ibv_ah` and the `ud` part of `ibv_send_wr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The path.
    pub path: PathAttributes,
    /// Largest payload of a packet on the path.
    pub mtu: PathMtu,
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// Q_Key of the packet. If its top bit is set, the queue pair's own is sent instead.
    pub q_key: u32,
}
