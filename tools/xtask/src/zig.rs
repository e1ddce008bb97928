//! zig as a linker that knows the C library of other architectures and older versions, and cargo with it.
//!
//! Both are packages of the Python index, which are put below the folder of builds.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::{Result, host, workspace};

/// The packages, with versions that work together. zig 0.16 links by a linker of its own, which does not know all
/// options of rustc.
const PACKAGES: [&str; 2] = ["ziglang==0.15.2", "cargo-zigbuild==0.24.1"];

/// The glibc that what is released may need: that of Red Hat 8 and Debian 10.
pub(crate) const GLIBC: (u32, u32) = (2, 28);

/// zig, and the subcommand of cargo that uses it.
#[derive(Debug)]
pub(crate) struct Zig {
    folder: PathBuf,
}

impl Zig {
    /// Returns those below the folder of builds; fetches them if there are none.
    ///
    /// # Errors
    /// If Python's installer cannot fetch them.
    pub(crate) fn find_or_install() -> Result<Self> {
        let folder = workspace::target().join("zig");
        let found = Self { folder };
        let versions = found.folder.join("versions");
        if fs::read_to_string(&versions).is_ok_and(|found| found == PACKAGES.join("\n")) {
            return Ok(found);
        }
        host::install_missing(host::PYTHON_INSTALLER)?;
        let unfinished = found.folder.with_extension("part");
        for old in [&unfinished, &found.folder] {
            workspace::remove_folder(old)?;
        }
        println!("   installing: {} below {}", PACKAGES.join(" "), found.folder.display());
        let mut pip = Command::new(host::DEBIANS_PYTHON);
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]).arg(&unfinished);
        if !pip.args(PACKAGES).status()?.success() {
            return Err(format!("pip did not install {}", PACKAGES.join(", ")).into());
        }
        fs::write(unfinished.join("versions"), PACKAGES.join("\n"))?;
        fs::rename(&unfinished, &found.folder)?;
        Ok(found)
    }

    /// Returns the program `zig`.
    pub(crate) fn program(&self) -> PathBuf {
        self.folder.join("ziglang/zig")
    }

    /// Sets the variables by which cargo's subcommand `zigbuild`, maturin and the like find zig.
    ///
    /// # Errors
    /// If a folder cannot be in `PATH`.
    pub(crate) fn prepare(&self, command: &mut Command) -> Result<()> {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = [self.folder.join("bin"), self.folder.join("ziglang")];
        command.env("PATH", env::join_paths(folders.into_iter().chain(env::split_paths(&path)))?);
        command.env("CARGO_ZIGBUILD_ZIG_PATH", self.program());
        // zig compiles its parts of the C library here.
        command.env("ZIG_GLOBAL_CACHE_DIR", self.folder.join("cache"));
        command.env("CARGO_ZIGBUILD_CACHE_DIR", self.folder.join("wrappers"));
        Ok(())
    }

    /// Returns the subcommand that builds for a target with the [`GLIBC`] that is released for.
    ///
    /// # Errors
    /// If the target's standard library cannot be installed.
    pub(crate) fn build(&self, target: &str) -> Result<Command> {
        host::install_standard_library(target)?;
        let (major, minor) = GLIBC;
        let mut cargo = workspace::cargo();
        self.prepare(&mut cargo)?;
        cargo.arg("zigbuild").arg(format!("--target={target}.{major}.{minor}"));
        Ok(cargo)
    }
}
