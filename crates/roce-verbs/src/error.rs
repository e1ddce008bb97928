//! What can go wrong, by whose fault, and what to do next.

use std::io;

use roce_io::{OpenError, PortError};
use roce_transport::{ApiMisuse, ModifyError, PostError};
use roce_wire::PathMtu;

use crate::exchange::ExchangeError;
use crate::netlink::RouteError;
use crate::thread_placement::ThreadPlacementError;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The interface cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// UDP port 4791 cannot be held.
    #[error(transparent)]
    Port(#[from] PortError),
    /// There is no way to the peer.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The device's thread cannot run where it was asked to.
    #[error(transparent)]
    ThreadPlacement(#[from] ThreadPlacementError),
    /// The two ends did not learn of each other.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// An attribute or transition that the standard does not allow.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// A queue pair cannot be made like this.
    #[error(transparent)]
    Misuse(#[from] ApiMisuse),
    /// The system refused something.
    #[error("the system refused: {0}")]
    System(#[from] io::Error),
    /// The objects of a parent process were used in its child.
    #[error("this object was made before fork; open the device anew in the child process")]
    Forked,
    /// The device is open already, and differently.
    #[error(
        "{interface} is already open in this process with other settings; use the same DeviceConfig or close it first"
    )]
    OpenedDifferently {
        /// The interface.
        interface: String,
    },
    /// A row of the GID table that does not exist or whose address the kernel has not got.
    #[error(
        "GID index {index} of {interface} is not usable; `roce devices -v` lists those that are"
    )]
    NoSuchGid {
        /// What was asked for.
        index: u8,
        /// The interface.
        interface: String,
    },
    /// The interface has no address to send from.
    #[error(
        "{interface} has no usable address: give it one first (ip address add 10.0.0.1/24 dev {interface})"
    )]
    NoAddress {
        /// The interface.
        interface: String,
    },
    /// Own and peer's address are not of one family.
    #[error(
        "GID index {index} is {own}, the peer's GID is {peer}: both must be IPv4 or both IPv6; choose another GID index"
    )]
    FamiliesDiffer {
        /// Row of the own table.
        index: u8,
        /// The own address.
        own: std::net::IpAddr,
        /// The peer's address.
        peer: std::net::IpAddr,
    },
    /// The path in a queue pair's attributes was dropped, or is another device's.
    #[error(
        "the attributes name a path that does not exist any more; resolve the address again and keep the path until the queue pair has it"
    )]
    NoSuchPath,
    /// The path MTU does not fit the interface.
    #[error(
        "path MTU {requested} does not fit {interface}, whose MTU of {netdev_mtu} allows {allowed}; raise it (ip link set {interface} mtu {needed}) or ask for less"
    )]
    PathMtuTooLarge {
        /// What was asked for, in bytes.
        requested: usize,
        /// The interface.
        interface: String,
        /// Its MTU.
        netdev_mtu: u32,
        /// What fits, in bytes; 0 when nothing does.
        allowed: usize,
        /// The MTU that it would take.
        needed: usize,
    },
    /// A region cannot be registered.
    #[error(
        "registering {len} bytes at {address:#x} failed: {source}; is the range mapped, and writable where writing is asked for?"
    )]
    Register {
        /// Where.
        address: u64,
        /// How many bytes.
        len: usize,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Remote writing or atomics without local writing.
    #[error("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE too")]
    RemoteWithoutLocalWrite,
    /// A range beyond a region.
    #[error("{len} bytes at offset {offset} leave a region of {region_len} bytes")]
    OutOfRegion {
        /// First byte.
        offset: usize,
        /// How many bytes.
        len: usize,
        /// Bytes of the region.
        region_len: usize,
    },
    /// A completion queue or channel of another device, or none where one is needed.
    #[error("the completion queue does not report on this channel")]
    NoChannel,
    /// Objects of two devices in one call.
    #[error("the objects belong to different devices; make them all from one Device")]
    OtherDevice,
    /// A completion queue without room.
    #[error("a completion queue holds 1 to {max} completions, not {requested}")]
    QueueCapacity {
        /// What was asked for.
        requested: usize,
        /// What is possible.
        max: usize,
    },
}

/// Work that was refused, and where in the list it stood: what stands before it was posted.
#[derive(Debug, thiserror::Error)]
#[error("work request {index} of the list: {source}")]
pub struct BadWr {
    /// The first request that was not posted.
    pub index: usize,
    /// Why.
    #[source]
    pub source: WrError,
}

/// Why work was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WrError {
    /// The request itself.
    #[error(transparent)]
    Post(#[from] PostError),
    /// The whole queue pair; see [`Error::Forked`].
    #[error("this queue pair was made before fork; open the device anew in the child process")]
    Forked,
}

impl Error {
    pub(crate) fn path_mtu_too_large(requested: PathMtu, port: &crate::port::Port) -> Self {
        let attributes = port.attributes(0);
        Self::PathMtuTooLarge {
            requested: requested.bytes(),
            interface: port.name().to_owned(),
            netdev_mtu: attributes.netdev_mtu,
            allowed: attributes.active_mtu.map_or(0, PathMtu::bytes),
            needed: requested.bytes() + 80,
        }
    }
}
