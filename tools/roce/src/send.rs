//! `roce send`: packets of any kind to a host, and what comes back.

mod captures;
mod held_packet;
mod inbox;
mod log;
mod options;
mod pace;
mod port;
mod replay;
mod route;
mod runner;
mod steps;

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use self::log::Log;
pub(crate) use self::options::Options;
use self::replay::Replay;
use self::route::Route;
use self::runner::Runner;
use self::steps::Steps;
use crate::error::{CliError, Result};

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    let route = Route::new(options.device.as_deref(), options.output.dry_run);
    let log = Log::new(&options.output)?;
    let mut runner = Runner::new(options.to, route, log);
    if let Some(file) = &options.replay.replay {
        Replay::new(options, file)?.run(&mut runner)?;
    }
    let mut steps = match &options.script.script {
        Some(file) => script(options, file)?,
        None => Steps::of_command(options)?,
    };
    let failed = runner.run_steps(&mut steps)?;
    runner.finish(failed)
}

/// Reads the script and checks it.
fn script(options: &Options, file: &Path) -> Result<Steps> {
    let name = file.display().to_string();
    let text = match name.as_str() {
        "-" => {
            let mut text = String::new();
            io::stdin().lock().read_to_string(&mut text).map(|_| text)
        }
        _ => fs::read_to_string(file),
    };
    let text = text.map_err(|error| CliError::context(format!("cannot read {name}"), error))?;
    Steps::of_script(name, &text, &options.script.variables)
}
