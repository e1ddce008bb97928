//! A folder of a case's own.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Fault;

/// A folder below the system's temporary one, which is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Result<Self, Fault> {
        let folder = format!("roce-dropin-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        fs::create_dir_all(&path).map_err(Fault::ours("make a folder"))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays below the system's temporary folder.
        let _result = fs::remove_dir_all(&self.0);
    }
}
