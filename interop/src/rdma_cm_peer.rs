//! The guest's program for connections by address and port, on librdmacm.

use std::path::Path;

use roce_guest::{Guest, Image};

use crate::Fault;

/// Where it is in the guest.
pub(crate) const PROGRAM: &str = "/bin/rdma_cm_peer";

/// Compiles the program and puts it into a guest; once for each.
///
/// # Errors
/// When there is no compiler, or the guest is gone.
pub(crate) fn install(image: &Image, guest: &Guest) -> Result<(), Fault> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("rdma_cm_peer");
    let program = image.compile(&[&source], &["rdmacm", "ibverbs"])?;
    let bytes = std::fs::read(&program)
        .map_err(|error| Fault::Wrong(format!("{}: {error}", program.display())))?;
    Ok(guest.push(PROGRAM, &bytes, 0o755)?)
}
