//! `roce run`: an unmodified verbs program on this library.

pub(crate) mod devices;
mod folder;
mod front;
mod here;
mod keeper;
mod line;
mod links;
mod orphans;
mod outcome;
mod processes;
pub(crate) mod program;
mod ranks;
mod server_wait;
mod stage;
mod supervisor;
mod survivors;

use std::path::Path;
use std::time::Duration;

use crate::error::Result;
use crate::parent_death;
use folder::run_folder::RunFolder;
use front::Front;
use here::Place;
use outcome::exit_code::not_run;
use program::exec::Launch;
use stage::Stage;

pub(crate) use line::options::Options;
pub(crate) use stage::StageOptions;

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    let outcome = options.check_name().and_then(|()| match options.local {
        None => front::start(options),
        Some(size) => supervisor::start(options, size),
    });
    outcome.map_err(not_run)
}

/// Runs a process of a run.
pub(crate) fn run_stage(options: &StageOptions) -> Result {
    let StageOptions { folder, stage } = options;
    let outcome = match *stage {
        Stage::Keeper { starter } => keep(folder, starter),
        Stage::Supervisor { starter } => ranks::run(folder, starter),
        Stage::Rank { number, began } => run_rank(folder, number, Duration::from_nanos(began)),
        Stage::Program { parent } => folder::plan::read(folder)
            .and_then(|launch: Launch| launch.become_program(folder, parent)),
    };
    outcome.map_err(not_run)
}

/// Keeps the run of a folder.
fn keep(folder: &Path, starter: u32) -> Result {
    let folder = RunFolder::adopt(folder)?;
    let (front, input) = Front::meet(starter)?;
    let options: Options = folder::plan::read(folder.path())?;
    let line = options.command.clone();
    here::run(&options, Place::Host { front, input, folder }, line)
}

/// Runs a rank of the run of a folder.
fn run_rank(folder: &Path, number: u32, began: Duration) -> Result {
    parent_death::die_with_parent()?;
    let options: Options = folder::plan::read(folder)?;
    let size = options.local.unwrap_or(1);
    let line = match options.torchrun {
        true => line::placeholder::filled(&options.command, number, size),
        false => line::placeholder::line_of(&options.command, number, size),
    };
    let folder = folder.to_owned();
    here::run(&options, Place::PrivateHost { rank: number, folder, began }, line)
}
