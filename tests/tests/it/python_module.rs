//! The Python module, in Debian's Python.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use roce_test_macros::tier1;
use roce_tests::verbs_program::roce_run;

/// NumPy is installed for this one alone.
const PYTHON: &str = "/usr/bin/python3";

/// The package as a wheel lays it out, with the module that cargo has built, and a folder for the ranks.
struct Package {
    folder: PathBuf,
}

impl Package {
    fn new(test: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("roce-python-{}-{test}", std::process::id()));
        let package = folder.join("roce");
        fs::create_dir_all(&package).expect("a folder");
        fs::create_dir_all(folder.join("shared")).expect("a folder");
        for file in fs::read_dir(sources().join("python/roce")).expect("the sources") {
            let file = file.expect("a file");
            if file.file_type().is_ok_and(|kind| kind.is_file()) {
                symlink(file.path(), package.join(file.file_name())).expect("a link");
            }
        }
        let roce = PathBuf::from(roce_run().get_program());
        let module = roce.with_file_name("libroce_python.so");
        assert!(module.exists(), "{} is missing: cargo build -p roce-python", module.display());
        symlink(module, package.join("_roce.abi3.so")).expect("a link");
        Self { folder }
    }

    fn shared(&self) -> PathBuf {
        self.folder.join("shared")
    }

    fn run(&self, mut command: Command) -> String {
        command.env("PYTHONPATH", &self.folder).env("PYTHONDONTWRITEBYTECODE", "1");
        let Output { status, stdout, stderr } = command.output().expect("the program starts");
        let text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
        assert!(status.success(), "{status}\n{text}");
        text
    }

    /// Runs a property of `ranks.py` in private hosts.
    fn holds(&self, property: &str, size: usize) {
        let mut command = roce_run();
        command.args(["--local", &size.to_string(), "--timeout", "60", "--", PYTHON]);
        command.arg(sources().join("tests/ranks.py")).arg(property).arg(self.shared());
        let text = self.run(command_with(command, &["{rank}", "{size}"]));
        assert_eq!(text.matches(&format!("{property}: right")).count(), size, "{text}");
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/roce-python")
}

fn command_with(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments);
    command
}

#[tier1("python3-numpy")]
fn a_group_of_one_and_its_errors_are_as_documented() {
    let mut command = Command::new(PYTHON);
    command.arg(sources().join("tests/alone.py"));
    let text = Package::new("alone").run(command);
    assert!(text.contains("\nOK"), "{text}");
}

#[tier1("python3-numpy")]
fn every_collective_computes_what_it_says_on_arrays() {
    Package::new("collectives").holds("collectives", 3);
}

#[tier1("python3-numpy")]
fn any_buffer_is_taken_or_refused_as_the_callers_fault() {
    Package::new("buffers").holds("buffers", 2);
}

#[tier1("python3-numpy")]
fn other_threads_run_while_a_call_waits_and_its_memory_stays() {
    Package::new("waits").holds("waits", 2);
}

#[tier1("python3-numpy")]
fn a_rank_that_leaves_early_is_told_to_all_at_once() {
    for size in [2, 3] {
        Package::new("left").holds("left_early", size);
    }
}

#[tier1("python3-numpy")]
fn an_operation_ends_after_its_timeout_and_names_the_rank_that_is_late() {
    for property in ["late", "not_left"] {
        Package::new(property).holds(property, 3);
    }
}

#[tier1("python3-numpy")]
fn a_child_of_fork_ends_no_group_of_its_parent() {
    Package::new("forked").holds("forked", 2);
}

#[tier1("python3-numpy")]
fn a_rank_that_gives_up_is_named_to_the_others() {
    for property in ["interrupted", "aborted", "differing"] {
        Package::new(property).holds(property, 2);
    }
}
