//! Measurements beside other programs, and what they measure with.

// `raw/sys` alone allows it.
#![deny(unsafe_code)]

pub mod cache_distance;
pub mod congestion;
pub mod connect_qps;
pub mod control_channel;
pub mod histogram;
pub mod idle;
pub mod measurement_interval;
pub mod mpi;
mod processor;
pub mod program;
pub mod raw;
pub mod report;
pub mod shards;
pub mod sockets;
pub mod suite;
pub mod traffic;
pub mod wake_up;
