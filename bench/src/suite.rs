//! What is measured: benchmarks, whose candidates run in turn on a network.
//!
//! A [`Benchmark`] is data: a network, candidates, comparisons of their figures. A
//! [`Candidate`] runs once and gives figures. [`run_benchmark`] makes the network and
//! lets the candidates take turns (A B C, A B C, …), so that what else the machine does hits
//! them alike.
//!
//! ```no_run
//! use roce_bench::suite::{self, RunConfig, Tools};
//! let tools = Tools::find("target/release".as_ref());
//! let config = RunConfig { rounds: 1, seconds: 0.5, quick: true, realtime: false };
//! for benchmark in suite::benchmarks(&config) {
//!     println!("{}: {}", benchmark.name, benchmark.title);
//! }
//! # let _ = tools;
//! ```

mod benchmarks;
mod candidate;
pub(crate) mod candidates;
mod network;
mod older;
mod pair;
mod runner;
mod tools;

pub use benchmarks::benchmarks;
pub use candidate::{Candidate, RunContext, RunResult};
pub use network::{LossOf, Network, Topology};
pub use older::{TOLERANCE, compare_with_older};
pub use pair::{PairOutput, finish, run_pair, start};
pub use roce_netns::process::{Launch, Readiness, Running};
pub use runner::{Benchmark, SPARE_TIME, run_benchmark};
pub use tools::{EXTERNAL_PROGRAMS, Tools};

/// How often and how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunConfig {
    /// Runs of each candidate.
    pub rounds: u32,
    /// Seconds of a run.
    pub seconds: f64,
    /// Fewer points on every axis.
    pub quick: bool,
    /// Whether ours asks for the real-time class.
    pub realtime: bool,
}
