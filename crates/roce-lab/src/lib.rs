//! Lessons and ladders: RDMA packet by packet, in virtual time.
//!
//! A [`World`] holds hosts with the real engine of `roce-transport` and a network of
//! `roce-sim` between them. What happens in it is kept in a [`Timeline`]: every packet, and
//! every word of the engines.

#![forbid(unsafe_code)]

mod connection;
mod host;
mod memory;
mod recorder;
mod timeline;
mod world;

pub use connection::{Connection, ConnectionOptions, RECV_CQ, SEND_CQ};
pub use host::Host;
pub use memory::{Grant, PD, Region, Regions};
pub use timeline::{Event, EventKind, PacketRecord, Timeline};
pub use world::{End, WIRE_OVERHEAD, World, WorldConfig};
