//! The files of an installation.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::architecture::{Architecture, BinaryTool};
use super::licences;
use crate::{Result, workspace};

/// The shared libraries: as cargo names them, and as programs and `roce run` look for them.
const LIBRARIES: [(&str, &str); 2] =
    [("libibverbs.so", "libibverbs.so.1"), ("libroce_preload.so", "libroce_preload.so")];

/// Another name of a library, for the linker, and what it is a link to.
const LINK: (&str, &str) = ("libibverbs.so", "libibverbs.so.1");

/// The folders of an installation.
pub(super) const FOLDERS: [&str; 3] = ["bin", "lib", "share"];

/// A folder with [`FOLDERS`].
#[derive(Debug)]
pub(super) struct Installation {
    folder: PathBuf,
    architecture: Architecture,
}

impl Installation {
    /// Lays out what was built in one folder below another, which does not exist yet. Manual pages and completions
    /// are those of `runnable`, or else are written by the program itself, which this machine must run then.
    pub(super) fn lay_out(
        architecture: Architecture,
        built: &Path,
        folder: &Path,
        runnable: Option<&Self>,
    ) -> Result<Self> {
        let made = Self { folder: folder.to_owned(), architecture };
        let libraries = made.library_folder();
        for folder in [&folder.join("bin"), &libraries] {
            fs::create_dir_all(folder)?;
        }
        let strip =
            |from: &str, to: &Path, extent| strip(architecture, &built.join(from), to, extent);
        strip("roce", &made.program(), "--strip-all")?;
        for (from, to) in LIBRARIES {
            strip(from, &libraries.join(to), "--strip-unneeded")?;
        }
        symlink(LINK.1, libraries.join(LINK.0))?;

        let share = folder.join("share");
        let program = runnable.unwrap_or(&made).program();
        let generated = Command::new(program).arg("generate").arg(&share).status()?;
        if !generated.success() {
            return Err("roce generate failed".into());
        }
        let documents = made.documents();
        copy_folder(&workspace::root().join("docs"), &documents.join("docs"))?;
        fs::copy(workspace::root().join("README.md"), documents.join("README.md"))?;
        fs::write(documents.join("copyright"), licences::own()?)?;
        fs::write(
            documents.join("third-party-licences"),
            licences::of_dependencies(architecture)?,
        )?;
        Ok(made)
    }

    /// Returns the folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns its architecture.
    pub(super) fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// Returns the program.
    pub(super) fn program(&self) -> PathBuf {
        self.folder.join("bin/roce")
    }

    fn library_folder(&self) -> PathBuf {
        self.folder.join("lib/roce")
    }

    /// Returns the folder of the documents and licences.
    pub(super) fn documents(&self) -> PathBuf {
        self.folder.join("share/doc/roce")
    }

    /// Returns the libraries.
    pub(super) fn libraries(&self) -> Vec<PathBuf> {
        LIBRARIES.iter().map(|(_, name)| self.library_folder().join(name)).collect()
    }

    /// Returns the program and the libraries.
    pub(super) fn binaries(&self) -> Vec<PathBuf> {
        [self.program()].into_iter().chain(self.libraries()).collect()
    }
}

/// Copies the files of a folder and of the folders in it.
pub(super) fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_folder(&entry.path(), &copy)?,
            false => {
                fs::copy(entry.path(), copy)?;
            }
        }
    }
    Ok(())
}

/// Copies a program or library without what only debuggers and linkers read.
fn strip(architecture: Architecture, from: &Path, to: &Path, extent: &str) -> Result<()> {
    let mut strip = Command::new(architecture.tool(BinaryTool::Strip));
    strip.args([extent, "--remove-section=.comment", "-o"]).arg(to).arg(from);
    if strip.status()?.success() {
        return Ok(());
    }
    Err(format!("{} cannot be stripped", from.display()).into())
}
