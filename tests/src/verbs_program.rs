//! C programs of `tests/programs`, which use libibverbs as programs of others do.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use roce_netns::Host;

use crate::fixtures::Cable;

/// A compiled program.
#[derive(Debug)]
pub struct VerbsProgram {
    file: PathBuf,
}

impl VerbsProgram {
    /// Compiles a folder of `tests/programs` that is linked with libibverbs.
    ///
    /// # Panics
    /// When it does not compile without warnings.
    pub fn linked(folder: &str) -> Self {
        Self::linked_with(folder, folder, &[])
    }

    /// As [`linked`](Self::linked), with more arguments of the compiler. `variant` is the name of the
    /// file, unique among programs that are compiled differently.
    ///
    /// # Panics
    /// As [`linked`](Self::linked).
    pub fn linked_with(folder: &str, variant: &str, flags: &[&str]) -> Self {
        let flags = [flags, &["-libverbs", "-lpthread"]].concat();
        Self::compile(folder, &["check.c", "endpoint.c"], variant, &flags)
    }

    /// Compiles a folder of programs that find libibverbs themselves.
    ///
    /// # Panics
    /// As [`linked`](Self::linked).
    pub fn unlinked(folder: &str) -> Self {
        Self::compile(folder, &["check.c"], folder, &["-ldl"])
    }

    fn compile(folder: &str, shared: &[&str], variant: &str, flags: &[&str]) -> Self {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        let common = programs.join("common");
        let mut sources = files_with(&programs.join(folder), "c");
        sources.extend(shared.iter().map(|name| common.join(name)));
        let mut read = sources.clone();
        read.extend(files_with(&programs.join(folder), "h"));
        read.extend(files_with(&common, "h"));
        let mut arguments = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-I"]
            .map(OsString::from)
            .to_vec();
        arguments.push(common.into());
        arguments.extend(sources.into_iter().map(OsString::from));
        arguments.extend(flags.iter().map(OsString::from));
        let file = build_folder().join("verbs-programs").join(digest(&arguments)).join(variant);
        // Each test has a process of its own, and many use the same program.
        if !is_newer(&file, &read) {
            compile(&arguments, &file, folder);
        }
        Self { file }
    }

    /// Returns the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the command that runs the program with an argument under `roce run`.
    pub fn command(&self, scenario: &str) -> Command {
        let mut command = roce_run();
        command.arg("--").arg(&self.file).arg(scenario);
        command
    }

    /// Runs a scenario in a host.
    ///
    /// # Panics
    /// When it fails; with what it has printed.
    pub fn run(&self, host: &Host, scenario: &str) {
        expect_success(scenario, host, self.command(scenario));
    }

    /// Returns the names of the scenarios.
    ///
    /// # Panics
    /// When the program cannot list them.
    pub fn scenarios(&self) -> Vec<String> {
        let listed = Command::new(&self.file).arg("list").output().expect("the program starts");
        let names: Vec<_> =
            String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect();
        assert!(!names.is_empty(), "a program with scenarios");
        names
    }

    /// Runs the scenarios whose name begins so, in a host on a cable.
    ///
    /// # Panics
    /// When there is none, or one fails; with what it has printed.
    pub fn run_scenarios(&self, start: &str) {
        self.run_scenarios_by(start, |scenario| self.command(scenario));
    }

    /// As [`run_scenarios`](Self::run_scenarios), by other commands.
    ///
    /// # Panics
    /// As [`run_scenarios`](Self::run_scenarios).
    pub fn run_scenarios_by(&self, start: &str, command: impl Fn(&str) -> Command) {
        let cable = Cable::with_mtu(1500);
        let scenarios: Vec<_> =
            self.scenarios().into_iter().filter(|name| name.starts_with(start)).collect();
        assert!(!scenarios.is_empty(), "there are scenarios {start}*");
        for scenario in scenarios {
            expect_success(&scenario, &cable.left, command(&scenario));
        }
    }

    /// Runs all scenarios in a host and names those that fail.
    ///
    /// # Panics
    /// When one fails.
    pub fn run_all(&self, host: &Host, change: impl Fn(&mut Command)) {
        let failed: Vec<_> = self
            .scenarios()
            .into_iter()
            .filter_map(|scenario| {
                let mut command = self.command(&scenario);
                change(&mut command);
                failure(&scenario, host, command)
            })
            .collect();
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}

/// Runs a command in a host.
///
/// # Panics
/// When it fails; with what it has printed.
pub fn expect_success(name: &str, host: &Host, command: Command) {
    if let Some(words) = failure(name, host, command) {
        panic!("{words}");
    }
}

/// Runs a command and returns what it says if it fails.
fn failure(name: &str, host: &Host, mut command: Command) -> Option<String> {
    let Output { status, stdout, stderr } =
        host.run(|| command.output()).expect("the command starts");
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (!status.success()).then(|| format!("{name}: {status}\n{stdout}{stderr}"))
}

/// Returns the folder of the programs that cargo builds.
fn build_folder() -> PathBuf {
    let test = env::current_exe().expect("the test's own file");
    test.ancestors().nth(2).expect("a test in deps").to_owned()
}

/// Returns the files of a folder with an extension.
fn files_with(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of programs");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|file| file.extension().is_some_and(|it| it == extension))
        .collect();
    files.sort();
    files
}

/// Runs the C compiler.
fn compile(arguments: &[OsString], file: &Path, folder: &str) {
    fs::create_dir_all(file.parent().expect("a folder")).expect("the build can be written");
    // Tests that run at once may compile the same program.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let unfinished = file.with_extension(format!("{}-{number}", std::process::id()));
    // A source that is changed meanwhile is the newer one.
    let started = SystemTime::now();
    let compiled = Command::new("cc").args(arguments).arg("-o").arg(&unfinished).output();
    let compiled = compiled.expect("a C compiler");
    let words = String::from_utf8_lossy(&compiled.stderr).into_owned();
    assert!(compiled.status.success(), "{folder} does not compile:\n{words}");
    let written = File::options().write(true).open(&unfinished).expect("the program");
    written.set_modified(started).expect("its time can be set");
    drop(written);
    fs::rename(&unfinished, file).expect("both are in one folder");
}

/// Whether a file is there that is newer than all others.
fn is_newer(file: &Path, others: &[PathBuf]) -> bool {
    let changed = |file: &Path| fs::metadata(file).and_then(|metadata| metadata.modified());
    let Ok(built) = changed(file) else { return false };
    others.iter().all(|other| changed(other).is_ok_and(|changed| changed < built))
}

/// Returns a name for programs that are compiled with these arguments.
fn digest(arguments: &[OsString]) -> String {
    let mut hasher = DefaultHasher::new();
    arguments.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Returns the file of the command `roce` as cargo builds it.
pub fn roce() -> PathBuf {
    installation().join("roce")
}

/// Returns the command `roce run`.
pub fn roce_run() -> Command {
    let mut command = Command::new(roce());
    command.arg("run");
    command
}

/// Returns the file of `libibverbs.so.1` as cargo builds it.
pub fn library() -> PathBuf {
    installation().join("libibverbs.so")
}

/// Returns the folder of `roce` and its libraries. Cargo builds no program of another package, and no
/// library of the C kind, for a test.
fn installation() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        // Each test has a process of its own, and `cargo xtask test` has built all.
        if let Some(folder) = env::var_os("ROCE_TEST_INSTALLATION") {
            return folder.into();
        }
        let folder = build_folder();
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // The profile, packages and features of `cargo test --workspace`, so that nothing is built
        // twice; with examples come the features that only tests need.
        cargo.args(["build", "--quiet", "--profile", "test", "--workspace"]);
        cargo.args(["--lib", "--bin", "roce", "--examples"]);
        cargo.arg("--target-dir").arg(folder.parent().expect("a target directory"));
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(cargo.status().expect("cargo").success(), "cargo build failed");
        folder
    })
}
