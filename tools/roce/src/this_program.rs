//! This program, to be started again.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::{loader_variables, log};

/// Returns the command of this program with its own arguments.
pub(crate) fn with_own_arguments() -> Command {
    let mut command = without_arguments();
    command.args(std::env::args_os().skip(1));
    command
}

/// Returns the command of this program, without arguments.
pub(crate) fn without_arguments() -> Command {
    // This path is the running program, even if its file was replaced or is not readable.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(std::env::args_os().next().unwrap_or_else(|| "roce".into()));
    loader_variables::give_back(&mut command);
    if log::invalid_level().is_some() {
        // This process has warned about it.
        command.env_remove(log::VARIABLE);
    }
    command
}
