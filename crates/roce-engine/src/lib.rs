//! The engine of a RoCEv2 device: received frames become completions, posted requests become frames.
//!
//! An [`Engine`] joins the endpoint of `roce-transport` with what a device has around it: interfaces,
//! a table of registered memory, the paths to peers, and the decisions about timing. It has no clock,
//! thread, lock or socket: the time is an argument, or asked of the caller that posts, and the rest are ports.
//!
//! | port | what is behind it |
//! |---|---|
//! | [`FrameDevice`](roce_io::FrameDevice) | an interface, or a queue in memory |
//! | [`Region`] | registered memory |
//! | [`Consumer`] | completion queues, asynchronous events, published counters |
//! | [`SendQueue`] | the places of a send queue, and the clock of a caller that posts to it |
//! | [`Observer`](roce_transport::Observer) | traces and probes |
//! | [`Kernel`] | the kernel's routes and neighbours |
//! | [`ManagementPort`] | events of connection management, and the paths to its peers |
//!
//! Engines of one device have the same regions, and bindings of memory windows in common. Those are
//! behind the only lock, which is held for one access or one binding and waits for nothing else. An
//! engine that is alone has none.
//!
//! The thread that calls an engine holds whatever lock its owner keeps around it. When to call, for
//! how long to spin and when to sleep is decided by [`policy`] as well, and done by the caller.

#![forbid(unsafe_code)]

mod consumer;
mod datagram_paths;
mod engine;
mod gid_table;
mod kernel;
mod key_hasher;
mod memory_table;
mod own_numbers;
mod path_table;
mod plain_region;
pub mod policy;
mod region;
mod resolver;
mod revocable;
mod route;
mod send_queue;
mod window_table;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use consumer::{CallFault, CompletionFault, Consumer, Pushed};
pub use engine::{
    Departure, Engine, EngineParts, ManagementDestination, ManagementPort, Posted, RoundOutcome,
};
pub use gid_table::{GidEntry, GidTable, GidType};
pub use kernel::{Kernel, Solicitation};
pub use key_hasher::KeyHasher;
pub use memory_table::{MemoryTable, RegionEntry, Registration};
pub use own_numbers::OwnNumbers;
pub use path_table::{PathEntry, PathTable, Via};
pub use plain_region::PlainRegion;
pub use region::Region;
pub use resolver::Resolver;
pub use route::{Flow, InterfaceRoute, Neighbour, NextHop, Outcome, RouteError};
pub use send_queue::{InlineBuffers, SendQueue, SendRequest};
pub use window_table::{MAX_WINDOWS, WindowType};
