//! The RoCEv2 transport as pure computation: no sockets, no clock, no threads.
//!
//! [`Endpoint`] holds all queue pairs of one device. Packets, time and work requests go in; packets,
//! completions and events come out. Registered memory is a port ([`Memory`]) like the network: the
//! same calls always give the same results.
//!
//! Three actors work on a queue pair, as in every RDMA implementation: the *requester* sends
//! our requests, the *responder* executes the peer's, the *completer* handles the responses and
//! retires our requests. Services without acknowledgements (UC, UD) have no completer: `unreliable`.
//!
//! The documentation of [`Endpoint`] says how to drive it; `examples/udp.rs` does it over UDP sockets, and
//! `examples/virtual_time.rs` over queues. [`QpAttributes`] has the transitions of a connection.
//!
//! Without the feature `std`, which is on by default, the crate needs an allocator, but no operating system.

#![forbid(unsafe_code)]
#![cfg_attr(not(any(test, fuzzing)), no_std)]

extern crate alloc;

mod attributes;
mod completion;
mod config;
pub mod congestion;
mod context;
mod counters;
mod destination;
mod endpoint;
mod error;
mod event;
mod frames_in_flight;
mod request_fault;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;

mod handles;

mod memory;
mod observer;
mod owed_ack;
mod owed_cnp;
mod peer_window;

mod qp;
mod rc;
mod region;
mod region_store;
mod regions;
mod reorder_budget;

mod sealer;
mod sg_list;
mod shared_receives;

#[cfg(test)]
mod tests;
mod timers;
mod train;
mod transfer;
mod tx_demand;
mod unreliable;
mod value_table;
mod window_binding;
mod work_request;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use attributes::{
    AckTimeout, MAX_RD_ATOMIC, PathAttributes, QpAttributes, QpCap, QpInfo, QpInit, QpState,
    WorkQueueNumbers,
};
pub use completion::{Completion, CompletionOperation, CompletionStatus, Retired};
pub use config::{EndpointConfig, PeerWindowConfig, WindowConfig};
pub use counters::Counters;
pub use destination::Destination;
pub use endpoint::{
    Endpoint, MAX_GROUP_MEMBERS, MAX_GROUPS, MAX_MANAGEMENT_DATAGRAMS, ManagementDatagram,
    Transmit, TransmitLimits, WorkQueue,
};
pub use error::{ApiMisuse, AttachError, ModifyError, ModifySrqError, PostError};
pub use event::{AsyncEvent, EventSource};
pub use handles::{CqHandle, PathHandle, PdHandle, SrqHandle, TransmitQueue};
pub use memory::{Access, AccessFlags, Accessor, AtomicChange, Memory, MemoryFault};
pub use observer::{Observer, RetransmitCause};
pub use region::{Region, Rights};
pub use region_store::RegionStore;
pub use regions::{RegionGrant, Regions};
pub use request_fault::RequestFault;
pub use roce_wire::Instant;
pub use roce_wire::Service;
pub use sealer::PacketSealer;
pub use sg_list::{MAX_SGE, SgList, SgPart, SgParts, Sge};
pub use shared_receives::{SrqAttributes, SrqInfo, SrqInit};
pub use window_binding::WindowBinding;
pub use work_request::{
    InlineData, MAX_MESSAGE_LEN, MAX_POSTED_LEN, MAX_READ_PACKETS, RecvWr, RemoteAddr,
    SendOperation, SendWr, WrData,
};
