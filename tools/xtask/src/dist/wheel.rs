//! The wheel: the Python module, with the command and the libraries of an installation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::elf::Needs;
use super::installation::{Installation, copy_folder};
use crate::{Result, workspace};

/// What builds and examines wheels, from the Python index.
const TOOLS: [&str; 2] = ["maturin>=1.9.4,<2", "auditwheel>=6,<7"];

/// The oldest glibc, as major and minor version, that a wheel is for: that of Red Hat 8 and Debian 10.
const MIN_GLIBC: (u32, u32) = (2, 28);

/// Builds the wheel and returns its file, which is below `folder`. `needs` are those of the
/// installation: they decide on which systems the wheel can be installed.
///
/// # Errors
/// If a tool cannot be installed, or the module does not compile.
pub(super) fn build(
    installation: &Installation,
    needs: &Needs,
    folder: &Path,
    dev: bool,
) -> Result<PathBuf> {
    let tools = tools()?;
    lay_out(installation, &workspace::target().join("wheel/roce.data"))?;
    let wheels = folder.join("wheel");
    let mut maturin = Command::new(tools.join("maturin"));
    maturin.args(["build", "--quiet", "--profile", if dev { "dev" } else { "release" }]);
    maturin.args(["--auditwheel", "check", "--out"]).arg(&wheels);
    // maturin looks at the module alone, and checks that it needs nothing newer.
    let (major, minor) = needs.glibc().max(MIN_GLIBC);
    maturin.arg("--compatibility").arg(format!("manylinux_{major}_{minor}"));
    // The module needs no particular interpreter, but maturin looks for one.
    maturin.arg("--interpreter").arg(tools.join("python"));
    maturin.current_dir(workspace::root().join("crates/roce-python"));
    succeed(&mut maturin)?;
    let mut found = fs::read_dir(&wheels)?.map(|entry| Ok(entry?.path()));
    let wheel: Result<PathBuf> = found.next().ok_or("maturin wrote no wheel")?;
    let wheel = wheel?;
    let verdict = succeed(Command::new(tools.join("auditwheel")).arg("show").arg(&wheel))?;
    println!("{}", verdict.trim());
    Ok(wheel)
}

/// Returns the folder of the programs in a virtual environment with the tools; makes it if there is none.
fn tools() -> Result<PathBuf> {
    let folder = workspace::target().join("wheel-tools");
    let (programs, made_of) = (folder.join("bin"), folder.join("made-of"));
    let wanted = TOOLS.join("\n");
    if fs::read_to_string(&made_of).is_ok_and(|made| made == wanted) {
        return Ok(programs);
    }
    succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = Command::new(programs.join("pip"));
    succeed(pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(TOOLS))?;
    fs::write(made_of, wanted)?;
    Ok(programs)
}

/// Lays out the files of an installation as a wheel has them: those of `data` come below the prefix of the
/// environment that the wheel is installed in.
fn lay_out(installation: &Installation, folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
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
pub(super) fn succeed(command: &mut Command) -> Result<String> {
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
