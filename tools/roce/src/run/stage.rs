//! The processes of `roce run`.
//!
//! The command that the user has started reads the command line, makes the folder of the run, and writes its options
//! there. It starts itself again as the keeper of a program, or as the supervisor of ranks, which starts itself again
//! as each rank. Keeper and ranks start themselves once more as what becomes the program. Each is told its part, and
//! reads the rest from the folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Subcommand};

use crate::this_program;

/// Be a process of a run (started by `run`)
#[derive(Args, Clone, Debug)]
pub(crate) struct StageOptions {
    /// Folder of the run, or of a rank
    pub(super) folder: PathBuf,
    #[command(subcommand)]
    pub(super) stage: Stage,
}

/// The part of a process in a run.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum Stage {
    /// Keeper of a program on the interfaces of this host
    Keeper {
        /// Process that started this one
        starter: u32,
    },
    /// Supervisor of ranks
    Supervisor {
        /// Process that started this one
        starter: u32,
    },
    /// One of the ranks
    Rank {
        /// Its number
        number: u32,
        /// When the run began, in nanoseconds of `CLOCK_MONOTONIC`
        began: u64,
    },
    /// What becomes the program
    Program {
        /// Process that started this one
        parent: u32,
    },
}

impl Stage {
    /// Returns the command of this stage. `folder` is that of the run, for a program that of its rank.
    pub(super) fn command(self, folder: &Path) -> Command {
        let mut command = this_program::without_arguments();
        command.arg("run-stage").arg(folder);
        let (name, number) = match self {
            Self::Keeper { starter } => ("keeper", starter),
            Self::Supervisor { starter } => ("supervisor", starter),
            Self::Rank { number, .. } => ("rank", number),
            Self::Program { parent } => ("program", parent),
        };
        command.arg(name).arg(number.to_string());
        if let Self::Rank { began, .. } = self {
            command.arg(began.to_string());
        }
        command
    }
}
