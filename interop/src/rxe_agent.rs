//! The agent for rxe, a C program in the guest.

use std::path::Path;

use roce_guest::{Guest, Image};

use crate::Fault;

/// The program in the guest.
pub(crate) const PROGRAM: &str = "/bin/rxe_agent";

/// Compiles the guest's program and puts it there; once for each guest.
///
/// # Errors
/// When there is no compiler, or the guest is gone.
pub(crate) fn install(image: &Image, guest: &Guest) -> Result<(), Fault> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("rxe_agent");
    let program = image.compile(&[&source], &["ibverbs"])?;
    let bytes = std::fs::read(&program)
        .map_err(|error| Fault::Wrong(format!("{}: {error}", program.display())))?;
    Ok(guest.push(PROGRAM, &bytes, 0o755)?)
}
