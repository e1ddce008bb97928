//! Collectives as pure computation: ring plans, reduction kernels, a rank's machine.
//!
//! This crate knows who sends what to whom in a ring, when, and what is computed with it. It
//! has no clock, no socket, no thread and no memory of yours. `docs/ring-protocol.md` says
//! the same in words.
//!
//! A [`Machine`] is one rank: hand it what arrives, do what it asks. A [`Plan`] is the list of
//! one rank's messages in one operation.

#![forbid(unsafe_code)]

mod action;
mod bootstrap;
mod collective;
mod compute;
mod data_type;
mod geometry;
mod immediate;
pub mod kernel;
mod machine;
mod operation;
pub mod pattern;
mod plan;
mod reduce_op;
mod span;
mod violation;
mod window;

pub use action::{Action, Remote};
pub use bootstrap::{Line, LineError};
pub use collective::{Collective, UnknownCollective};
pub use compute::{Compute, Places, Work, Workspace};
pub use data_type::{DataType, UnknownDataType};
pub use geometry::{Geometry, GeometryError, Settings};
pub use immediate::{Immediate, Label};
pub use machine::Machine;
pub use operation::{Operation, OperationError};
pub use plan::{Plan, Receive, Receives, Send, Sends, Target, Then};
pub use reduce_op::{ReduceOp, UnknownReduceOp};
pub use span::{Place, Span};
pub use violation::{Breach, Fault, Misuse, Side, Violation};
pub use window::WindowRecord;
