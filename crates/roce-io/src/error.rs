//! Errors, each with what to do next.

use std::io;

use thiserror::Error;

/// A device could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no interface of that name.
    #[error("no interface {name:?} in this network namespace; use one of: {}", known.join(", "))]
    NoSuchInterface {
        /// The requested name.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// The interface is there but switched off.
    #[error("interface {name} is down; bring it up first: ip link set {name} up")]
    InterfaceDown {
        /// The interface.
        name: String,
    },
    /// The interface does not carry Ethernet frames.
    #[error("interface {name} does not carry Ethernet frames; RoCEv2 needs an Ethernet interface")]
    NotEthernet {
        /// The interface.
        name: String,
    },
    /// The process may not open packet sockets.
    #[error(
        "opening a packet socket on {name} needs CAP_NET_RAW: run as root, give it to the program \
         (setcap cap_net_raw+ep PROGRAM), or run inside a user and network namespace of your own \
         (unshare -Urn), which grants it"
    )]
    NotPermitted {
        /// The interface.
        name: String,
    },
    /// The process may not use AF_XDP, which was demanded.
    #[error(transparent)]
    Xdp(XdpError),
    /// UDP port 4791 is taken.
    #[error(transparent)]
    Port(PortError),
    /// The configuration is invalid.
    #[error("{what}")]
    BadConfig {
        /// The valid range.
        what: &'static str,
    },
    /// A system call failed.
    #[error("{step} on interface {name} failed: {source}")]
    Os {
        /// The interface.
        name: String,
        /// The failed step.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// An interface cannot be used by AF_XDP sockets.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum XdpError {
    /// The process may not load a program, or make a socket.
    #[error(
        "AF_XDP on {name} needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW outside of user namespaces: run as \
         root, give them to the program (setcap cap_bpf,cap_net_admin,cap_net_raw+ep PROGRAM), or use the \
         back end af-packet, which needs CAP_NET_RAW only"
    )]
    NotPermitted {
        /// The interface.
        name: String,
    },
    /// Another program is attached to the interface, or another socket has its receive queue.
    #[error(
        "another process has an XDP program or an AF_XDP socket on {name}: one process uses AF_XDP on an \
         interface at a time"
    )]
    Busy {
        /// The interface.
        name: String,
    },
    /// The memory for frames is above a limit.
    #[error(
        "AF_XDP on {name} needs {mebibytes} MiB of locked memory: raise its limit (ulimit -l), or give the \
         program CAP_IPC_LOCK"
    )]
    LockedMemory {
        /// The interface.
        name: String,
        /// What is needed.
        mebibytes: usize,
    },
    /// The kernel has no AF_XDP frames of several buffers, and packets of this MTU need them.
    #[error(
        "AF_XDP of this kernel carries packets of {longest} bytes, and {name} has an MTU of {mtu}: lower it \
         (ip link set {name} mtu {longest}), or take Linux 6.6 or newer"
    )]
    Mtu {
        /// The interface.
        name: String,
        /// Its MTU.
        mtu: usize,
        /// Bytes of the longest packet that AF_XDP carries.
        longest: usize,
    },
    /// There is nothing to gain.
    #[error("{name} is the loopback, which carries packet trains whole")]
    Loopback {
        /// The interface.
        name: String,
    },
    /// The kernel or the driver lacks what is needed.
    #[error("{step} on interface {name} failed: {source}")]
    Os {
        /// The interface.
        name: String,
        /// The failed step.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A device could not receive or send a frame. [`DeviceError::of`] finds it in the [`io::Error`] of
/// a device's methods.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The interface is down; the device works again once it is up.
    #[error("interface {name} is down; bring it up: ip link set {name} up")]
    InterfaceDown {
        /// The interface.
        name: String,
    },
    /// The interface was removed, or moved to another network namespace.
    #[error("interface {name} is gone from this network namespace; open the device again")]
    InterfaceGone {
        /// The interface.
        name: String,
    },
    /// An IP packet, in a train or not, exceeds the interface's MTU.
    #[error("an IP packet of {packet_len} bytes exceeds the MTU of {mtu} of interface {name}")]
    SegmentTooLong {
        /// The interface.
        name: String,
        /// Bytes of the longest IP packet in the frame.
        packet_len: usize,
        /// The interface's MTU in bytes.
        mtu: usize,
    },
    /// The contents of a transmit slot are not a valid frame or train.
    #[error("the frame cannot be sent: {what}")]
    BadFrame {
        /// What is wrong with it.
        what: &'static str,
    },
}

impl DeviceError {
    /// Returns the device error in `error`, if it holds one.
    ///
    /// ```
    /// use roce_io::DeviceError;
    ///
    /// let error: std::io::Error = DeviceError::InterfaceDown { name: "eth0".into() }.into();
    /// assert_eq!(error.kind(), std::io::ErrorKind::NetworkDown);
    /// assert!(matches!(DeviceError::of(&error), Some(DeviceError::InterfaceDown { .. })));
    /// ```
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<DeviceError> for io::Error {
    fn from(error: DeviceError) -> Self {
        let kind = match error {
            DeviceError::InterfaceDown { .. } => io::ErrorKind::NetworkDown,
            DeviceError::InterfaceGone { .. } => io::ErrorKind::NotFound,
            DeviceError::SegmentTooLong { .. } | DeviceError::BadFrame { .. } => {
                io::ErrorKind::InvalidInput
            }
        };
        Self::new(kind, error)
    }
}

/// The UDP port could not be reserved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PortError {
    /// The kernel's RoCE stack serves the port in this network namespace.
    #[error(
        "the kernel's rdma_rxe holds UDP port {port} in this network namespace{}: two RoCE stacks \
         must not answer for one address; remove it first (rdma link delete RXE, or \
         modprobe -r rdma_rxe), or use another network namespace",
        device_list(devices)
    )]
    KernelRxe {
        /// The port.
        port: u16,
        /// Names of the visible RDMA devices that are rxe's.
        devices: Vec<String>,
    },
    /// Another program has bound the port and does not share it.
    #[error(
        "another program holds UDP port {port} in this network namespace{}: stop it, or use \
         another network namespace",
        owner.as_ref().map(|owner| format!(" ({owner})")).unwrap_or_default()
    )]
    OtherProgram {
        /// The port.
        port: u16,
        /// Process id and name, if this process may see them.
        owner: Option<String>,
    },
    /// A socket of another user has the port.
    #[error(
        "user {uid} holds UDP port {port} in this network namespace: a user that has the port reads the packets \
         of all, so it belongs to one user at a time; run all programs as the same user or in network namespaces \
         of their own, or set ROCE_SHARE_PORT=1 if this process uses packet sockets and that user is trusted"
    )]
    OtherUser {
        /// The port.
        port: u16,
        /// The number of that user.
        uid: u32,
    },
    /// A system call failed.
    #[error("{step} for UDP port {port} failed: {source}")]
    Os {
        /// The port.
        port: u16,
        /// The failed step.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

fn device_list(devices: &[String]) -> String {
    if devices.is_empty() { String::new() } else { format!(" ({})", devices.join(", ")) }
}
