//! Programs of this machine that build and boot a guest.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::GuestError;

/// A program of this machine that is needed to build or boot a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Finds packages; available on Debian and its derivatives only.
    AptCache,
    /// Fetches packages.
    AptGet,
    /// Unpacks packages.
    DpkgDeb,
    /// Unpacks the modules of newer kernels.
    Xz,
    /// Compiles this project's programs for the guest.
    Cc,
    /// Lists the libraries that a program needs.
    Readelf,
    /// Emulates the guest's hardware.
    Qemu,
}

impl Tool {
    /// All tools.
    pub const ALL: [Self; 7] = [
        Self::AptCache,
        Self::AptGet,
        Self::DpkgDeb,
        Self::Xz,
        Self::Cc,
        Self::Readelf,
        Self::Qemu,
    ];

    /// Returns the name of the program.
    pub const fn program(self) -> &'static str {
        match self {
            Self::AptCache => "apt-cache",
            Self::AptGet => "apt-get",
            Self::DpkgDeb => "dpkg-deb",
            Self::Xz => "xz",
            Self::Cc => "cc",
            Self::Readelf => "readelf",
            Self::Qemu => "qemu-system-x86_64",
        }
    }

    /// Returns the Debian package with the program.
    pub const fn package(self) -> &'static str {
        match self {
            Self::AptCache | Self::AptGet => "apt",
            Self::DpkgDeb => "dpkg",
            Self::Xz => "xz-utils",
            Self::Cc => "gcc",
            Self::Readelf => "binutils",
            Self::Qemu => "qemu-system-x86",
        }
    }

    /// Returns true if the program is in `PATH`.
    pub fn is_installed(self) -> bool {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).any(|directory| directory.join(self.program()).is_file())
    }
}

/// Returns the tools that this machine lacks; a guest needs all tools.
pub fn missing_tools() -> Vec<Tool> {
    Tool::ALL.into_iter().filter(|tool| !tool.is_installed()).collect()
}

/// Runs a tool and returns its standard output.
pub(crate) fn run_tool(
    tool: Tool,
    arguments: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<String, GuestError> {
    let program = tool.program();
    if !tool.is_installed() {
        return Err(GuestError::MissingTool { program, package: tool.package() });
    }
    let mut command = Command::new(program);
    arguments(&mut command).stdin(Stdio::null()).env("LC_ALL", "C");
    let output = command.output().map_err(GuestError::io(format!("start {program}")))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let tail: Vec<&str> = stderr.lines().rev().take(8).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        return Err(GuestError::ToolFailed {
            command: words(&command),
            status: output.status.to_string(),
            stderr: tail.join("\n"),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn words(command: &Command) -> String {
    let all = std::iter::once(command.get_program()).chain(command.get_args());
    all.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Creates a directory and its parents.
pub(crate) fn make_directory(path: &Path) -> Result<(), GuestError> {
    fs::create_dir_all(path).map_err(GuestError::io(format!("make {}", path.display())))
}
