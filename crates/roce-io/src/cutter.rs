//! Cuts a train into the packets that the kernel would put on the wire.

/// What to do with the UDP checksum of each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpChecksum {
    /// Zero: none, as RoCEv2 endpoints send.
    Zero,
    /// The right one, as the kernel fills in when it cuts.
    Completed,
}

/// Cuts trains, keeping one buffer between calls.
#[derive(Debug, Default)]
pub struct Cutter {
    packet: Vec<u8>,
}
