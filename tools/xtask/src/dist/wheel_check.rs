//! Installs wheels as a user does, and runs what a user runs.

use std::fs;
use std::path::PathBuf;

use super::architecture::Architecture;
use super::numpy;
use super::trial::{self, FreshRoot, Line, PRIVATE_HOST, Trial, VERSION, WRITE_BANDWIDTH};
use super::wheel::Wheel;
use crate::debian_root::{BOOKWORM, DebianRoot, TRIXIE};
use crate::private_host::PrivateHost;
use crate::table::Row;
use crate::{Result, workspace};

/// What a root has besides the essential packages.
const PACKAGES: &str = "perftest,python3-venv";

/// Makes an environment.
const MAKE_ENVIRONMENT: &str = "python3 -m venv /opt/wheel";

/// Enters the environment. The host has no way out: pip finds NumPy among the files, and looks for no newer pip.
const ENTER_ENVIRONMENT: &str = ". /opt/wheel/bin/activate; export PIP_DISABLE_PIP_VERSION_CHECK=1 \
                                 PIP_NO_INDEX=1 PIP_FIND_LINKS=/check/index";

/// Installs wheels, with NumPy from the index, and runs programs of them: in fresh virtual environments of the Pythons
/// of Debian 12 and 13, or a wheel for arm64 in a root of Debian 13 whose programs QEMU runs. Prints a line for each
/// place, and returns rows of the table.
///
/// # Errors
/// If a wheel cannot be installed, or a line does not print what it should.
pub(super) fn run(wheels: &[Wheel]) -> Result<Vec<Row>> {
    let private = PrivateHost::new()?;
    let mut rows = Vec::new();
    for wheel in wheels {
        match wheel.architecture {
            Architecture::X86_64 => {
                let setting = format!("{MAKE_ENVIRONMENT}; {ENTER_ENVIRONMENT}");
                for (name, release, python) in
                    [("debian-12-python", BOOKWORM, "3.11"), ("debian-13-python", TRIXIE, "3.13")]
                {
                    let root = DebianRoot::new(name, release, PACKAGES)?;
                    let files = &prepare_files(wheel, python)?;
                    let place = FreshRoot { root: &root, private: &private, files };
                    rows.push(trial_of(wheel, &setting, LINES.to_vec())?.run(&place)?);
                }
            }
            Architecture::Aarch64 => {
                let root = trial::arm64_root()?;
                let files = &prepare_files(wheel, "3.13")?;
                let place = FreshRoot { root: &root, private: &private, files };
                let lines = LINES.iter().copied().filter(|line| !line.needs_sockets);
                let trial = trial_of(wheel, ENTER_ENVIRONMENT, lines.collect())?;
                rows.push(trial.run(&place)?);
            }
        }
    }
    Ok(rows)
}

fn trial_of(wheel: &Wheel, setting: &str, then: Vec<Line>) -> Result<Trial> {
    let name = wheel.file.file_name().unwrap_or_default().display();
    Ok(Trial {
        line: format!("pip install {name} numpy"),
        setting: setting.to_owned(),
        bytes: fs::metadata(&wheel.file)?.len(),
        then,
    })
}

/// Returns a folder that is copied into a root: the wheel, a program, and what the index has of NumPy for its Python.
fn prepare_files(wheel: &Wheel, python: &str) -> Result<PathBuf> {
    let folder = workspace::target().join("wheel-check");
    workspace::remove_folder(&folder)?;
    fs::create_dir_all(&folder)?;
    let tests = workspace::root().join("crates/roce-python/tests");
    for file in [&wheel.file, &tests.join("numpy_sum.py")] {
        fs::copy(file, folder.join(file.file_name().unwrap_or_default()))?;
    }
    numpy::fetch(python, wheel.architecture, &folder.join("index"))?;
    Ok(folder)
}

/// Lines of the shell, where `roce` and `python` are those of the environment.
const LINES: &[Line] = &[
    VERSION,
    PRIVATE_HOST,
    WRITE_BANDWIDTH,
    Line::new(
        "setpriv --reuid 65534 --regid 65534 --clear-groups \
         roce run --local 2 -- ib_write_bw -n 1000",
        WRITE_BANDWIDTH.shows,
    )
    .with_sockets(),
    Line::new(
        "python -c 'import roce; print(roce.library_path(), roce.program_path())'",
        &["/lib/roce/libroce_ibverbs.so", "/bin/roce"],
    ),
    // The path is that of a library which a program can load.
    Line::new(
        "python -c 'import ctypes, roce; \
         print(ctypes.CDLL(roce.library_path()).ibv_get_device_list)'",
        &["_FuncPtr"],
    ),
    Line::new(
        "python -c 'import array, roce; \
         print(roce.Group(0, 1).all_reduce(array.array(\"f\", [1.5, 2])))'",
        &["array('f', [1.5, 2.0])"],
    ),
    Line::new(
        "python -c 'import numpy, roce; \
         print(roce.Group(0, 1).all_reduce(numpy.array([1.5, 2], dtype=\"float32\")))'",
        &["[1.5 2. ]"],
    )
    .told(),
    Line::new(
        "python -c 'import doctest, roce; print(doctest.testmod(roce))'",
        &["TestResults(failed=0, attempted=2)"],
    ),
    Line::new(
        "roce run --local 2 --torchrun -- python /check/numpy_sum.py",
        &["[0] rank 0 of 2: right", "[1] rank 1 of 2: right"],
    )
    .with_sockets(),
    Line::new(
        "roce run --local 3 --torchrun -- python /check/numpy_sum.py",
        &["[0] rank 0 of 3: right", "[2] rank 2 of 3: right"],
    )
    .told()
    .with_sockets(),
    Line::new(
        "ls \"$VIRTUAL_ENV/share/doc/roce\" \"$VIRTUAL_ENV/share/man/man1\"",
        &["third-party-licences", "pyo3-LICENSE-MIT", "roce-run.1"],
    ),
    // No file has the name that the loader looks for.
    Line::new("echo \"found: <$(find \"$VIRTUAL_ENV\" -name 'libibverbs*')>\"", &["found: <>"]),
    Line::new(
        "pip uninstall --quiet --yes roce; \
         echo \"left: <$(find \"$VIRTUAL_ENV\" -iname '*roce*' ! -iname '*process*')>\"",
        &["left: <>"],
    ),
];
