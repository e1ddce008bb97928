//! Errors of connection management.

use std::io;
use std::net::SocketAddr;

use roce_cm::AgentError;
use roce_engine::RouteError;
use roce_transport::ApiMisuse;

/// An error of connection management.
///
/// ```
/// use roce_verbs::cm::Error;
/// assert_eq!(Error::WrongState { call: "listen" }.errno(), 22); // EINVAL
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The identifier is in a state in which this call makes no sense.
    #[error(
        "{call} is not possible in this state of the identifier; see the order of calls of `cm`"
    )]
    WrongState {
        /// The call.
        call: &'static str,
    },
    /// The identifier was destroyed.
    #[error("the identifier was destroyed; create another one")]
    Destroyed,
    /// Another identifier has the port, in this process or in another one of this host.
    #[error("{address} is in use; choose another port, or end the program that listens there")]
    AddressInUse {
        /// Address and port.
        address: SocketAddr,
    },
    /// Another identifier has the port for any address, or this one asks for any.
    #[error("{address} overlaps with an address that is in use; choose another port")]
    AddressOverlaps {
        /// Address and port.
        address: SocketAddr,
    },
    /// No port is left.
    #[error("no port of the range for automatic ports is free; end programs that listen")]
    NoPortLeft,
    /// No device has the address.
    #[error("no device has {address}; `roce devices -v` lists their addresses")]
    NoDevice {
        /// The address.
        address: std::net::IpAddr,
    },
    /// This host does not have the address.
    #[error("{address} is no address of this host; `ip address` lists them")]
    ForeignAddress {
        /// The address.
        address: std::net::IpAddr,
    },
    /// The kernel has no route to the destination.
    #[error(
        "no route to {destination}: add an address or a route (`ip route get` shows what the kernel would do)"
    )]
    NoRoute {
        /// The destination.
        destination: std::net::IpAddr,
    },
    /// The address is of no multicast group.
    #[error("{address} is no multicast address; take one of 224.0.0.0/4 or ff00::/8")]
    NotAGroup {
        /// The address.
        address: std::net::IpAddr,
    },
    /// The identifier has joined too many groups.
    #[error("the identifier has joined {limit} groups; leave some, or use another identifier")]
    TooManyGroups {
        /// Most groups of an identifier.
        limit: usize,
    },
    /// The identifier has not joined the group, or has left it.
    #[error("the identifier has not joined {group} with this number; join it first")]
    NotJoined {
        /// The group.
        group: std::net::IpAddr,
    },
    /// Ports of IPoIB are on InfiniBand alone.
    #[error("no device of RoCE has ports of IPoIB; take another port space")]
    NoIpoib,
    /// The ACK timeout is one of connections.
    #[error("datagrams are not acknowledged; set the ACK timeout of an identifier of connections")]
    NotAcknowledged,
    /// One address is IPv4, the other IPv6.
    #[error("the addresses are of two IP versions; use two of one version")]
    FamiliesDiffer,
    /// Something that the agent refuses.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A value out of its range.
    #[error("{value} is out of range")]
    OutOfRange {
        /// Name of the value.
        value: &'static str,
    },
    /// An error of a device.
    #[error(transparent)]
    Device(#[from] crate::Error),
    /// A system call failed.
    #[error("system call failed: {0}")]
    System(#[from] io::Error),
}

impl Error {
    /// Returns the error number that rdma_cm gives.
    pub fn errno(&self) -> i32 {
        match self {
            Self::WrongState { .. } | Self::Destroyed | Self::FamiliesDiffer => libc::EINVAL,
            Self::OutOfRange { .. } | Self::NotAGroup { .. } => libc::EINVAL,
            Self::NoIpoib | Self::NotAcknowledged => libc::EINVAL,
            Self::TooManyGroups { .. } => libc::ENOMEM,
            Self::NotJoined { .. } => libc::EADDRNOTAVAIL,
            Self::AddressInUse { .. } => libc::EADDRINUSE,
            Self::NoPortLeft | Self::AddressOverlaps { .. } | Self::ForeignAddress { .. } => {
                libc::EADDRNOTAVAIL
            }
            Self::NoDevice { .. } => libc::ENODEV,
            Self::NoRoute { .. } => libc::ENETUNREACH,
            Self::Agent(AgentError::PortInUse(_)) => libc::EADDRINUSE,
            Self::Agent(AgentError::NoIds) => libc::ENOMEM,
            Self::Agent(AgentError::Established(_)) => libc::EISCONN,
            Self::Agent(_) => libc::EINVAL,
            Self::Device(error) => errno_of_device(error),
            Self::System(error) => error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

fn errno_of_device(error: &crate::Error) -> i32 {
    match error {
        crate::Error::Misuse(ApiMisuse::QpExists(_)) | crate::Error::Port(_) => libc::EBUSY,
        crate::Error::Open(_) => libc::ENODEV,
        crate::Error::Route(error) => errno_of_route(error),
        crate::Error::System(error) => error.raw_os_error().unwrap_or(libc::EIO),
        _ => libc::EIO,
    }
}

/// Returns the error number of an address that was not resolved.
pub(crate) fn errno_of_route(error: &RouteError) -> i32 {
    match error {
        RouteError::NoRoute { .. } => libc::ENETUNREACH,
        RouteError::NoNeighbour { .. } => libc::ETIMEDOUT,
        _ => libc::EIO,
    }
}
