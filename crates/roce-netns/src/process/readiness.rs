//! What shows that a server accepts clients.

use std::fmt;

use crate::listening::{has_abstract_socket, is_listening};

/// A sign by which a server in a host shows that it accepts clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It listens at this TCP port.
    Tcp(u16),
    /// It has a socket of the local domain whose abstract name begins with this text.
    AbstractSocket(&'static str),
}

impl Readiness {
    /// Returns true if a program in the network namespace of a process is ready.
    pub(super) fn is_seen(self, process: u32) -> bool {
        match self {
            Self::Tcp(port) => is_listening(process, Some(port)),
            Self::AbstractSocket(start) => has_abstract_socket(process, start),
        }
    }
}

impl From<u16> for Readiness {
    fn from(port: u16) -> Self {
        Self::Tcp(port)
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(port) => write!(f, "at port {port}"),
            Self::AbstractSocket(start) => write!(f, "at @{start}"),
        }
    }
}
