//! Switches, queues, links and seeded impairment, event-driven and in virtual time.
//!
//! Nothing here knows an engine: frames are bytes, or types of the caller. Only [`Network::advance_to`]
//! and [`Fabric::step`] move a clock, so an hour of network time costs what its frames cost. The same
//! calls with the same seeds give the same run, byte for byte.
//!
//! [`Network`] has hosts and forwarding switches without limits of their own, and links that lose, delay,
//! repeat, corrupt or mark the frames that an [`Impairment`] names:
//!
//! ```text
//!   host ── link ── switch ── link ── host        send(host, frame)
//!            │                                    next_event() -> Instant
//!     each direction of a link:                   advance_to(time)
//!     impairment -> queue -> rate -> latency      receive(host) -> Arrival
//! ```
//!
//! [`Switch`] is the model of one real switch: a buffer that all ports share, a queue per port and class,
//! ECN marking, priority-based flow control, a watchdog of pauses. It has neither clock nor links.
//! [`Fabric`] drives switches over the links of a [`Topology`]; its frames have a type of the caller, or
//! are real ones: [`EthernetFrame`].
//!
//! ```text
//!              route (Fabric)       threshold, headroom     RED         strict, DWRR
//!   frame in ───────────────► admit ──────────────────► mark ► queue ───────────────► frame out
//!                               │ above the threshold            ▲ paused by the other end
//!   XOFF, XON out ◄─────────────┘                  pause frame in┘
//! ```
//!
//! # Example
//! Two hosts, five microseconds apart; the first frame from `a` is lost, the second is not.
//! ```
//! use roce_fabric::{Fate, Impairment, LinkConfig, Network, Instant};
//! use std::time::Duration;
//!
//! let mut network = Network::new();
//! let (a, b) = (network.add_host(), network.add_host());
//! let link = network.connect(a, b, LinkConfig::with_latency(Duration::from_micros(5)));
//! network.set_impairment(link, a, Impairment::scripted([Fate::Drop]));
//!
//! network.send(a, b"lost".to_vec());
//! network.send(a, b"kept".to_vec());
//! assert_eq!(network.next_event(), Some(Instant::from_nanos(5_000)));
//! network.advance_to(Instant::from_nanos(5_000));
//! assert_eq!(network.receive(b).unwrap().bytes[..], *b"kept");
//! assert_eq!(network.stats().dropped, 1);
//! ```
#![forbid(unsafe_code)]

mod ethernet_frame;
mod fabric;
mod frame;
mod impairment;
mod link;
mod marking;
mod network;
mod output_port;
mod shared_buffer;
mod split_mix64;
mod switch;
#[cfg(test)]
mod test_frame;
#[cfg(test)]
mod tests;
mod topology;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use ethernet_frame::EthernetFrame;
pub use fabric::{Fabric, FabricConfig, FabricCounters, FabricEvent, Routing};
pub use frame::{FabricFrame, SwitchFrame};
pub use impairment::{Fate, Impairment, ImpairmentRates};
pub use link::LinkConfig;
pub use marking::EcnMarking;
pub use network::{Arrival, LinkId, Network, NetworkStats, NodeId};
pub use output_port::ClassScheduling;
pub use roce_wire::Instant;
pub use split_mix64::SplitMix64;
pub use switch::{MarkingPoint, Output, PfcConfig, PortCounters, Switch, SwitchConfig};
pub use topology::{Topology, TopologyLink};

/// Number of traffic classes of a port.
pub const CLASSES: usize = roce_wire::PFC_PRIORITIES;
