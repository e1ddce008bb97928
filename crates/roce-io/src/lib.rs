//! Ethernet frames to and from an interface.
//!
//! This crate moves whole Ethernet frames. Of RoCE it knows the UDP port and the offset of the
//! destination queue pair, for its packet filter. A [`FrameDevice`] carries frames; [`AfPacket`] is
//! the device over a Linux packet socket, [`XdpSocket`] that over AF_XDP sockets, [`UdpSockets`] that over UDP
//! sockets, [`memory_pair`] makes two devices connected through memory. Capture, fault injection and counters are devices around devices: [`PcapWriter`],
//! [`FaultInjector`], [`CountingDevice`].
//!
//! One frame may hold a *packet train*: UDP datagrams of equal payload length (the last may be
//! shorter) under one set of outer headers, segmented by the kernel (UDP GSO) where the path does
//! not carry it whole.
//!
//! ```
//! use roce_io::{FrameDevice, MemoryConfig, TxFrame, memory_pair};
//!
//! let (mut here, mut there) = memory_pair(&MemoryConfig::default());
//! let mut once = Some(b"a frame of twenty-six bytes");
//! here.transmit(&mut |slot| {
//!     let frame = once.take()?;
//!     slot[..frame.len()].copy_from_slice(frame);
//!     Some(TxFrame::single(frame.len()))
//! })?;
//! let mut seen = Vec::new();
//! there.receive(8, &mut |frame| seen = frame.bytes.to_vec())?;
//! assert_eq!(seen, b"a frame of twenty-six bytes");
//! # Ok::<(), std::io::Error>(())
//! ```

#![deny(unsafe_code)]

mod af_packet;
mod bpf_assembler;
mod chosen_process;
mod counting_device;
mod device;
mod error;
mod fault_injector;
mod filter;
mod given_sockets;
mod gso_mode;
mod interface_errors;
mod interfaces;
mod memory;
mod multicast_membership;
mod pcap_writer;
mod port_reservation;
pub mod process;
mod segmenter;
mod send_counts;
pub mod sockets;
mod stall;
mod sys;
mod transmitter;
mod udp_sockets;
mod vnet_hdr;
mod xdp_socket;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use af_packet::{
    AfPacket, AfPacketConfig, ParkedSocket, ReceiveMode, Sniffer, probe_max_segments,
};
pub use chosen_process::ChosenProcess;
pub use counting_device::CountingDevice;
pub use device::{DeviceCapabilities, Direction, FrameDevice, RxFrame, TxFrame};
pub use error::{DeviceError, OpenError, PortError, XdpError};
pub use fault_injector::{
    Activity, ActivityKind, ActivityLog, FaultConfig, FaultEvent, FaultEventOf, FaultInjector,
    FaultLog, FaultRates, FaultScript, FaultTextError, monotonic,
};
pub use filter::{Filter, LO_SOURCE, QpnBlocks};
pub use gso_mode::GsoMode;
pub use interfaces::{
    InterfaceAddress, InterfaceFlags, InterfaceInfo, InterfaceKind, disable_transmit_offload,
    interface_index, interfaces, loopback_interface,
};
pub use memory::{LoopDevice, MemoryConfig, MemoryDevice, memory_pair};
pub use multicast_membership::{MulticastMembership, MulticastMemberships};
pub use pcap_writer::{CaptureFile, PcapWriter};
pub use port_reservation::{PortReservation, PortReservationConfig};
pub use segmenter::{SegmentChecksum, Segmenter};
pub use sys::prefetch::prefetch;
pub use udp_sockets::{OtherIdentifications, UdpSenders, UdpSockets, UdpSocketsConfig};
pub use xdp_socket::{RefusedByXdp, XdpConfig, XdpSocket};
