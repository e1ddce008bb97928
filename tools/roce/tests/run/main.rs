//! `roce run` (tier 1).

mod lines;
mod places;
mod program;
mod signals;
mod views;

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Returns the command `roce run` with arguments, of a program with its libraries beside it.
fn roce_run(arguments: &[&str]) -> Command {
    let mut command = Command::new(build().join("roce"));
    command.arg("run").args(arguments);
    command
}

/// Runs `roce run` and returns its output, if it succeeds.
fn output_of(arguments: &[&str]) -> Outcome<String> {
    succeeded(&roce_run(arguments).output()?)
}

fn succeeded(output: &Output) -> Outcome<String> {
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout.clone())?);
    }
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("{}:\n{out}\n{err}", output.status).into())
}

/// Returns the folder of the program and its libraries, which any user may read. Cargo does not build
/// a library of the C kind for a test, so this does.
fn build() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| make_build().expect("the libraries are built"))
}

fn make_build() -> Outcome<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_roce"));
    let folder = program.parent().ok_or("a program in a folder")?;
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "roce-preload", "--target-dir"])
        .arg(folder.parent().ok_or("a folder of the build")?)
        .status()?;
    assert!(built.success(), "cargo build -p roce-preload failed");
    let copy = std::env::temp_dir().join(format!("roce-run-test-{}", std::process::id()));
    fs::create_dir_all(&copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    for name in ["roce", "libroce_preload.so"] {
        fs::copy(folder.join(name), copy.join(name))?;
    }
    let source = copy.join("library.c");
    fs::write(&source, "int roce_test_library;\n")?;
    compile(
        &source,
        &copy.join("libibverbs.so.1"),
        &["-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1"],
    )?;
    Ok(copy)
}

/// Compiles a C program.
fn compile(source: &Path, program: &Path, flags: &[&str]) -> Outcome {
    let compiled =
        Command::new("cc").args(flags).arg("-Wall").arg("-o").arg(program).arg(source).output()?;
    if compiled.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&compiled.stderr).into())
}
