//! The last step of a run: this process becomes the program.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use roce_verbs::environment;

use super::exit_code::{FAILED, not_run};
use super::library::VERBS;
use super::program::NOT_EXECUTABLE;
use super::scratch::{LIBRARIES, VIEW};
use super::{ViewMode, mounts, privileges, signals};
use crate::error::{CliError, Result};
use crate::loader_variables;
use crate::parent_death;

/// Become a program that sees the files of a folder (used by `run`)
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[arg(long, value_enum)]
    view: ViewMode,
    /// Process that started this one
    #[arg(long)]
    parent: u32,
    /// The network namespace is that of a private host
    #[arg(long)]
    private_host: bool,
    /// Folder of the run
    #[arg(long)]
    scratch: PathBuf,
    /// Library to preload; none: the program cannot load ours
    #[arg(long)]
    preload: Vec<PathBuf>,
    /// File of the program
    #[arg(long)]
    program: PathBuf,
    /// Name of the program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs the command; returns only if that fails.
pub(crate) fn run(options: &Options) -> Result {
    become_program(options).map_err(not_run)
}

fn become_program(options: &Options) -> Result {
    parent_death::die_with_parent()?;
    if parent_id() != options.parent {
        // The parent ended before that was set.
        return Err(CliError::Reported(FAILED));
    }
    let view = options.scratch.join(VIEW);
    let mount = || mounts::show(&view, &options.scratch.join("mounts"), options.private_host);
    let is_mounted = match options.view {
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
    let [name, arguments @ ..] = options.command.as_slice() else {
        return Err(CliError::Reported(FAILED));
    };
    let mut command = Command::new(&options.program);
    command.arg0(name).args(arguments);
    if !is_mounted && options.view != ViewMode::None {
        command.env(environment::VIEW, &view);
    }
    loader_variables::give_back(&mut command);
    if !options.preload.is_empty() {
        let libraries =
            [options.scratch.join(LIBRARIES)].into_iter().chain(installed(&options.preload));
        command
            .env("LD_LIBRARY_PATH", list(libraries, loader_variables::var_os("LD_LIBRARY_PATH")));
        // The user's libraries come first, as without this command: a sanitizer's runtime among them has to. The
        // last one keeps the library's handler of faults in front of the program's, with a view or without.
        let first = loader_variables::var_os("LD_PRELOAD").map(PathBuf::from);
        let preloaded = first.into_iter().chain(options.preload.iter().cloned());
        command.env("LD_PRELOAD", list(preloaded, None));
    }
    if let Some(options) = address_sanitizer_options(env::var_os("ASAN_OPTIONS")) {
        command.env("ASAN_OPTIONS", options);
    }
    privileges::keep();
    signals::unblock()?;
    let error = command.exec();
    eprintln!("roce: cannot start {}: {error}", options.program.display());
    Err(CliError::Reported(NOT_EXECUTABLE))
}

/// Returns the folder of an installation, which has the library under the name that programs load, and outlives the
/// folder of the run.
fn installed(preloaded: &[PathBuf]) -> Option<PathBuf> {
    let verbs = preloaded.iter().find(|file| file.ends_with(VERBS))?;
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
