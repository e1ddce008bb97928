//! The folder of a run.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use crate::error::{CliError, Result};

/// A folder with the files that a run shows to its program. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    /// Tells other runs that the folder is in use.
    _lock: Flock<File>,
}

impl Scratch {
    /// Creates the folder where programs may have temporary files, and removes those of runs that
    /// were killed.
    pub(crate) fn new() -> Result<Self> {
        let parent = parent_folder();
        remove_abandoned(&parent);
        let name = format!("{}XXXXXX", prefix_of(std::process::id()));
        let path = nix::unistd::mkdtemp(&parent.join(name)).map_err(|errno| {
            CliError::context(format!("a folder in {}", parent.display()), errno)
        })?;
        let lock = lock(&path).ok_or_else(|| {
            CliError::new(format!("cannot lock the new folder {}", path.display()))
        })?;
        let scratch = Self { path, _lock: lock };
        // The program may run as another user.
        fs::set_permissions(&scratch.path, fs::Permissions::from_mode(0o755))?;
        for folder in [scratch.view(), scratch.libraries(), scratch.counters()] {
            fs::create_dir_all(folder)?;
        }
        fs::set_permissions(scratch.counters(), fs::Permissions::from_mode(0o1777))?;
        Ok(scratch)
    }

    /// Returns the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
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
        self.path.join("counters")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The program may have locked a file; what stays is small and in a temporary folder.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Returns the folder for temporary files.
fn parent_folder() -> PathBuf {
    let chosen = env::temp_dir();
    // Paths of the folder go into lists and patterns, where these characters have a meaning.
    let special = |byte: &u8| b" :,*?[\\=".contains(byte);
    let is_plain = !chosen.as_os_str().as_encoded_bytes().iter().any(special);
    let parent = if is_plain { chosen.as_path() } else { Path::new("/tmp") };
    fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned())
}

/// Removes the folder of a process that was killed before it could. Errors leave it to a later run.
pub(crate) fn remove_of(process: u32) {
    let deadline = Instant::now() + REMOVE_TIMEOUT;
    let prefix = prefix_of(process);
    for entry in fs::read_dir(parent_folder()).into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
            continue;
        }
        // A lock means that a process of the same number in another namespace has the folder.
        let Some(_lock) = lock(&entry.path()) else { continue };
        // The program is being killed, too, and may still write its counters.
        while fs::remove_dir_all(entry.path()).is_err() && Instant::now() < deadline {
            thread::sleep(REMOVE_INTERVAL);
        }
    }
}

/// Returns the start of the names of a process's folders.
fn prefix_of(process: u32) -> String {
    format!("{PREFIX}{process}-")
}

/// Removes the folders of this user's runs that nothing uses any more. Errors leave a folder to the
/// next run.
fn remove_abandoned(parent: &Path) {
    let user = nix::unistd::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = |metadata: fs::Metadata| {
            let age = metadata.modified().ok().and_then(|changed| changed.elapsed().ok());
            // A young one may belong to a run that has not locked it yet.
            metadata.is_dir() && metadata.uid() == user && age.is_some_and(|age| age > MIN_AGE)
        };
        let is_run = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        if !is_run || !entry.metadata().is_ok_and(is_ours) {
            continue;
        }
        if let Some(_lock) = lock(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Locks a folder until the result is dropped; `None` if that is not possible now.
fn lock(folder: &Path) -> Option<Flock<File>> {
    Flock::lock(File::open(folder).ok()?, FlockArg::LockExclusiveNonblock).ok()
}

/// Start of the folders' names.
const PREFIX: &str = "roce-run-";

/// Time that the programs of a killed process may take to end.
const REMOVE_TIMEOUT: Duration = Duration::from_millis(500);

/// Time between two attempts to remove a folder.
const REMOVE_INTERVAL: Duration = Duration::from_millis(10);

/// Age from which a folder without a lock is one that a run has left behind.
const MIN_AGE: Duration = Duration::from_secs(60);

/// Name of the folder with the tree.
pub(crate) const VIEW: &str = "view";

/// Name of the folder with the libraries.
pub(crate) const LIBRARIES: &str = "lib";
