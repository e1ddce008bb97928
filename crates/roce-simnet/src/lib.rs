//! A simulated network: links, queues, switches, a virtual clock and seeded impairment.
//!
//! The network carries frames of any bytes. Only [`Network::advance_to`] moves the clock, so an hour
//! of network time costs what its frames cost. The same calls with the same seeds give the same run,
//! byte for byte. [`fabric`] has switches with shared buffers, ECN marks and pauses, [`traffic`] modelled flows over them. For engines on its hosts there are registered memory ([`Regions`]) and the
//! attributes of connections ([`ConnectOptions`]).
//!
//! ```text
//!   host ── link ── switch ── link ── host        send(host, frame)
//!            │                                    next_event() -> Time
//!     each direction of a link:                   advance_to(time)
//!     impairment -> queue -> rate -> latency      receive(host) -> Arrival
//! ```
//!
//! # Example
//! Two hosts, five microseconds apart; the first frame from `a` is lost, the second is not.
//! ```
//! use roce_simnet::{Fate, Impairment, LinkConfig, Network, Time};
//! use std::time::Duration;
//!
//! let mut network = Network::new();
//! let (a, b) = (network.add_host(), network.add_host());
//! let link = network.connect(a, b, LinkConfig::with_latency(Duration::from_micros(5)));
//! network.set_impairment(link, a, Impairment::scripted([Fate::Drop]));
//!
//! network.send(a, b"lost".to_vec());
//! network.send(a, b"kept".to_vec());
//! assert_eq!(network.next_event(), Some(Time::from_nanos(5_000)));
//! network.advance_to(Time::from_nanos(5_000));
//! assert_eq!(network.receive(b).unwrap().bytes[..], *b"kept");
//! assert_eq!(network.stats().dropped, 1);
//! ```
#![forbid(unsafe_code)]

mod connect;
pub mod fabric;
mod impairment;
mod link;
mod memory;
mod network;
mod split_mix64;
mod time;
pub mod traffic;

pub use connect::ConnectOptions;
pub use impairment::{Fate, Impairment, ImpairmentRates};
pub use link::LinkConfig;
pub use memory::{Grant, PD, Region, Regions, Rights, fill_synthetic};
pub use network::{Arrival, LinkId, Network, NetworkStats, NodeId};
pub use split_mix64::SplitMix64;
pub use time::Time;
