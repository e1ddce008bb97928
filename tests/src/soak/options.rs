//! Options of the program.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use roce_verbs::{ConnectOptions, FaultConfig, FaultRates};

/// Kill and restart one process of each of several connected pairs on a lossy network, for as long
/// as requested, and check the other process of each pair.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask soak")]
pub struct Options {
    /// How long to run, in minutes.
    #[arg(long, default_value_t = 30.0, value_parser = positive)]
    pub minutes: f64,
    /// Random seed of faults, requests and kills; random itself if not given.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Pairs of processes.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub pairs: u32,
    /// Seconds from one kill of a process to the next.
    #[arg(long, default_value_t = 10.0, value_parser = positive)]
    pub kill_every: f64,
    /// Run one of the processes instead; the controller starts them.
    #[command(subcommand)]
    pub role: Option<Role>,
}

/// The processes that the controller starts.
#[derive(Clone, Debug, Subcommand)]
pub enum Role {
    /// A process that stays.
    #[command(hide = true)]
    Survivor(Place),
    /// A process that is killed.
    #[command(hide = true)]
    Peer(Place),
}

/// Pairs and addresses of a process.
#[derive(Clone, Debug, Args)]
pub struct Place {
    /// Pairs of the process.
    #[arg(long, value_delimiter = ',', required = true)]
    pub pairs: Vec<u32>,
    /// Address on which the survivor listens.
    #[arg(long)]
    pub address: SocketAddr,
    /// The random seed of this process.
    #[arg(long)]
    pub seed: u64,
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number > 0.0 && number < 1e6 { Ok(number) } else { Err("must be above 0".to_owned()) }
}

/// The interface of each host.
pub(super) const INTERFACE: &str = "eth0";

/// Faults of the packets that a process sends. Corruption is left out: a receiver that checks the
/// ICRC sees it as loss.
pub(super) fn faults(seed: u64) -> FaultConfig {
    let outbound = FaultRates {
        drop: 0.01,
        duplicate: 0.01,
        reorder: 0.01,
        delay: 0.002,
        ..FaultRates::default()
    };
    FaultConfig { seed, outbound, ..FaultConfig::default() }
}

/// The defaults of `ibv_rc_pingpong`: an ACK timeout of 67 ms and seven retries.
pub(super) fn connect_options() -> ConnectOptions {
    ConnectOptions::default()
}

/// The longest time from posting to completion, while this thread does not wait for a processor:
/// the time after which a silent peer is given up, taken four times as the specification allows.
pub(super) const REQUEST_BOUND: Duration = Duration::from_micros(67_109 * (7 + 1) * 4);

/// Added to every bound, since other programs use the processors, too.
pub(super) const SLACK: Duration = Duration::from_secs(5);

/// Mixes a seed with a number.
pub(super) fn derived_seed(seed: u64, number: u64) -> u64 {
    let mixed = (seed ^ number.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}
