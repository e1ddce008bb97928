//! The folder of a rank.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use roce_verbs::RunPlan;

use super::run_folder::SEARCHED_BY_OTHERS;
use crate::error::Result;

/// A folder with the files that a rank shows to its program, in the [folder of the
/// run](super::run_folder::RunFolder), which removes it.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates the folder.
    pub(crate) fn new(run_folder: &Path, rank: u32) -> Result<Self> {
        let scratch = Self { path: run_folder.join(rank.to_string()) };
        fs::create_dir(&scratch.path)?;
        fs::set_permissions(&scratch.path, fs::Permissions::from_mode(SEARCHED_BY_OTHERS))?;
        fs::create_dir(scratch.view())?;
        fs::create_dir(scratch.libraries())?;
        // What is published there is read by this process: no other user may write it.
        for folder in [scratch.counters(), scratch.connections()] {
            fs::DirBuilder::new().mode(0o700).create(folder)?;
        }
        Ok(scratch)
    }

    /// Returns the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a plan that has asked the library for nothing yet, which knows where it looks.
    pub(crate) fn plan(&self) -> RunPlan {
        RunPlan::in_folder(&self.path)
    }

    /// Returns the folder with the tree of files.
    pub(crate) fn view(&self) -> PathBuf {
        self.path.join(VIEW)
    }

    /// Returns the folder with the libraries.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.path.join(LIBRARIES)
    }

    /// Returns the folder in which processes publish their counters.
    pub(crate) fn counters(&self) -> PathBuf {
        self.plan().counters()
    }

    /// Returns the unix socket at which processes get packet sockets.
    pub(crate) fn sockets(&self) -> PathBuf {
        self.path.join("sockets")
    }

    /// Returns the folder in which processes write down their connections.
    pub(crate) fn connections(&self) -> PathBuf {
        self.plan().connections()
    }
}

/// Name of the folder with the tree.
pub(crate) const VIEW: &str = "view";

/// Name of a file, where the program sees that tree by the replaced calls of the C library.
pub(crate) const VIEW_BY_PRELOAD: &str = "view-by-preload";

/// Name of the folder with the libraries.
pub(crate) const LIBRARIES: &str = "lib";
