//! Names of joins.

use std::net::IpAddr;

/// What tells the joins of an identifier apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JoinName {
    pub(crate) group: IpAddr,
    /// The program's number.
    pub(crate) context: u64,
}
