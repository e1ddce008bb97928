//! Installations as a user does them, each in a fresh copy of a Debian root, and programs that run then.

use std::path::Path;

use crate::debian_root::DebianRoot;
use crate::private_host::PrivateHost;
use crate::table::Row;
use crate::{Result, debian_root};

/// Where something can be installed.
pub(super) trait System {
    /// Returns the name of the system.
    fn name(&self) -> &'static str;

    /// Runs lines of the shell, which find what is installed from in `/check`.
    ///
    /// # Errors
    /// If they cannot be started.
    fn run(&self, script: &str) -> Result<Printed>;
}

/// What lines of the shell have printed.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) is_success: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// A new copy of a root for each run, on a host of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreshRoot<'a> {
    pub(super) root: &'a DebianRoot,
    pub(super) private: &'a PrivateHost,
    /// The folder that the copy has as `/check`.
    pub(super) files: &'a Path,
}

impl System for FreshRoot<'_> {
    fn name(&self) -> &'static str {
        self.root.release().name
    }

    fn run(&self, script: &str) -> Result<Printed> {
        let output = self.root.run(&self.private.host, self.files, script)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        Ok(Printed {
            is_success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: format!("{errors}\n{}", output.status),
        })
    }
}

/// An installation.
#[derive(Debug)]
pub(super) struct Trial {
    /// The line that a user types in the folder of what is installed from.
    pub(super) line: String,
    /// Lines before it, which do not count for its time.
    pub(super) setting: String,
    /// Size of what is installed from.
    pub(super) bytes: u64,
    /// Lines that a user types then, in the same shell.
    pub(super) then: Vec<Line>,
}

/// A line of the shell, and what it prints.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) command: &'static str,
    pub(super) shows: &'static [&'static str],
    /// The table has what the line prints: its last line with the last of those words.
    pub(super) is_told: bool,
    /// It needs options of sockets that QEMU's emulator of programs does not have.
    pub(super) needs_sockets: bool,
}

impl Line {
    pub(super) const fn new(command: &'static str, shows: &'static [&'static str]) -> Self {
        Self { command, shows, is_told: false, needs_sockets: false }
    }

    pub(super) const fn told(self) -> Self {
        Self { is_told: true, ..self }
    }

    pub(super) const fn with_sockets(self) -> Self {
        Self { needs_sockets: true, ..self }
    }
}

/// The version of the command.
pub(super) const VERSION: Line =
    Line::new("roce --version", &[concat!("roce ", env!("CARGO_PKG_VERSION"))]).told();

/// An unmodified program between two hosts.
pub(super) const WRITE_BANDWIDTH: Line =
    Line::new("roce run --local 2 -- ib_write_bw -n 1000", &["[0]", "[1]", "65536      1000"])
        .told()
        .with_sockets();

/// A private host, for a program of the same processor: nothing is said of it.
pub(super) const PRIVATE_HOST: Line =
    Line::new("echo \"said: <$(roce run --local 1 -- true 2>&1)>\"", &["said: <>"]);

/// Separates the outputs of lines.
const SEPARATOR: &str = "--- next line ---";

impl Trial {
    /// Installs in a place and runs the lines.
    ///
    /// # Errors
    /// If the installation or a line fails, or a line does not print what it should.
    pub(super) fn run(&self, place: &impl System) -> Result<Row> {
        let Printed { is_success, stdout: text, stderr } = place.run(&self.script())?;
        let place = place.name();
        if !is_success {
            return Err(format!("{place}: {}\n{text}\n{stderr}", self.line).into());
        }
        let mut parts = text.split(SEPARATOR).skip(1);
        let (took, said) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let mut told = Vec::new();
        for (line, text) in self.then.iter().zip(parts) {
            if let Some(missing) = line.shows.iter().find(|word| !text.contains(**word)) {
                let command = line.command;
                return Err(format!("{place}: {command}: {missing:?} is not in\n{text}").into());
            }
            let word = line.shows.last().copied().unwrap_or_default();
            let shown = text.lines().rfind(|text| text.contains(word));
            told.extend(shown.filter(|_| line.is_told).map(str::to_owned));
        }
        let row = Row {
            place: place.to_owned(),
            line: self.line.clone(),
            bytes: self.bytes,
            milliseconds: took.trim().parse()?,
            printed: said.trim().lines().last().unwrap_or_default().to_owned(),
            told,
        };
        println!("   ok {place}: {}: {} lines then", row.line, self.then.len());
        Ok(row)
    }

    /// Returns lines of the shell.
    fn script(&self) -> String {
        let Self { line, setting, .. } = self;
        let mut script = format!(
            "cd /check
{setting}
trap 'cat /tmp/said >&2' EXIT
started=$(date +%s%N)
{{ {line}; }} >/tmp/said
took=$((($(date +%s%N) - started) / 1000000))
echo '{SEPARATOR}' $took '{SEPARATOR}'
cat /tmp/said
"
        );
        for line in &self.then {
            script += &format!("echo '{SEPARATOR}'\n{}\n", line.command);
        }
        script
    }
}

/// Returns the root of Debian 13 for arm64. Its environment of Python takes the emulator a minute to make.
///
/// # Errors
/// If it cannot be made.
pub(super) fn arm64_root() -> Result<DebianRoot> {
    const PACKAGES: &str = "perftest,python3-venv,rpm";
    let line = "python3 -m venv /opt/wheel";
    DebianRoot::built("debian-13-arm64", debian_root::TRIXIE_ARM64, PACKAGES, line)
}
