//! Shared libraries that a program needs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::GuestError;
use crate::architecture::Architecture;
use crate::tool::{Tool, run_tool};

/// The shared libraries below a directory of unpacked packages, by file name.
#[derive(Debug)]
pub(crate) struct Libraries {
    by_name: BTreeMap<String, PathBuf>,
}

impl Libraries {
    /// Lists the libraries in the usual places below `root`.
    pub(crate) fn below(root: &Path, architecture: Architecture) -> Self {
        let mut by_name = BTreeMap::new();
        let folder = architecture.properties().library_folder;
        for place in [format!("lib/{folder}"), format!("usr/lib/{folder}"), "lib64".to_owned()] {
            for entry in fs::read_dir(root.join(&place)).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.contains(".so") {
                    by_name.entry(name).or_insert(entry.path());
                }
            }
        }
        Self { by_name }
    }

    /// Returns these libraries with all libraries that they need.
    ///
    /// # Errors
    /// As [`Libraries::needed_by`].
    pub(crate) fn closure_of(
        &self,
        names: &[&str],
    ) -> Result<BTreeMap<String, PathBuf>, GuestError> {
        let mut found = BTreeMap::new();
        for name in names {
            let path = self.find(name, "programs tried in the guest")?;
            found.extend(self.needed_by(std::slice::from_ref(path))?);
            found.insert((*name).to_owned(), path.clone());
        }
        Ok(found)
    }

    /// Returns all libraries that `programs` need, with the libraries of these.
    ///
    /// # Errors
    /// [`GuestError::NotInPackages`] with the first library that is in no package.
    pub(crate) fn needed_by(
        &self,
        programs: &[PathBuf],
    ) -> Result<BTreeMap<String, PathBuf>, GuestError> {
        let mut found = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut queue = programs.to_vec();
        while let Some(file) = queue.pop() {
            if !seen.insert(file.clone()) {
                continue;
            }
            for name in needed(&file)? {
                let path = self.find(&name, &file.display().to_string())?;
                queue.push(path.clone());
                found.insert(name, path.clone());
            }
        }
        Ok(found)
    }

    fn find(&self, name: &str, needed_by: &str) -> Result<&PathBuf, GuestError> {
        self.by_name.get(name).ok_or_else(|| GuestError::NotInPackages {
            what: name.to_owned(),
            needed_by: needed_by.to_owned(),
        })
    }
}

/// Returns the libraries in a file's dynamic section; none for a static program or a script.
fn needed(file: &Path) -> Result<Vec<String>, GuestError> {
    let mut magic = [0; 4];
    let head = fs::File::open(file).and_then(|mut file| {
        use std::io::Read;
        file.read_exact(&mut magic)
    });
    if head.is_err() || magic != *b"\x7fELF" {
        return Ok(Vec::new());
    }
    let output = run_tool(Tool::Readelf, |command| command.args(["-W", "-d"]).arg(file))?;
    Ok(output
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned()))
        .collect())
}
