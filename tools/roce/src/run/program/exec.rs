//! The last step of a run: this process becomes the program.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::executable::NOT_EXECUTABLE;
use super::library::VERBS;
use super::mounts;
use super::privileges;
use crate::error::{CliError, Result};
use crate::loader_variables;
use crate::parent_death;
use crate::run::folder::scratch::{LIBRARIES, VIEW, VIEW_BY_PRELOAD};
use crate::run::line::options::ViewMode;
use crate::run::outcome::exit_code::FAILED;
use crate::run::processes::signals;

/// How the program of a rank is started.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) view: ViewMode,
    /// The network namespace is that of a private host.
    pub(crate) is_private_host: bool,
    /// Libraries to preload; none: the program cannot load ours.
    pub(crate) preload: Vec<OsString>,
    /// File of the program.
    pub(crate) program: OsString,
    /// Name of the program and its arguments.
    pub(crate) line: Vec<OsString>,
}

impl Launch {
    /// Becomes the program, which sees the files of the folder of its rank; returns only if that fails.
    pub(crate) fn become_program(&self, scratch: &Path, parent: u32) -> Result {
        parent_death::die_with_parent()?;
        if parent_id() != parent {
            // The parent ended before that was set.
            return Err(CliError::Reported(FAILED));
        }
        let view = scratch.join(VIEW);
        let mount = || mounts::show(&view, &scratch.join("mounts"), self.is_private_host);
        let is_mounted = match self.view {
            ViewMode::None | ViewMode::Preload => false,
            ViewMode::Mount => mount().map(|()| true).map_err(cannot_mount)?,
            ViewMode::Auto => match mount() {
                Ok(()) => true,
                Err(error) => {
                    tracing::info!(%error, "no view by mount, so by preload");
                    false
                }
            },
        };
        let [name, arguments @ ..] = self.line.as_slice() else {
            return Err(CliError::Reported(FAILED));
        };
        let mut command = Command::new(&self.program);
        command.arg0(name).args(arguments);
        if !is_mounted && self.view != ViewMode::None {
            File::create(scratch.join(VIEW_BY_PRELOAD))?;
        }
        loader_variables::give_back(&mut command);
        if !self.preload.is_empty() {
            let libraries = [scratch.join(LIBRARIES)].into_iter().chain(installed(&self.preload));
            command.env(
                "LD_LIBRARY_PATH",
                list(libraries, loader_variables::var_os("LD_LIBRARY_PATH")),
            );
            // The user's libraries come first, as without this command: a sanitizer's runtime among them has to. The
            // last one keeps the library's handler of faults in front of the program's, with a view or without.
            let first = loader_variables::var_os("LD_PRELOAD").map(PathBuf::from);
            let preloaded = first.into_iter().chain(self.preload.iter().map(PathBuf::from));
            command.env("LD_PRELOAD", list(preloaded, None));
        }
        if let Some(options) = address_sanitizer_options(env::var_os("ASAN_OPTIONS")) {
            command.env("ASAN_OPTIONS", options);
        }
        privileges::keep();
        signals::unblock()?;
        let error = command.exec();
        eprintln!("roce: cannot start {}: {error}", Path::new(&self.program).display());
        Err(CliError::Reported(NOT_EXECUTABLE))
    }
}

/// Returns the folder of an installation, which has the library under the name that programs load, and outlives the
/// folder of the run.
fn installed(preloaded: &[OsString]) -> Option<PathBuf> {
    let verbs = preloaded.iter().map(Path::new).find(|file| file.ends_with(VERBS))?;
    verbs.parent().map(Path::to_owned)
}

/// Returns paths and behind them what a variable has already, separated by colons.
fn list(paths: impl IntoIterator<Item = PathBuf>, more: Option<OsString>) -> OsString {
    let mut all: Vec<OsString> = paths.into_iter().map(OsString::from).collect();
    all.extend(more);
    all.retain(|path| !path.is_empty());
    all.join(OsStr::new(":"))
}

/// Returns the options of AddressSanitizer with which its runtime starts behind preloaded libraries;
/// nothing if the user has chosen.
///
/// A runtime that a program is linked with stands behind all preloaded libraries, and refuses to start
/// there, since they might hide functions that it replaces. Ours call on to the next library, which is
/// the runtime. Preloading the runtime would put it first, but in each program that is started as well:
/// behind `sh -c` only some of them are built with it.
fn address_sanitizer_options(chosen: Option<OsString>) -> Option<OsString> {
    const NAME: &str = "verify_asan_link_order";
    let chosen = chosen.unwrap_or_default();
    let is_chosen = chosen.to_string_lossy().contains(NAME);
    let option = PathBuf::from(format!("{NAME}=0"));
    (!is_chosen).then(|| list([chosen.into(), option], None))
}

fn cannot_mount(error: io::Error) -> CliError {
    CliError::new(format!(
        "cannot mount the files of the devices: {error}; it needs CAP_SYS_ADMIN (root, a container \
         with --privileged, or --local); or use --view preload"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_libraries_is_not_checked_unless_the_user_says_so() {
        let options = |chosen: &str| address_sanitizer_options(Some(chosen.into()));
        assert_eq!(address_sanitizer_options(None), Some("verify_asan_link_order=0".into()));
        assert_eq!(options("a=1:b=2"), Some("a=1:b=2:verify_asan_link_order=0".into()));
        assert_eq!(options("verify_asan_link_order=1"), None);
    }

    #[test]
    fn a_list_has_no_empty_parts() {
        let list = |more: &str| list(["/a", "", "/b"].map(PathBuf::from), Some(more.into()));
        assert_eq!((list(""), list("/c")), ("/a:/b".into(), "/a:/b:/c".into()));
    }
}
