//! Engines in virtual time: hosts with an endpoint of `roce-transport` and registered memory, on
//! links or on a fabric of `roce-fabric`.
//!
//! A [`World`] holds the hosts, with memory of any kind, and the network. Its [`Timeline`] records all
//! packets and all events of the engines. A [`FabricWorld`] puts switches with queues, marks and pauses
//! between the hosts. A [`Driver`] says what keeps a host from its work. [`Connection`] brings two queue
//! pairs from RESET to RTS. [`Regions`] and [`ConnectOptions`] serve drivers of their own, too.
#![forbid(unsafe_code)]

mod carrier;
mod config;
mod connect;
mod connection;
mod driver;
mod event_recorder;
mod host;
mod memory;
mod sent_psns;
mod tap;
mod timeline;
mod world;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use config::{FabricWorld, WIRE_OVERHEAD, WorldConfig};
pub use connect::ConnectOptions;
pub use connection::{Connection, RECV_CQ, SEND_CQ, default_options};
pub use driver::Driver;
pub use event_recorder::EventRecorder;
pub use host::Host;
pub use memory::{PD, Regions, fill_synthetic};
pub use roce_transport::{Region, Rights};
pub use tap::Tapped;
pub use timeline::{Event, EventKind, PacketRecord, Timeline};
pub use world::{End, World};
