//! What engines in virtual time need beside a network: registered memory ([`Regions`]) and the
//! attributes of connections ([`ConnectOptions`]).
#![forbid(unsafe_code)]

mod connect;
mod memory;

pub use connect::ConnectOptions;
pub use memory::{Grant, PD, Region, Regions, Rights, fill_synthetic};
