//! `roce simulate`: collectives and fabrics in virtual time.

mod allreduce;
mod fabric;

use clap::{Args, Subcommand};

use crate::error::Result;

/// Simulate networks in virtual time
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: Simulated,
}

#[derive(Clone, Debug, Subcommand)]
enum Simulated {
    Allreduce(allreduce::Options),
    Fabric(fabric::Options),
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    match &options.what {
        Simulated::Allreduce(options) => allreduce::run(options),
        Simulated::Fabric(options) => fabric::run(options),
    }
}
