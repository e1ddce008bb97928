//! Installs the wheel in fresh virtual environments, and runs what a user would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::wheel::succeed;
use crate::{Result, host, workspace};

/// The interpreters whose environments have the wheel: that of the user, and Debian's.
const PYTHONS: [&str; 2] = ["python3", "/usr/bin/python3"];

/// Installs and runs; prints a line for each.
///
/// # Errors
/// If the wheel cannot be installed, or a line does not print what it should.
pub(super) fn run(wheel: &Path) -> Result<()> {
    host::install_missing(host::WHEEL_CHECK)?;
    for python in PYTHONS {
        let started = Instant::now();
        let version = succeed(Command::new(python).arg("--version"))?;
        let environment = Environment::new(python, wheel)?;
        environment.check()?;
        let took = started.elapsed().as_secs_f32();
        println!("   ok {} at {python} ({took:.1} s): {} lines", version.trim(), LINES.len());
        fs::remove_dir_all(&environment.folder)?;
    }
    Ok(())
}

/// A line of the shell, where `roce` and `python` are those of the environment, and what it prints.
struct Line {
    command: &'static str,
    shows: &'static [&'static str],
}

const LINES: &[Line] = &[
    Line { command: "roce --version", shows: &["roce "] },
    Line {
        command: "roce run --local 2 -- ib_write_bw -n 1000",
        shows: &["[0]", "[1]", "65536      1000"],
    },
    Line {
        command: "python -c 'import roce; print(roce.library_path(), roce.program_path())'",
        shows: &["/lib/roce/libroce_ibverbs.so", "/bin/roce"],
    },
    // The path is that of a library which a program can load.
    Line {
        command: "python -c 'import ctypes, roce; \
                  print(ctypes.CDLL(roce.library_path()).ibv_get_device_list)'",
        shows: &["_FuncPtr"],
    },
    Line {
        command: "python -c 'import doctest, roce; print(doctest.testmod(roce))'",
        shows: &["TestResults(failed=0, attempted=2)"],
    },
    Line {
        command: "roce run --local 2 --torchrun -- python \"$CHECK/numpy_sum.py\"",
        shows: &["[0] rank 0 of 2: right", "[1] rank 1 of 2: right"],
    },
    Line {
        command: "roce run --local 3 --torchrun -- python \"$CHECK/numpy_sum.py\"",
        shows: &["[0] rank 0 of 3: right", "[2] rank 2 of 3: right"],
    },
    Line {
        command: "ls \"$VIRTUAL_ENV/share/doc/roce\" \"$VIRTUAL_ENV/share/man/man1\"",
        shows: &["third-party-licences", "pyo3-LICENSE-MIT", "roce-run.1"],
    },
    // No file has the name that the loader looks for.
    Line {
        command: "echo \"found: <$(find \"$VIRTUAL_ENV\" -name 'libibverbs*')>\"",
        shows: &["found: <>"],
    },
    Line {
        command: "pip uninstall --quiet --yes roce; \
                  echo \"left: <$(find \"$VIRTUAL_ENV\" -iname '*roce*' ! -iname '*process*')>\"",
        shows: &["left: <>"],
    },
];

/// A virtual environment with the wheel and NumPy.
struct Environment {
    folder: PathBuf,
}

impl Environment {
    fn new(python: &str, wheel: &Path) -> Result<Self> {
        let made = Self { folder: workspace::target().join("wheel-check") };
        succeed(Command::new(python).args(["-m", "venv", "--clear"]).arg(&made.folder))?;
        let mut pip = Command::new(made.folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "numpy"]).arg(wheel);
        succeed(&mut pip)?;
        Ok(made)
    }

    fn check(&self) -> Result<()> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = [self.folder.join("bin")].into_iter().chain(std::env::split_paths(&path));
        let path = std::env::join_paths(folders)?;
        for line in LINES {
            let mut shell = Command::new("sh");
            shell.args(["-euc", line.command]).env("PATH", &path).env("VIRTUAL_ENV", &self.folder);
            shell.env("CHECK", workspace::root().join("crates/roce-python/tests"));
            // Not the sources beside it.
            shell.current_dir(&self.folder);
            let text = succeed(&mut shell)?;
            if let Some(missing) = line.shows.iter().find(|word| !text.contains(**word)) {
                return Err(format!("{}: {missing:?} is not in\n{text}", line.command).into());
            }
        }
        Ok(())
    }
}
