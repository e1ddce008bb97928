//! Groups of ranks that run ring collectives over RDMA.
//!
//! A [`Group`] is one rank of several that call the same operations in the same order:
//! all-reduce, reduce-scatter, all-gather, broadcast, reduce, barrier. Ranks connect over TCP to
//! rank 0, whose process holds a [`BootstrapServer`]; the data goes over queue pairs to the
//! two neighbours in the ring. `docs/ring-protocol.md` specifies the protocol; `roce-ring` decides
//! what to send, and this crate sends it. A [`LauncherEnv`] holds the
//! environment variables of torchrun, `mpirun` and other launchers.
//!
//! # A group of one
//!
//! ```
//! use roce_collectives::{DataType, Group, GroupConfig, ReduceOp};
//!
//! let mut group = Group::join(GroupConfig::new(0, 1, "127.0.0.1:0"))?;
//! let (input, output) = (group.buffer(8)?, group.buffer(8)?);
//! input.write(0, &7_u64.to_le_bytes())?;
//! group.all_reduce(&input, &output, 1, DataType::U64, ReduceOp::Sum)?;
//! let mut sum = [0; 8];
//! output.read(0, &mut sum)?;
//! assert_eq!(u64::from_le_bytes(sum), 7);
//! group.leave()?;
//! # Ok::<(), roce_collectives::Error>(())
//! ```

#![forbid(unsafe_code)]

mod bootstrap;
mod buffer;
mod config;
mod driver;
mod error;
mod fault;
mod group;
mod interrupt;
mod lane;
mod launcher_env;
mod message;
mod rail;
mod report;
mod ring;
mod steps;
mod timeline;
mod wait_notice;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use bootstrap::BootstrapServer;
pub use buffer::{Buffer, BufferSlice};
pub use config::GroupConfig;
pub use error::{BufferError, Error};
pub use fault::Fault;
pub use group::Group;
pub use interrupt::Interrupt;
pub use launcher_env::{Launcher, LauncherEnv, LauncherEnvError};
pub use message::{Message, MessageError};
pub use report::Report;
pub use roce_ring::{Collective, DataType, Geometry, Operation, ReduceOp, RingConfig};
pub use steps::StepRecord;
pub use timeline::TimelineEvent;
pub use wait_notice::WaitNotice;
