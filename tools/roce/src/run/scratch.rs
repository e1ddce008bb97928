//! The folder of a run.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::{CliError, Result};

/// A folder with the files that a run shows to its program. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates the folder where programs may have temporary files.
    pub(crate) fn new() -> Result<Self> {
        let chosen = env::temp_dir();
        // Paths of the folder go into lists and patterns, where these characters have a meaning.
        let special = |byte: &u8| b" :,*?[\\=".contains(byte);
        let is_plain = !chosen.as_os_str().as_encoded_bytes().iter().any(special);
        let parent = if is_plain { chosen.as_path() } else { Path::new("/tmp") };
        let parent = fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned());
        let path = nix::unistd::mkdtemp(&parent.join("roce-run-XXXXXX")).map_err(|errno| {
            CliError::context(format!("a folder in {}", parent.display()), errno)
        })?;
        let scratch = Self(path);
        // The program may run as another user.
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o755))?;
        for folder in [scratch.view(), scratch.libraries(), scratch.counters()] {
            fs::create_dir_all(folder)?;
        }
        fs::set_permissions(scratch.counters(), fs::Permissions::from_mode(0o1777))?;
        Ok(scratch)
    }

    /// Returns the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the folder with the tree of files.
    pub(crate) fn view(&self) -> PathBuf {
        self.0.join(VIEW)
    }

    /// Returns the folder with the libraries.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.0.join(LIBRARIES)
    }

    /// Returns the folder in which processes publish their counters.
    pub(crate) fn counters(&self) -> PathBuf {
        self.0.join("counters")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The program may have locked a file; what stays is small and in a temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Name of the folder with the tree.
pub(crate) const VIEW: &str = "view";

/// Name of the folder with the libraries.
pub(crate) const LIBRARIES: &str = "lib";
