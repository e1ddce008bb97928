//! The end of a process with its parent.

use nix::sys::prctl;
use nix::sys::signal::Signal;

use crate::error::{CliError, Result};

/// Asks the kernel to kill this process when its parent ends.
pub(crate) fn die_with_parent() -> Result {
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|errno| CliError::context("setting the parent death signal", errno))
}
