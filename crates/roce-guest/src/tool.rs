//! Programs of this machine that build and boot a guest.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::GuestError;
use crate::architecture::{Architecture, Program};

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
    /// Compiles this project's programs for a guest.
    Cc(Architecture),
    /// Part of the compiler: the C library of another architecture than this machine's.
    CLibrary(Architecture),
    /// Runs programs of another architecture than this machine's.
    Emulator(Architecture),
    /// Lists the libraries that a program needs.
    Readelf,
    /// Emulates a guest's hardware.
    Qemu(Architecture),
}

impl Tool {
    /// Returns all tools for a guest of an architecture.
    fn all(architecture: Architecture) -> [Self; 9] {
        [
            Self::AptCache,
            Self::AptGet,
            Self::DpkgDeb,
            Self::Xz,
            Self::Cc(architecture),
            Self::CLibrary(architecture),
            Self::Emulator(architecture),
            Self::Readelf,
            Self::Qemu(architecture),
        ]
    }

    /// Returns the program; `None` if the architecture needs none.
    const fn source(self) -> Option<Program> {
        let (name, package) = match self {
            Self::AptCache => ("apt-cache", "apt"),
            Self::AptGet => ("apt-get", "apt"),
            Self::DpkgDeb => ("dpkg-deb", "dpkg"),
            Self::Xz => ("xz", "xz-utils"),
            Self::Readelf => ("readelf", "binutils"),
            Self::Cc(architecture) => return Some(architecture.properties().compiler),
            Self::CLibrary(architecture) => return architecture.properties().c_library,
            Self::Emulator(architecture) => return architecture.properties().program_emulator,
            Self::Qemu(architecture) => return Some(architecture.properties().qemu),
        };
        Some(Program { name, package })
    }

    /// Returns the name of the program, or the path of the library; empty if none is needed.
    pub const fn program(self) -> &'static str {
        match self.source() {
            Some(program) => program.name,
            None => "",
        }
    }

    /// Returns the Debian package with the program; empty if none is needed.
    pub const fn package(self) -> &'static str {
        match self.source() {
            Some(program) => program.package,
            None => "",
        }
    }

    /// Returns true if the program is in `PATH`, the library is there, or none is needed.
    pub fn is_installed(self) -> bool {
        let path = env::var_os("PATH").unwrap_or_default();
        self.source().is_none_or(|program| {
            env::split_paths(&path).any(|directory| directory.join(program.name).is_file())
        })
    }

    /// Returns the command that runs a program by this tool, an emulator; without one, the program itself.
    pub(crate) fn command_for(self, program: &Path) -> Command {
        match self.source() {
            None => Command::new(program),
            Some(emulator) => {
                let mut command = Command::new(emulator.name);
                command.arg(program);
                command
            }
        }
    }
}

/// Returns the tools that this machine lacks for a guest of an architecture, which needs all tools.
pub fn missing_tools(architecture: Architecture) -> Vec<Tool> {
    Tool::all(architecture).into_iter().filter(|tool| !tool.is_installed()).collect()
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
