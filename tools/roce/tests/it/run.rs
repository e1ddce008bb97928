//! `roce run` (tier 1).

mod descendants;
mod environment;
mod faults;
mod foreign_sockets;
mod leftovers;
mod limited_devices;
mod lines;
mod links;
mod perftest;
mod pipes;
mod places;
mod program;
mod rails;
mod rdma_cm;
mod sanitizers;
mod signals;
mod time;
mod verb_faults;
mod views;

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use crate::commands::succeeded;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Returns the command `roce run` with arguments. It heeds signals, also where this process ignores some,
/// as under nohup(1).
fn roce_run(arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(roce()).arg("run").args(arguments);
    command
}

/// Runs `roce run` and returns its output, if it succeeds.
fn output_of(arguments: &[&str]) -> Outcome<String> {
    succeeded(&roce_run(arguments).output()?)
}

/// Returns the program, with its libraries beside it. Cargo does not build a library of the C kind for
/// a test, so this does.
fn roce() -> &'static Path {
    static IS_BUILT: Once = Once::new();
    let program = Path::new(env!("CARGO_BIN_EXE_roce"));
    IS_BUILT.call_once(|| {
        // `cargo xtask test` has built all.
        if std::env::var_os("ROCE_TEST_INSTALLATION").is_some() {
            return;
        }
        let target = program.ancestors().nth(2).expect("a program in a folder of the build");
        // As `cargo test --workspace` builds, so that nothing is built twice.
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--profile", "test", "--workspace", "--lib", "--examples"]);
        let built = cargo.arg("--target-dir").arg(target).status();
        assert!(built.expect("cargo runs").success(), "the libraries are not built");
    });
    program
}

/// Number of a user without privileges.
const NOBODY: u32 = 65534;

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

/// Returns a path for a file of a test.
fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A copy of the program and its libraries that any user may read, removed when dropped.
struct Copy(PathBuf);

impl Copy {
    fn new(name: &str) -> Outcome<Self> {
        let folder = std::env::temp_dir().join(format!("roce-copy-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        let copy = Self(folder);
        for name in ["roce", "libibverbs.so", "libroce_preload.so"] {
            fs::copy(roce().with_file_name(name), copy.0.join(name))?;
        }
        Ok(copy)
    }

    fn run(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.0.join("roce"));
        command.arg("run").args(arguments).current_dir("/");
        command
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
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
