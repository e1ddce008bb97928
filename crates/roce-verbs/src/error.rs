//! Errors of verbs, each with what to do next.

use std::io;
use std::net::IpAddr;

use roce_engine::RouteError;
use roce_io::{OpenError, PortError};
use roce_transport::{ApiMisuse, AttachError, MemoryFault, ModifyError, ModifySrqError};
use roce_wire::PathMtu;

use crate::exchange::ExchangeError;
use crate::process::thread_placement::ThreadPlacementError;
use crate::verb_faults::InjectedError;

/// An error of a verb.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The interface cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// UDP port 4791 cannot be held.
    #[error(transparent)]
    Port(#[from] PortError),
    /// There is no path to the peer.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The device's thread cannot be placed as its configuration says.
    #[error(transparent)]
    ThreadPlacement(#[from] ThreadPlacementError),
    /// The out-of-band exchange failed.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// An attribute or transition that the standard does not allow.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// An attribute that a shared receive queue cannot have.
    #[error(transparent)]
    ModifySrq(#[from] ModifySrqError),
    /// A queue pair did not become a member of a multicast group.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The kernel did not make the interface a member of a multicast group.
    #[error(
        "the kernel does not let {interface} join {group}: {source}; check `ip maddr show dev {interface}` and net.ipv4.igmp_max_memberships"
    )]
    JoinGroup {
        /// The interface.
        interface: String,
        /// The group.
        group: IpAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The queue pair is no member of the multicast group.
    #[error("the queue pair is no member of {group}; attach it first")]
    NotAttached {
        /// The group.
        group: IpAddr,
    },
    /// A queue pair or a shared receive queue cannot be created with these attributes.
    #[error(transparent)]
    Misuse(ApiMisuse),
    /// The process has no memory left.
    #[error("no memory is left for the object; raise the limit of the process, or destroy others")]
    OutOfMemory,
    /// A system call failed.
    #[error("system call failed: {0}")]
    System(#[from] io::Error),
    /// The object belongs to a parent process.
    #[error("this object was made before fork; open the device again in the child process")]
    Forked,
    /// The context of the object was shut down.
    #[error(
        "the context of this object was closed; open the device again and make the object from it"
    )]
    ShutDown,
    /// The device is open already with another configuration.
    #[error(
        "{interface} is already open in this process with other settings; use the same DeviceConfig or close it first"
    )]
    OpenedDifferently {
        /// The interface.
        interface: String,
    },
    /// A number of shards that no device has.
    #[error("a device cannot have {requested} shards; configure 1 to {max}")]
    Shards {
        /// Requested number.
        requested: usize,
        /// Largest number.
        max: usize,
    },
    /// The row of the GID table does not exist, or the interface does not have its address.
    #[error(
        "GID index {index} of {interface} is not usable; `roce devices -v` lists those that are"
    )]
    NoSuchGid {
        /// The requested row.
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
    /// One address is IPv4, the other IPv6.
    #[error(
        "GID index {index} is {own}, the peer's GID is {peer}: both must be IPv4 or both IPv6; choose another GID index (`roce devices -v` lists them)"
    )]
    FamiliesDiffer {
        /// Row of the own table.
        index: u8,
        /// The own address.
        own: std::net::IpAddr,
        /// The peer's address.
        peer: std::net::IpAddr,
    },
    /// The address to which a datagram came is not one of the interface any more.
    #[error("{interface} does not have the address {address} any more; name another GID index")]
    AddressGone {
        /// The address.
        address: std::net::IpAddr,
        /// The interface.
        interface: String,
    },
    /// The completion is not that of a received datagram, or the 40 bytes are no IP header.
    #[error(
        "no sender is known: pass the completion of a datagram that was received, and the first 40 bytes of its receive"
    )]
    NotADatagram,
    /// The path in a queue pair's attributes was dropped, or belongs to another device.
    #[error(
        "the attributes name a path that does not exist any more; resolve the address again and keep the path until the queue pair has it"
    )]
    NoSuchPath,
    /// The path MTU does not fit the interface.
    #[error(
        "path MTU {requested} does not fit {interface}, whose MTU of {netdev_mtu} allows {allowed}; raise it (ip link set {interface} mtu {needed}) or request a smaller path MTU"
    )]
    PathMtuTooLarge {
        /// Requested path MTU in bytes.
        requested: usize,
        /// The interface.
        interface: String,
        /// Its MTU.
        netdev_mtu: u32,
        /// Largest path MTU that fits, in bytes; 0 if none does.
        allowed: usize,
        /// Interface MTU that the path MTU needs.
        needed: usize,
    },
    /// A region cannot be registered.
    #[error(
        "registering {len} bytes at {address:#x} failed: {source}; check that the range is mapped, and writable for LOCAL_WRITE"
    )]
    Register {
        /// First address.
        address: u64,
        /// Number of bytes.
        len: usize,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Remote writing or atomics without local writing.
    #[error("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE; add it to the access flags")]
    RemoteWithoutLocalWrite,
    /// Memory of which nothing is known to survive a loss of power, with the right to make it
    /// persistent.
    #[error(
        "ordinary memory cannot be made persistent; leave FLUSH_PERSISTENT out of the access flags"
    )]
    NotPersistent,
    /// The region has clones, for which it stays as it is.
    #[error("the region is in use; drop its clones before it is registered again")]
    RegionInUse,
    /// Memory windows are bound to the region, which stays as it is.
    #[error("{count} memory windows are bound to the region; invalidate or drop them first")]
    WindowsBound {
        /// How many.
        count: usize,
    },
    /// The device has as many memory windows as it can have.
    #[error("the device has 2^19 memory windows; drop some before another is made")]
    TooManyWindows,
    /// A range that exceeds its region.
    #[error("{len} bytes at offset {offset} exceed a region of {region_len} bytes")]
    OutOfRegion {
        /// First byte.
        offset: usize,
        /// Number of bytes.
        len: usize,
        /// Bytes of the region.
        region_len: usize,
    },
    /// Advice about pages that it cannot be about.
    #[error("the pages cannot be made present: {0}; name pages of a region registered on demand")]
    Advice(MemoryFault),
    /// Memory of a region that the process does not have, or not for this access.
    #[error(
        "the memory of the region at offset {offset} is not mapped, or not for this access; keep it \
         mapped, with the rights of its registration, until the region is dropped"
    )]
    MemoryNotPresent {
        /// First byte of the access.
        offset: usize,
    },
    /// The completion queue has no channel, or another one.
    #[error("the completion queue does not report on this channel; create it with the channel")]
    NoChannel,
    /// A scripted fault says so.
    #[error(transparent)]
    Injected(#[from] InjectedError),
    /// Objects of two devices in one call.
    #[error("the objects belong to different devices; make them all from one Device")]
    OtherDevice,
    /// The capacity of a completion queue is 0 or too large.
    #[error("completion queue capacity {requested} is out of range; request 1 to {max}")]
    QueueCapacity {
        /// Requested capacity.
        requested: usize,
        /// Largest capacity.
        max: usize,
    },
    /// A completion queue holds more completions than its new capacity.
    #[error(
        "the queue holds {held} completions, more than the new capacity {requested}; poll first"
    )]
    QueueInUse {
        /// Requested capacity.
        requested: usize,
        /// Completions in the queue.
        held: usize,
    },
}

impl From<ApiMisuse> for Error {
    fn from(misuse: ApiMisuse) -> Self {
        match misuse {
            ApiMisuse::OutOfMemory => Self::OutOfMemory,
            misuse => Self::Misuse(misuse),
        }
    }
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
