//! The wheel: the Python module, with the command and the libraries of an installation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::architecture::Architecture;
use super::elf::Needs;
use super::installation::{Installation, copy_folder};
use super::platform::Platform;
use crate::{Result, host, workspace, zig};

/// What builds and examines wheels, from the Python index.
const TOOLS: [&str; 2] = ["maturin>=1.9.4,<2", "auditwheel>=6,<7"];

/// The tag of the Pythons that the wheel is for: those with the stable ABI that the module is compiled for.
const PYTHONS: &str = "cp311-abi3";

/// A wheel.
#[derive(Debug)]
pub(super) struct Wheel {
    pub(super) file: PathBuf,
    pub(super) architecture: Architecture,
}

impl Wheel {
    /// Builds the wheel of an installation, below `folder`. Unless the installation is of this machine alone, the
    /// wheel is for the glibc of releases.
    ///
    /// # Errors
    /// If a tool cannot be installed, the module does not compile, or the wheel needs more than its platform has.
    pub(super) fn build(
        installation: &Installation,
        is_of_this_machine: bool,
        folder: &Path,
    ) -> Result<Self> {
        let architecture = installation.architecture();
        let tools = tools()?;
        lay_out(installation, &workspace::target().join("wheel/roce.data"))?;
        let wheels = folder.join("wheel");
        let mut maturin = Command::new(tools.join("maturin"));
        maturin.args(["build", "--quiet", "--auditwheel", "check", "--out"]).arg(&wheels);
        let glibc = if is_of_this_machine {
            maturin.args(["--profile", "dev"]);
            // maturin looks at the module alone, and checks that it needs nothing newer.
            Needs::of_all(architecture, &installation.binaries())?.glibc().max(zig::GLIBC)
        } else {
            host::install_standard_library(architecture.target())?;
            zig::Zig::find_or_install()?.prepare(&mut maturin)?;
            maturin.args(["--profile", "release", "--zig", "--target", architecture.target()]);
            zig::GLIBC
        };
        let platform = Platform { glibc, architecture };
        // No interpreter is named: the module needs none to be built, and this machine has none of arm64.
        maturin.arg("--compatibility").arg(platform.compatibility());
        maturin.current_dir(workspace::root().join("crates/roce-python"));
        succeed(&mut maturin)?;
        let version = env!("CARGO_PKG_VERSION");
        let file = wheels.join(format!("roce-{version}-{PYTHONS}-{platform}.whl"));
        audit(&tools, &file, platform)?;
        Ok(Self { file, architecture })
    }
}

/// Checks that the programs and libraries in a wheel need no more than a platform has; prints what they need.
fn audit(tools: &Path, wheel: &Path, platform: Platform) -> Result<()> {
    let mut auditwheel = Command::new(tools.join("auditwheel"));
    let verdict = succeed(auditwheel.args(["show", "--json"]).arg(wheel))?;
    let verdict: Value = serde_json::from_str(&verdict)?;
    let found = verdict["overall_tag"].as_str().unwrap_or_default();
    platform.check(found)?;
    println!("   ok auditwheel: {found}: {}", wheel.display());
    Ok(())
}

/// Returns the folder of the programs in a virtual environment with the tools; makes it if there is none.
pub(super) fn tools() -> Result<PathBuf> {
    let folder = workspace::target().join("wheel-tools");
    let (programs, made_of) = (folder.join("bin"), folder.join("made-of"));
    let wanted = TOOLS.join("\n");
    if fs::read_to_string(&made_of).is_ok_and(|made| made == wanted) {
        return Ok(programs);
    }
    host::install_missing(host::WHEEL_TOOLS)?;
    let mut python = Command::new(host::DEBIANS_PYTHON);
    succeed(python.args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = Command::new(programs.join("pip"));
    succeed(pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(TOOLS))?;
    fs::write(made_of, wanted)?;
    Ok(programs)
}

/// Lays out the files of an installation as a wheel has them: those of `data` come below the prefix of the
/// environment that the wheel is installed in.
fn lay_out(installation: &Installation, folder: &Path) -> Result<()> {
    workspace::remove_folder(folder)?;
    let (scripts, libraries) = (folder.join("scripts"), folder.join("data/lib/roce"));
    fs::create_dir_all(&scripts)?;
    fs::create_dir_all(&libraries)?;
    fs::copy(installation.program(), scripts.join("roce"))?;
    for library in installation.libraries() {
        let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // No program is to load it because a folder happens to be searched.
        let name = if name == "libibverbs.so.1" { "libroce_ibverbs.so".to_owned() } else { name };
        fs::copy(&library, libraries.join(name))?;
    }
    let share = folder.join("data/share");
    copy_folder(&installation.folder().join("share/man"), &share.join("man"))?;
    let documents = share.join("doc/roce");
    copy_folder(&installation.documents(), &documents)?;
    add_licences(&documents)
}

/// Crates of others that the module has and an installation does not.
const MODULE_ONLY: [&str; 2] = ["pyo3", "pyo3-ffi"];

/// Adds the licences of the crates that only the module has.
///
/// # Errors
/// If cargo does not tell where a crate is, or the crate has no licence.
fn add_licences(documents: &Path) -> Result<()> {
    let output = workspace::cargo().args(["metadata", "--format-version=1"]).output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    for name in MODULE_ONLY {
        let mut packages = metadata["packages"].as_array().into_iter().flatten();
        let manifest = packages.find(|package| package["name"] == name);
        let manifest = manifest.and_then(|package| package["manifest_path"].as_str());
        let folder = manifest.and_then(|path| Path::new(path).parent());
        let mut count = 0;
        for entry in fs::read_dir(folder.ok_or_else(|| format!("cargo has no {name}"))?)? {
            let entry = entry?;
            let file = entry.file_name().to_string_lossy().into_owned();
            if file.starts_with("LICENSE") {
                fs::copy(entry.path(), documents.join(format!("{name}-{file}")))?;
                count += 1;
            }
        }
        if count == 0 {
            return Err(format!("{name} has no licence").into());
        }
    }
    Ok(())
}

/// Runs a command and returns what it prints.
///
/// # Errors
/// If it fails, with what it printed.
fn succeed(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("start {program}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}\n{text}\n{errors}", output.status).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_licences_of_crates_that_only_the_module_has_are_added() {
        let folder = std::env::temp_dir().join(format!("roce-xtask-wheel-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        add_licences(&folder).unwrap();
        for file in ["pyo3-LICENSE-MIT", "pyo3-LICENSE-APACHE", "pyo3-ffi-LICENSE-MIT"] {
            assert!(folder.join(file).is_file(), "{file}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
