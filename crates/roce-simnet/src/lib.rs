//! What engines in virtual time need beside a network: registered memory ([`Regions`]) and the
//! attributes of connections ([`ConnectOptions`]). [`traffic`] has modelled flows over a fabric.
#![forbid(unsafe_code)]

mod connect;
mod memory;
pub mod traffic;

pub use connect::ConnectOptions;
pub use memory::{Grant, PD, Region, Regions, Rights, fill_synthetic};
