//! Installs wheels as a user would, and runs what a user would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::architecture::Architecture;
use super::wheel::{Wheel, succeed};
use crate::debian_root::{DebianRoot, TRIXIE_ARM64};
use crate::private_host::PrivateHost;
use crate::{Result, host, workspace};

/// The interpreters whose environments have the wheel: that of the user, and Debian's.
const PYTHONS: [&str; 2] = ["python3", "/usr/bin/python3"];

/// Installs a wheel and runs programs of it: in fresh virtual environments of this machine, or a wheel for arm64
/// in a root of Debian 13 whose programs QEMU runs. Prints a line for each place.
///
/// # Errors
/// If the wheel cannot be installed, or a line does not print what it should.
pub(super) fn run(wheel: &Wheel) -> Result<()> {
    match wheel.architecture {
        Architecture::X86_64 => run_here(&wheel.file),
        Architecture::Aarch64 => run_emulated(&wheel.file),
    }
}

fn run_here(wheel: &Path) -> Result<()> {
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

/// What the root of a wheel for arm64 has: an environment, which takes the emulator minutes to make, as NumPy
/// would.
const EMULATED: (&str, &str) = ("python3-venv", "python3 -m venv /opt/wheel");

/// Installs the wheel in the environment of that root, where `/check` has the wheel.
const INSTALL_EMULATED: &str =
    ". /opt/wheel/bin/activate; pip install --quiet --no-index --no-compile /check/*.whl";

/// Separates the outputs of lines.
const SEPARATOR: &str = "--- next line ---";

fn run_emulated(wheel: &Path) -> Result<()> {
    let (packages, line) = EMULATED;
    let root = DebianRoot::built("debian-13-arm64", TRIXIE_ARM64, packages, line)?;
    let private = PrivateHost::new()?;
    let files = workspace::target().join("wheel-check-arm64");
    if files.exists() {
        fs::remove_dir_all(&files)?;
    }
    fs::create_dir_all(&files)?;
    fs::copy(wheel, files.join(wheel.file_name().unwrap_or_default()))?;
    let started = Instant::now();
    let lines: Vec<_> = LINES.iter().filter(|line| !line.sockets).collect();
    let script = lines.iter().fold(INSTALL_EMULATED.to_owned(), |script, line| {
        format!("{script}; echo '{SEPARATOR}'; {}", line.command)
    });
    let output = root.run(&private.host, &files, &script)?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}\n{text}\n{errors}", wheel.display(), output.status).into());
    }
    for (line, text) in lines.iter().zip(text.split(SEPARATOR).skip(1)) {
        line.check(text)?;
    }
    let took = started.elapsed().as_secs_f32();
    println!("   ok Python of Debian 13 for arm64 ({took:.1} s): {} lines", lines.len());
    Ok(())
}

/// A line of the shell, where `roce` and `python` are those of the environment, and what it prints.
struct Line {
    command: &'static str,
    shows: &'static [&'static str],
    /// It needs options of sockets that QEMU's emulator of programs does not have.
    sockets: bool,
}

impl Line {
    /// Checks what the line has printed.
    fn check(&self, text: &str) -> Result<()> {
        match self.shows.iter().find(|word| !text.contains(**word)) {
            Some(missing) => Err(format!("{}: {missing:?} is not in\n{text}", self.command).into()),
            None => Ok(()),
        }
    }
}

const LINES: &[Line] = &[
    Line { command: "roce --version", shows: &["roce "], sockets: false },
    // Nothing is said of a program of the same processor.
    Line {
        command: "echo \"said: <$(roce run --local 1 -- true 2>&1)>\"",
        shows: &["said: <>"],
        sockets: false,
    },
    Line {
        command: "roce run --local 2 -- ib_write_bw -n 1000",
        shows: &["[0]", "[1]", "65536      1000"],
        sockets: true,
    },
    Line {
        command: "python -c 'import roce; print(roce.library_path(), roce.program_path())'",
        shows: &["/lib/roce/libroce_ibverbs.so", "/bin/roce"],
        sockets: false,
    },
    // The path is that of a library which a program can load.
    Line {
        command: "python -c 'import ctypes, roce; \
                  print(ctypes.CDLL(roce.library_path()).ibv_get_device_list)'",
        shows: &["_FuncPtr"],
        sockets: false,
    },
    Line {
        command: "python -c 'import array, roce; \
                  print(roce.Group(0, 1).all_reduce(array.array(\"f\", [1.5, 2])))'",
        shows: &["array('f', [1.5, 2.0])"],
        sockets: false,
    },
    Line {
        command: "python -c 'import doctest, roce; print(doctest.testmod(roce))'",
        shows: &["TestResults(failed=0, attempted=2)"],
        sockets: false,
    },
    Line {
        command: "roce run --local 2 --torchrun -- python \"$CHECK/numpy_sum.py\"",
        shows: &["[0] rank 0 of 2: right", "[1] rank 1 of 2: right"],
        sockets: true,
    },
    Line {
        command: "roce run --local 3 --torchrun -- python \"$CHECK/numpy_sum.py\"",
        shows: &["[0] rank 0 of 3: right", "[2] rank 2 of 3: right"],
        sockets: true,
    },
    Line {
        command: "ls \"$VIRTUAL_ENV/share/doc/roce\" \"$VIRTUAL_ENV/share/man/man1\"",
        shows: &["third-party-licences", "pyo3-LICENSE-MIT", "roce-run.1"],
        sockets: false,
    },
    // No file has the name that the loader looks for.
    Line {
        command: "echo \"found: <$(find \"$VIRTUAL_ENV\" -name 'libibverbs*')>\"",
        shows: &["found: <>"],
        sockets: false,
    },
    Line {
        command: "pip uninstall --quiet --yes roce; \
                  echo \"left: <$(find \"$VIRTUAL_ENV\" -iname '*roce*' ! -iname '*process*')>\"",
        shows: &["left: <>"],
        sockets: false,
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
            line.check(&text)?;
        }
        Ok(())
    }
}
