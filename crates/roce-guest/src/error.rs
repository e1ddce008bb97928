//! Errors of a guest.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Error while a guest is built, booted or used.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// A program that is needed to build or boot a guest is not installed.
    #[error("`{program}` is not installed; as root run: apt-get install -y {package}")]
    MissingTool {
        /// Name of the program.
        program: &'static str,
        /// Debian package with the program.
        package: &'static str,
    },
    /// A program of this machine ran and failed.
    #[error("`{command}` failed ({status}): {stderr}")]
    ToolFailed {
        /// The command line.
        command: String,
        /// Exit status as text.
        status: String,
        /// Last lines of its standard error.
        stderr: String,
    },
    /// A file, directory or process of this machine could not be used.
    #[error("{doing}: {source}")]
    Io {
        /// Attempted operation, with the path.
        doing: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The packages hold no file of this name: the list of packages in `packages.rs` is too short.
    #[error("no fetched package holds {what} (needed by {needed_by}); add the package that does")]
    NotInPackages {
        /// The library, program or module.
        what: String,
        /// File that needs it.
        needed_by: String,
    },
    /// apt has no source of a Debian release as a whole.
    #[error("apt has no source of a Debian release; add one to its sources.list")]
    NoMirror,
    /// No suite of the Debian archive has this name.
    #[error("{0:?} is no suite")]
    NoSuite(String),
    /// The guest did not respond in time, or a command produced no output or end in time.
    #[error("{what} took more than {limit:?}; the guest's console ends with:\n{console}")]
    TimedOut {
        /// Expected event.
        what: String,
        /// Time limit.
        limit: Duration,
        /// The end of the guest's console log.
        console: String,
    },
    /// The guest is no longer there: qemu ended, or the guest's kernel crashed.
    #[error("the guest is gone (qemu: {qemu}); its console, {log}, ends with:\n{console}")]
    Gone {
        /// How qemu ended, where known.
        qemu: String,
        /// The console log.
        log: PathBuf,
        /// The end of the guest's console log.
        console: String,
    },
    /// A command in the guest ended with a status other than 0 where success was asked for.
    #[error("in the guest `{command}` ended with {status}: {stderr}{stdout}")]
    CommandFailed {
        /// The shell command.
        command: String,
        /// How it ended.
        status: crate::Status,
        /// What it wrote on standard output.
        stdout: String,
        /// What it wrote on standard error.
        stderr: String,
    },
}

impl GuestError {
    /// Returns a function for `map_err` that adds the attempted operation.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}
