//! What happened of the scripted faults of a run.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::faults::{self, Faults, Report};

/// Returns the file in the folder of a run to which its processes append events.
pub(in crate::run) fn path(folder: &Path) -> PathBuf {
    folder.join("faults")
}

/// Prints what happened in the run of a folder.
///
/// # Errors
/// Some faults never happened.
pub(in crate::run) fn report(faults: &Faults, folder: &Path) -> Result {
    let script = faults.script();
    if script.is_empty() {
        return Ok(());
    }
    Report::new(&script, faults::read_log(&path(folder))?).finish(|_| true)
}
