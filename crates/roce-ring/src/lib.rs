//! Collectives as pure computation: ring plans, reduction kernels, a rank's machine.
//!
//! This crate decides which rank sends and computes what, and when. It has no clock, socket or
//! thread, and does not own the caller's memory. `docs/ring-protocol.md` specifies the protocol
//! completely enough to implement another peer.
//!
//! - A [`Machine`] is one rank: it takes what arrives and returns the actions to perform.
//! - A [`Plan`] is the list of one rank's messages in one operation.
//! - A [`Workspace`] performs computations on a rank's memory ([`RankMemory`]) with the
//!   [`kernel`]s. [`RankBuffers`] is such memory.
//!
//! Two ranks sum one float; this example plays the driver and its queue pairs:
//!
//! ```
//! use roce_ring::*;
//!
//! let mut workspace = Workspace::new();
//! let sum = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 1);
//! let mut ranks: Vec<(Machine, RankBuffers)> = (0..2)
//!     .map(|rank| {
//!         let geometry = Geometry::new(rank, 2, RingConfig::default()).unwrap();
//!         let (mut machine, mut memory) = (Machine::new(geometry), RankBuffers::new(geometry, 0));
//!         memory.begin(&sum, true, &(rank as f32 + 1.0).to_le_bytes());
//!         machine.start(&sum, true).unwrap();
//!         (machine, memory)
//!     })
//!     .collect();
//!
//! while !ranks.iter().all(|(machine, _)| machine.is_done()) {
//!     for rank in 0..2 {
//!         let (machine, memory) = &mut ranks[rank];
//!         match machine.poll_action().unwrap() {
//!             Some(Action::Write { side, lane, id, from, to, immediate, .. }) => {
//!                 let Remote::Slot { index, .. } = to else { panic!("a sum of 4 bytes is small") };
//!                 let bytes = memory.bytes(from).to_vec();
//!                 machine.handle_sent(id).unwrap();
//!                 let (neighbour, memory) = &mut ranks[1 - rank];
//!                 let (side, len) = (side.opposite(), bytes.len() as u32);
//!                 let slot = MemoryKind::Slot { side, lane, index };
//!                 memory.bytes_mut(MemorySpan::new(slot, 0, from.len)).copy_from_slice(&bytes);
//!                 let no_window = || unreachable!();
//!                 neighbour.handle_message(side, lane, immediate, len, no_window).unwrap();
//!             }
//!             Some(Action::Compute(compute)) => workspace.execute(&compute, memory),
//!             // This operation needs no credit and no window.
//!             _ => {}
//!         }
//!     }
//! }
//! assert!(ranks.iter().all(|(_, memory)| memory.output() == 3.0_f32.to_le_bytes()));
//! ```

#![forbid(unsafe_code)]

mod action;
mod collective;
mod compute;
mod data_type;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod geometry;
mod immediate;
pub mod kernel;
mod machine;
mod memory;
mod named_values;
mod operation;
mod plan;
mod rank_buffers;
mod reduce_op;
mod side;
pub mod test_data;
mod violation;
mod window;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use action::{Action, Remote};
pub use collective::{Collective, UnknownCollective};
pub use compute::{Compute, RankMemory, Work, Workspace};
pub use data_type::{DataType, UnknownDataType};
pub use geometry::{Geometry, GeometryError, RingConfig};
pub use immediate::{Immediate, OpTag};
pub use machine::Machine;
pub use memory::{MemoryKind, MemorySpan};
pub use operation::{Operation, OperationError};
pub use plan::{OnReceive, Plan, Receive, Receives, Send, Sends, Target, WindowLanes, chunk_of};
pub use rank_buffers::RankBuffers;
pub use reduce_op::{ReduceOp, UnknownReduceOp};
pub use side::Side;
pub use violation::{MachineError, UsageError, Violation, ViolationKind};
pub use window::WindowRecord;
