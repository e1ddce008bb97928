//! The bootstrap over TCP: ranks find each other, connect, and learn of failures.

mod client;
#[cfg(test)]
mod fuzzing;
pub(crate) mod hello;
mod lane_messages;
mod line_stream;
mod membership;
pub(crate) mod progress;
mod server;

pub(crate) use client::BootstrapClient;
pub(crate) use lane_messages::{LaneEndpoint, LaneOffer, LanePeer};
pub use server::BootstrapServer;
