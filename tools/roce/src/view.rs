//! `roce view`: the files that programs see of their devices.

use clap::Args;
use roce_view::Tree;

use crate::error::Result;
use crate::output::print;
use crate::run;

/// Print the files that `roce run` shows to programs
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Name a device and its interface; repeat it for several [default: roce0, roce1, …]
    ///
    /// NAME=* makes a device of each interface, with names that count on: rxe0=* gives rxe0, rxe1 and so on.
    #[arg(long = "dev", value_name = "NAME=INTERFACE")]
    devices: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    let devices = run::devices::named(&options.devices)?;
    print(&Tree::new(&devices, roce_view::hardware_folder).to_string())
}
