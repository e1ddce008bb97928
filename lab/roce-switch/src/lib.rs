//! A switch between real interfaces: frames of packet sockets pass the queues of
//! [`roce_fabric`], which a clock drives.
//!
//! [`SoftwareSwitch`] has the interfaces and the loop. [`Forwarder`] has everything else, without
//! clock and I/O: the addresses that it has learned, the model of the links and queues, and the
//! counters.
//!
//! ```text
//!  host ── veth ──► queue of the host ──► line at `rate` ──► switch: buffer, marks, classes
//!                   (stopped by XOFF)                            │
//!  host ◄─ veth ◄──────────────────────── line at `rate` ◄───────┘
//! ```
//!
//! ```
//! use roce_switch::{Forwarder, SwitchSettings};
//! use std::time::Duration;
//!
//! let settings = SwitchSettings { bits_per_sec: 8_000_000, ..SwitchSettings::default() };
//! let mut switch = Forwarder::new(&settings, 2);
//! let mut frame = vec![0; 976];
//! frame[..6].fill(0xff); // for all
//! switch.receive(0, &frame);
//! let mut left = Vec::new();
//! // 976 bytes and 24 beside the frame take 1 ms on each of two lines.
//! switch.advance(Duration::from_micros(1999), &mut |port, frame| left.push((port, frame.len())));
//! assert_eq!(left, []);
//! switch.advance(Duration::from_micros(2010), &mut |port, frame| left.push((port, frame.len())));
//! assert_eq!(left, [(1, 976)]);
//! ```

#![forbid(unsafe_code)]

mod checksum;
mod ethernet_frame;
mod forwarder;
mod histogram;
mod mac_table;
mod port;
mod report;
mod settings;
mod software_switch;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use roce_fabric::{
    CLASSES, ClassScheduling, EcnMarking, PfcConfig, PortCounters, SwitchConfig,
};

pub use forwarder::Forwarder;
pub use report::{ClassReport, LoopReport, PortReport, QueueSummary, SwitchReport};
pub use settings::SwitchSettings;
pub use software_switch::SoftwareSwitch;
