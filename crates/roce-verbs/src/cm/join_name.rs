//! Names of joins.

use std::net::IpAddr;

/// What tells the joins of an identifier apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JoinName {
    pub(super) group: IpAddr,
    /// The program's number.
    pub(super) context: u64,
}
