//! RDMA verbs over a raw packet socket, or over UDP sockets.
//!
//! The names and rules are those of libibverbs: a [`Device`] is an interface opened to
//! speak RoCEv2; a [`ProtectionDomain`] says which [`QueuePair`]s may use which
//! [`MemoryRegion`]s; work is posted to a queue pair and its completions are found in a
//! [`CompletionQueue`], which may report on a [`CompletionChannel`].
//!
//! A queue pair has one of three services: reliable connection, unreliable connection, or datagrams,
//! which go wherever an [`AddressHandle`] points. Several queue pairs may take their receives from
//! one [`SharedReceiveQueue`].
//!
//! A device may have several [shards](DeviceConfig::shards), so that threads on several processors do not
//! wait for each other.
//!
//! A thread that polls drives the engine: see [`CompletionQueue`]. When none polls, the device's own
//! thread drives it, so one-sided operations need no calls of their target.
//!
//! # Two queue pairs that talk to each other
//!
//! ```no_run
//! use roce_verbs::{AccessFlags, ConnectOptions, WrData, Device, DeviceConfig, RecvWr};
//! use roce_verbs::{SendOperation, SendWr};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open("eth0", DeviceConfig::default())?;
//! let pd = device.alloc_pd()?;
//! let cq = device.create_cq(16, None)?;
//! let region = pd.register(8192, AccessFlags::LOCAL_WRITE)?;
//!
//! let here = pd.queue_pair(&cq, &cq).build()?;
//! let there = pd.queue_pair(&cq, &cq).build()?;
//! let options = ConnectOptions::default();
//! here.connect(&there.dest(None)?, &options)?;
//! there.connect(&here.dest(None)?, &options)?;
//!
//! there.post_recv([RecvWr::new(1, [region.sge(4096..)?])])?;
//! region.write(0, b"hello")?;
//! here.post_send([SendWr::new(2, SendOperation::send(), [region.sge(..5)?])])?;
//! for _ in 0..2 {
//!     let completion = cq.spin_wait(std::time::Duration::from_secs(1)).expect("within a second");
//!     println!("{completion:?}");
//! }
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

mod address_handle;
mod answer;
mod backend;
mod channel;
pub mod cm;
mod cm_router;
mod completion_queue;
mod connect;
mod connection_timing;
mod datagram_source;
mod device;
mod device_config;
mod device_state;
mod driver;
mod engine;
mod engine_lock;
mod error;
mod event_descriptor;
#[cfg(test)]
mod event_model;
mod events;
pub mod exchange;
mod first_psn;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod interface_kernel;
mod memory;
mod named_device;
mod netlink;
mod path;
mod places;
mod port;
mod posting;
// One `nop` for each probe.
#[allow(unsafe_code)]
pub mod probes;
mod process;
mod protection_domain;
mod qpn_allocator;
mod queue_pair;
mod queue_state;
// The only place that touches registered memory through a pointer.
#[allow(unsafe_code)]
mod region;
mod run;
mod shard_set;
mod shared_receive_queue;
mod sockets;
mod thread_wait;
mod trace;
mod verb_faults;
mod work_slots;
mod wr_error;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use address_handle::AddressHandle;
pub use backend::{Backend, UnknownBackend};
pub use channel::CompletionChannel;
pub use completion_queue::CompletionQueue;
pub use connect::ConnectOptions;
pub use datagram_source::DatagramSource;
pub use device::{Device, DeviceInfo};
pub use device_config::{DeviceConfig, PeersInRun, QueueRule};
pub use driver::SleepSet;
pub use error::Error;
pub use event_descriptor::may_events_be_read;
pub use memory::memory_region::{MemoryRegion, Pages, Prefetch, RegisterOptions, Reregistration};
pub use memory::memory_window::MemoryWindow;
pub use memory::null_region::NullRegion;
pub use named_device::{
    DeviceNames, DeviceNamesError, GID_TABLE_LEN, LaneSpeed, NamedDevice, PortRate, Readiness,
};
pub use path::{AddressVector, Path};
pub use port::{PortAttributes, PortState};
pub use posting::DatagramTarget;
pub use process::last_thread::watch_main_thread;
pub use process::purpose::Purpose;
pub use process::thread_placement::{ThreadPlacement, ThreadPlacementError};
pub use protection_domain::ProtectionDomain;
pub use queue_pair::{QueuePair, QueuePairBuilder};
pub use region::load_units;
pub use run::environment;
pub use run::run_plan::RunPlan;
pub use shard_set::MAX_SHARDS;
pub use shared_receive_queue::SharedReceiveQueue;
pub use thread_wait::YieldPolicy;
pub use trace::{Trace, TraceEvent, TraceKind, TraceValue};
pub use verb_faults::InjectedError;
pub use wr_error::{BadWr, WrError};

pub use roce_engine::{GidEntry, GidType, InlineBuffers, MAX_WINDOWS, RouteError, WindowType};
pub use roce_faults::{DeviceLimits, Errno, FaultRule, FaultSentence, VerbMoment, VerbRule};
pub use roce_io::process::{Generation, Own};
pub use roce_io::{
    FaultConfig, FaultEvent, FaultRates, FaultTextError, GsoMode, OpenError, OtherIdentifications,
    PortError, ReceiveMode, XdpError,
};
pub use roce_transport::congestion::{
    CongestionAlgorithm, CongestionConfig, CongestionTextError, DcqcnParameters,
    Parameter as CongestionParameter,
};
pub use roce_transport::{
    AccessFlags, AckTimeout, ApiMisuse, AsyncEvent, AttachError, Completion, CompletionOperation,
    CompletionStatus, CqHandle, EventSource, InlineData, MAX_GROUP_MEMBERS, MAX_GROUPS,
    MemoryFault, ModifyError, ModifySrqError, PostError, QpAttributes, QpCap, QpInfo, QpState,
    RecvWr, RemoteAddr, RequestFault, RetransmitCause, SendOperation, SendWr, Service, SgList, Sge,
    SrqAttributes, SrqHandle, SrqInfo, WindowBinding, WrData,
};
pub use roce_wire::{
    Feth, FlushExtent, GRH_LEN, GSI_Q_KEY, Gid, MacAddr, NakCode, PathMtu, Psn, Qpn, RnrTimer,
};
