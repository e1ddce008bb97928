//! What can go wrong, by whose fault, and what to do next.

use std::io;

use thiserror::Error;

/// A device could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No interface of that name here.
    #[error("there is no interface {name:?} in this network namespace; there is: {}", known.join(", "))]
    NoSuchInterface {
        /// The name that was asked for.
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
         (unshare -Urn), where everybody has it"
    )]
    NotPermitted {
        /// The interface.
        name: String,
    },
    /// The configuration asks for what cannot be.
    #[error("{what}")]
    BadConfig {
        /// What is wrong and what is right.
        what: &'static str,
    },
    /// The kernel refused a step.
    #[error("{step} on interface {name} failed: {source}")]
    Os {
        /// The interface.
        name: String,
        /// What was being done.
        step: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// A device could not carry a frame. Found inside the [`io::Error`] of a device's methods by
/// [`DeviceError::of`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The interface was switched off, or was down when sending. It may come back.
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
    /// A packet, or a packet of a train, is longer than the interface's MTU.
    #[error("an IP packet of {packet_len} bytes exceeds the MTU of {mtu} of interface {name}")]
    SegmentTooLong {
        /// The interface.
        name: String,
        /// Bytes of the longest IP packet in the frame.
        packet_len: usize,
        /// The interface's MTU in bytes.
        mtu: usize,
    },
    /// What was written into a transmit slot is no frame or no train.
    #[error("the frame cannot be sent: {what}")]
    BadFrame {
        /// What is wrong with it.
        what: &'static str,
    },
}

impl DeviceError {
    /// The device's own reason inside an error, if it is one.
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

/// The UDP port could not be held.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PortError {
    /// The kernel's own RoCE stack answers in this network namespace.
    #[error(
        "the kernel's rdma_rxe holds UDP port {port} in this network namespace{}: two RoCE stacks \
         must not answer for one address; remove it first (rdma link delete RXE, or \
         modprobe -r rdma_rxe), or use another network namespace",
        device_list(devices)
    )]
    KernelRxe {
        /// The port.
        port: u16,
        /// Names of the RDMA devices that look like rxe's, as far as they can be seen.
        devices: Vec<String>,
    },
    /// Another program holds the port and does not share it.
    #[error(
        "another program holds UDP port {port} in this network namespace{}: stop it, or use \
         another network namespace",
        owner.as_ref().map(|owner| format!(" ({owner})")).unwrap_or_default()
    )]
    OtherProgram {
        /// The port.
        port: u16,
        /// Process id and name, where this process may see them.
        owner: Option<String>,
    },
    /// The kernel refused a step.
    #[error("{step} for UDP port {port} failed: {source}")]
    Os {
        /// The port.
        port: u16,
        /// What was being done.
        step: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

fn device_list(devices: &[String]) -> String {
    if devices.is_empty() { String::new() } else { format!(" ({})", devices.join(", ")) }
}
