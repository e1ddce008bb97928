//! The folder of a run.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::plan;
use crate::error::{CliError, Result};
use crate::loader_variables;
use crate::run::line::options::Options;
use crate::run::outcome::fault_log;
use crate::run::outcome::verdict;

/// A folder in which each rank of a run has a folder. It is removed when this is dropped.
///
/// Only the run's user can change what is in it. Others can open a file whose path they know, since a
/// program may change its user and still has to load the library, but cannot list the folder.
#[derive(Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
    /// Tells other runs that the folder is in use.
    _lock: Flock<File>,
}

impl RunFolder {
    /// Creates the folder where programs may have temporary files, and removes those of runs that
    /// were killed.
    fn new() -> Result<Self> {
        let path = make()?;
        let lock = lock(&path, FlockArg::LockSharedNonblock).ok_or_else(|| {
            CliError::new(format!("cannot lock the new folder {}", path.display()))
        })?;
        // From here on the name says that a lock exists, so that another run need not wait for it.
        let name = path.file_name().unwrap_or_default().to_string_lossy().replacen(NEW, LOCKED, 1);
        let locked = path.with_file_name(name);
        let folder = match fs::rename(&path, &locked) {
            Ok(()) => Self { path: locked, _lock: lock },
            Err(error) => {
                let _ = fs::remove_dir(&path);
                return Err(CliError::context(format!("renaming {}", path.display()), error));
            }
        };
        fs::set_permissions(&folder.path, fs::Permissions::from_mode(SEARCHED_BY_OTHERS))?;
        Ok(folder)
    }

    /// Creates the folder of a run with what its stages read: the options, and empty logs of faults and of
    /// what ranks do.
    pub(crate) fn with(options: &Options) -> Result<Self> {
        let folder = Self::new()?;
        plan::write(folder.path(), options)?;
        File::create_new(fault_log::path(folder.path()))?;
        if !options.require.is_empty() {
            File::create_new(verdict::path(folder.path()))?;
        }
        Ok(folder)
    }

    /// Takes over a folder from the process that has created it and has started this one.
    ///
    /// # Errors
    /// It is not there any more.
    pub(crate) fn adopt(path: &Path) -> Result<Self> {
        let lock = lock(path, FlockArg::LockSharedNonblock)
            .ok_or_else(|| CliError::new(format!("there is no run in {}", path.display())))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Returns the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the folder to the next run.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // Processes of a run that ends by a panic may go on; the next run removes the folder.
        if std::thread::panicking() {
            return;
        }
        // The program may have locked a file; what stays is removed by the next run.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Makes a folder where this user may, and removes abandoned ones beside it.
fn make() -> Result<PathBuf> {
    let mut refused = Vec::new();
    for parent in [parent_folder(), PathBuf::from(SHARED_MEMORY)] {
        remove_abandoned(&parent);
        match nix::unistd::mkdtemp(&parent.join(format!("{NEW}XXXXXX"))) {
            Ok(path) => return Ok(path),
            Err(errno) => refused.push(format!("{}: {}", parent.display(), errno.desc())),
        }
    }
    Err(CliError::new(format!(
        "no folder for the files of a run ({}): set TMPDIR to one that can be written to",
        refused.join("; ")
    )))
}

/// A folder in memory, which containers have where their root cannot be written to.
const SHARED_MEMORY: &str = "/dev/shm";

/// Returns the folder for temporary files.
fn parent_folder() -> PathBuf {
    let chosen = loader_variables::var_os("TMPDIR").filter(|folder| !folder.is_empty());
    let chosen = chosen.map_or_else(env::temp_dir, PathBuf::from);
    // Paths of the folder go into lists and patterns, where these characters have a meaning.
    let special = |byte: &u8| b" :,*?[\\=\n".contains(byte);
    let is_plain = !chosen.as_os_str().as_encoded_bytes().iter().any(special);
    let parent = if is_plain { chosen.as_path() } else { Path::new("/tmp") };
    fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned())
}

/// Removes the folders of this user's runs that nothing uses any more. Errors leave a folder to the
/// next run.
fn remove_abandoned(parent: &Path) {
    let user = nix::unistd::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let starts_with = |start: &str| name.as_encoded_bytes().starts_with(start.as_bytes());
        let is_abandoned = |metadata: fs::Metadata| {
            let age = metadata.modified().ok().and_then(|changed| changed.elapsed().ok());
            // A new one may belong to a run that has not locked it yet.
            let is_due = starts_with(LOCKED) || age.is_some_and(|age| age.as_secs() > 60);
            metadata.is_dir() && metadata.uid() == user && is_due
        };
        if !(starts_with(LOCKED) || starts_with(NEW)) || !entry.metadata().is_ok_and(is_abandoned) {
            continue;
        }
        let lock = lock(&entry.path(), FlockArg::LockExclusiveNonblock);
        if lock.is_some() && !is_used(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns true if a process of the run lives whose keeper was killed: its environment names the folder. That of
/// another user's process may be hidden.
fn is_used(folder: &Path) -> bool {
    let name = folder.as_os_str().as_encoded_bytes();
    let names_it = |process: fs::DirEntry| {
        let is_process =
            process.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit);
        let block = || fs::read(process.path().join("environ")).unwrap_or_default();
        is_process && block().windows(name.len()).any(|part| part == name)
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().any(names_it)
}

/// Locks a folder until the result is dropped; `None` if that is not possible now. The processes of a run share the
/// lock, and one that removes its folder has it alone.
fn lock(folder: &Path, how: FlockArg) -> Option<Flock<File>> {
    Flock::lock(File::open(folder).ok()?, how).ok()
}

/// Start of the names of folders that have been locked.
const LOCKED: &str = "roce-run-";

/// Start of the names of folders that are not locked yet.
const NEW: &str = "roce-new-";

/// Access to a folder in which others may open paths that they know.
pub(crate) const SEARCHED_BY_OTHERS: u32 = 0o711;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_lock_is_removed_by_the_next_run_and_one_in_use_stays() {
        let parent = env::temp_dir().join(format!("roce-folders-{}", std::process::id()));
        fs::create_dir_all(&parent).unwrap();
        let [abandoned, used, new] = ["roce-run-a", "roce-run-b", "roce-new-c"].map(|name| {
            let folder = parent.join(name);
            fs::create_dir_all(folder.join("0/view")).unwrap();
            folder
        });
        let lock = lock(&used, FlockArg::LockSharedNonblock);
        assert!(lock.is_some());
        remove_abandoned(&parent);
        assert!(!abandoned.exists() && used.exists() && new.exists());
        drop(lock);
        remove_abandoned(&parent);
        assert!(!used.exists());
        fs::remove_dir_all(parent).unwrap();
    }
}
