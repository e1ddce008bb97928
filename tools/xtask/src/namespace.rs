//! Runs a program as root of a user namespace.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::Result;

/// Becomes root in a user namespace of its own, unless it is root already, and then becomes the
/// program. Returns only when that fails.
pub(crate) fn exec(command: &[OsString]) -> Result<()> {
    roce_netns::enter_user_namespace_if_needed()?;
    let [program, arguments @ ..] = command else {
        return Err("no program was named".into());
    };
    let error = Command::new(program).args(arguments).exec();
    Err(format!("start {}: {error}", program.display()).into())
}
