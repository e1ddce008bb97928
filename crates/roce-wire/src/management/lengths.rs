//! Lengths of a management datagram and of its parts.

/// Length of a management datagram in bytes.
//= rule cm-datagram-length: InfiniBand, clause not known
//# A management datagram has 256 bytes.
pub const MANAGEMENT_DATAGRAM_LEN: usize = 256;
/// Length of the common header in bytes.
pub const MANAGEMENT_HEADER_LEN: usize = 24;
/// Length of a message of connection management in bytes, which follows the common header.
pub const CM_BODY_LEN: usize = MANAGEMENT_DATAGRAM_LEN - MANAGEMENT_HEADER_LEN;
