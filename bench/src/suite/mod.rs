//! What is measured: rows of contestants on a network, played in turn.
//!
//! A [`Row`] is data: a network, contestants, what is wanted of their figures. A
//! [`Contestant`] is a thing that runs once and gives figures. [`play`] makes the network and
//! lets the contestants take turns (A B C, A B C, …), so that what else the machine does hits
//! them alike.
//!
//! ```no_run
//! use roce_bench::suite::{self, Pace, Tools};
//! let tools = Tools::find("target/release".as_ref());
//! let pace = Pace { rounds: 1, seconds: 0.5, quick: true, realtime: false };
//! for row in suite::rows(&pace) {
//!     println!("{}: {}", row.name, row.title);
//! }
//! # let _ = tools;
//! ```

mod contestant;
mod network;
pub(crate) mod peers;
mod play;
mod process;
mod rows;
mod tools;

pub use contestant::{Contestant, Played, Stage};
pub use network::{LossOf, Network, Wire};
pub use play::{Row, play};
pub use process::{Both, Launch, Running, together};
pub use rows::rows;
pub use tools::{PEERS, Tools};

/// How often and how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// How often each contestant plays.
    pub rounds: u32,
    /// How long a run over time takes.
    pub seconds: f64,
    /// Fewer points on every axis.
    pub quick: bool,
    /// Whether ours asks for the real-time class.
    pub realtime: bool,
}
