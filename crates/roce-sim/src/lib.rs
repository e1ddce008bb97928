//! A simulated network: links, queues, switches, a virtual clock and seeded impairment.
//!
//! Frames are plain bytes; nothing here knows what they mean. Nothing here waits either: the
//! clock is a number that only [`Network::advance_to`] moves, so an hour of network time costs
//! what its frames cost. The same calls with the same seeds give the same run, byte for byte.
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
//! use roce_sim::{Fate, Impairment, LinkConfig, Network, Time};
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

mod impairment;
mod link;
mod network;
mod split_mix64;
mod time;

pub use impairment::{Fate, Impairment, ImpairmentRates};
pub use link::LinkConfig;
pub use network::{Arrival, LinkId, Network, NetworkStats, NodeId};
pub use split_mix64::SplitMix64;
pub use time::Time;
