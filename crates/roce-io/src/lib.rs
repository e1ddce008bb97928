//! Ethernet frames to and from an interface.
//!
//! This room moves whole Ethernet frames and knows no RoCE beyond the UDP port and the place of
//! the destination queue pair that its packet filter looks at. A [`FrameDevice`] carries frames;
//! [`AfPacket`] is the device over a Linux packet socket, [`memory_pair`] makes two devices joined
//! by memory. Capture, faults and counters are devices around devices: [`Captured`], [`Faulty`],
//! [`Counted`].
//!
//! One frame may hold a *train*: consecutive UDP datagrams of equal payload length but the last,
//! under one set of outer headers, that the kernel cuts where the path cannot take it whole.
//!
//! ```
//! use roce_io::{FrameDevice, MemoryConfig, Outgoing, memory_pair};
//!
//! let (mut here, mut there) = memory_pair(&MemoryConfig::default());
//! let mut once = Some(b"a frame of twenty-six bytes");
//! here.transmit(&mut |slot| {
//!     let frame = once.take()?;
//!     slot[..frame.len()].copy_from_slice(frame);
//!     Some(Outgoing::single(frame.len()))
//! })?;
//! let mut seen = Vec::new();
//! there.receive(8, &mut |frame| seen = frame.bytes.to_vec())?;
//! assert_eq!(seen, b"a frame of twenty-six bytes");
//! # Ok::<(), std::io::Error>(())
//! ```

#![deny(unsafe_code)]

mod af_packet;
mod capture;
mod counted;
mod cutter;
mod device;
mod error;
mod faults;
mod filter;
mod interfaces;
mod memory;
mod port_holder;
mod sys;
mod virtio;

pub use af_packet::{AfPacket, AfPacketConfig, ReceiveMode, Sniffer, Trains, probe_max_segments};
pub use capture::{CaptureFile, Captured};
pub use counted::{Counted, DeviceCounters};
pub use cutter::{Cutter, UdpChecksum};
pub use device::{Direction, FrameDevice, Limits, Outgoing, Received};
pub use error::{DeviceError, OpenError, PortError};
pub use faults::{Fault, FaultConfig, Faulty, Odds, ScriptedFault};
pub use filter::{Filter, QpnBlocks};
pub use interfaces::{InterfaceAddress, InterfaceFlags, InterfaceInfo, InterfaceKind, interfaces};
pub use memory::{MemoryConfig, MemoryDevice, memory_pair};
pub use port_holder::{PortHolder, PortHolderConfig};
pub use sys::prefetch::prefetch;

/// The UDP port that names RoCEv2.
pub const ROCE_UDP_PORT: u16 = 4791;
