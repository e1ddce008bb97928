//! Programs that pack.

use std::process::Command;

use crate::Result;

/// Runs a program that prints nothing of use unless it fails.
pub(super) fn run_tool(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let program = command.get_program().display().to_string();
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr)).into())
}
