//! The files that are released.

use std::path::{Path, PathBuf};

use super::elf::Needs;
use super::installation::Installation;
use super::{deb, rpm, sbom, tarball};
use crate::{Result, zig};

/// What is released for an architecture.
#[derive(Debug)]
pub(super) struct Released {
    pub(super) tarball: PathBuf,
    pub(super) deb: PathBuf,
    pub(super) rpm: PathBuf,
    sbom: PathBuf,
}

impl Released {
    /// Packs an installation into `folder`. Unless it is of this machine alone, it is for the glibc of releases.
    pub(super) fn pack(
        installation: &Installation,
        is_of_this_machine: bool,
        folder: &Path,
    ) -> Result<Self> {
        let architecture = installation.architecture();
        let needs = Needs::of_all(architecture, &installation.binaries())?;
        if !is_of_this_machine {
            needs.check(zig::GLIBC)?;
        }
        Ok(Self {
            tarball: tarball::build(installation, folder)?,
            deb: deb::build(installation, &needs, folder)?,
            rpm: rpm::build(installation, &needs, folder)?,
            sbom: sbom::write(architecture, folder)?,
        })
    }

    /// Returns all of it.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        [&self.tarball, &self.deb, &self.rpm, &self.sbom].map(Clone::clone).into()
    }
}
