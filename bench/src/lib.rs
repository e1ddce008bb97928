//! Measurements beside other programs, and what they measure with.

// `raw/sys` alone allows it.
#![deny(unsafe_code)]

pub mod histogram;
pub mod idle;
pub mod meeting;
pub mod mpi;
pub mod profile;
pub mod program;
pub mod raw;
pub mod report;
pub mod sockets;
pub mod suite;
pub mod traffic;
pub mod twins;
pub mod wake_up;
pub mod window;
