//! Our command on a machine whose kernel answers RoCE already: it must say so and stop.

use std::process::Command;

use crate::fault::{Fault, expect};
use crate::world::{World, program};

/// Runs our command in the guest, on the interface that has an rxe device.
///
/// # Errors
/// When it does not refuse, or does not say why.
pub fn run(world: &World) -> Result<(), Fault> {
    // Without what only a debugger reads, it is a tenth as long.
    let whole = program("roce")?;
    let stripped = whole.with_extension("stripped");
    let strip = Command::new("strip").arg("-o").arg(&stripped).arg(&whole).status();
    let bytes = strip
        .and_then(|_| std::fs::read(&stripped))
        .map_err(Fault::ours("strip the command of debugging information"))?;
    world.guest.push("/bin/roce", &bytes, 0o755)?;
    let output = world.guest.run("roce pingpong -d eth0")?;
    let text = output.stdout + &output.stderr;
    expect(!output.status.is_success(), || format!("it did not stop: {text}"))?;
    expect(text.contains("rxe"), || format!("it does not say that rxe is there: {text}"))
}
