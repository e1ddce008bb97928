//! Lengths of the headers of the transport.

/// Length of a BTH on the wire, in bytes.
pub const BTH_LEN: usize = 12;

/// Length of a RETH on the wire, in bytes.
pub const RETH_LEN: usize = 16;

/// Length of a FETH on the wire, in bytes.
pub const FETH_LEN: usize = 4;

/// Length of an AtomicETH on the wire, in bytes.
pub const ATOMIC_ETH_LEN: usize = 28;

/// Length of an AETH on the wire, in bytes.
pub const AETH_LEN: usize = 4;

/// Length of an AtomicAckETH on the wire, in bytes.
pub const ATOMIC_ACK_ETH_LEN: usize = 8;

/// Length of a DETH on the wire, in bytes.
pub const DETH_LEN: usize = 8;

/// Length of immediate data on the wire, in bytes.
pub const IMMEDIATE_LEN: usize = 4;

/// Length of an IETH on the wire, in bytes.
pub const INVALIDATE_KEY_LEN: usize = 4;
