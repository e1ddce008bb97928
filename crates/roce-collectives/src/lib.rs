//! Groups of ranks: they find each other, connect, and run the ring over RDMA.

#![forbid(unsafe_code)]

mod config;
mod control;
mod error;
mod hello;
mod hub;
mod lane_lines;
mod launch;
mod lines;
mod report;

pub use config::GroupConfig;
pub use error::{BufferError, Error};
pub use hub::Hub;
pub use launch::{Launch, LaunchError, Launcher};
pub use report::Report;
pub use roce_ring::{DataType, Operation, ReduceOp};
