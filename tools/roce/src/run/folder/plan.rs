//! What the processes of a run read, as JSON.
//!
//! The folder of a run has the options of its command line, the folder of a rank how its program is started.

use std::fmt::Display;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{CliError, Result};

/// Name of the file. Beside it a rank has the plan of the library.
const FILE: &str = "stage.json";

/// Writes the file of a folder; other users cannot read it.
pub(in crate::run) fn write(folder: &Path, what: &impl Serialize) -> Result {
    let file = File::options().write(true).create_new(true).mode(0o600).open(folder.join(FILE))?;
    Ok(serde_json::to_writer(file, what)?)
}

/// Reads the file of a folder.
pub(in crate::run) fn read<T: DeserializeOwned>(folder: &Path) -> Result<T> {
    let path = folder.join(FILE);
    let failed = |why: &dyn Display| CliError::new(format!("{}: {why}", path.display()));
    let text = fs::read(&path).map_err(|error| failed(&error))?;
    serde_json::from_slice(&text).map_err(|error| failed(&error))
}
