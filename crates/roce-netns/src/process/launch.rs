//! Description of a program to start.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// A program with its arguments, its streams and the way in which it is ended.
///
/// Without other calls it has no standard input, its output is kept, and it is ended by SIGTERM, and by
/// SIGKILL [`DEFAULT_GRACE`](Self::DEFAULT_GRACE) later. [`Display`](fmt::Display) shows it as a line of a
/// shell.
///
/// ```
/// use roce_netns::process::Launch;
/// let launch = Launch::new("iperf3").args(["-s", "-1"]).env("A", "1").on_cpu(1);
/// assert_eq!(launch.to_string(), "A=1 taskset -c 1 iperf3 -s -1");
/// ```
#[derive(Clone, Debug)]
pub struct Launch {
    program: OsString,
    arguments: Vec<OsString>,
    /// Variables, each with its value or `None` if it is removed.
    environment: Vec<(OsString, Option<OsString>)>,
    folder: Option<PathBuf>,
    cpu: Option<usize>,
    ends_with_parent: bool,
    has_stdin: bool,
    pub(super) joins_stderr: bool,
    pub(super) stdout: Output,
    pub(super) stderr: Output,
    pub(super) grace: Duration,
}

/// The destination of a stream of a program.
#[derive(Clone)]
#[non_exhaustive]
pub enum Output {
    /// It is kept, up to 16 MiB: [`Running::read_line`](super::Running::read_line) takes lines of standard
    /// output, and [`Outcome`](super::Outcome) has what is left.
    Keep,
    /// A thread calls a function with each line, without its newline.
    EachLine(Arc<dyn Fn(&str) + Send + Sync>),
    /// It goes where that of this process goes.
    Inherit,
    /// It is discarded.
    Discard,
}

impl Launch {
    /// Time from SIGTERM to SIGKILL without [`grace`](Self::grace).
    pub const DEFAULT_GRACE: Duration = Duration::from_secs(5);

    /// Returns the launch of a program, by name or path.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: None,
            cpu: None,
            ends_with_parent: false,
            has_stdin: false,
            joins_stderr: false,
            stdout: Output::Keep,
            stderr: Output::Keep,
            grace: Self::DEFAULT_GRACE,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|each| each.as_ref().to_owned()));
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(self, argument: impl AsRef<OsStr>) -> Self {
        self.args([argument])
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Runs it on one processor only, with all its threads. It needs `taskset`.
    #[must_use]
    pub fn on_cpu(mut self, cpu: usize) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// Has the kernel kill it when its parent ends. It needs `setpriv`.
    ///
    /// The parent is a thread: that of the host with [`start_in`](Self::start_in), so it ends with the last
    /// handle to the host or with this process; the calling thread with [`start`](Self::start).
    #[must_use]
    pub fn end_with_parent(mut self) -> Self {
        self.ends_with_parent = true;
        self
    }

    /// Gives it a standard input; see [`Running::write_line`](super::Running::write_line).
    #[must_use]
    pub fn with_stdin(mut self) -> Self {
        self.has_stdin = true;
        self
    }

    /// Sets the destination of its standard output.
    #[must_use]
    pub fn stdout(mut self, output: Output) -> Self {
        self.stdout = output;
        self
    }

    /// Sets the destination of its standard error.
    #[must_use]
    pub fn stderr(mut self, output: Output) -> Self {
        self.stderr = output;
        self
    }

    /// Joins its standard error to its standard output, in the order in which it writes. Both are kept, or a
    /// function sees their lines.
    #[must_use]
    pub fn join_stderr(mut self) -> Self {
        self.joins_stderr = true;
        self
    }

    /// Sets the time from SIGTERM to SIGKILL when it is ended. Zero: SIGKILL at once, without SIGTERM.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Returns the file name of the program.
    pub(super) fn name(&self) -> String {
        let name = Path::new(&self.program).file_name().unwrap_or(&self.program);
        name.display().to_string()
    }

    pub(super) fn command(&self) -> Command {
        let mut words: Vec<&OsStr> = Vec::new();
        let cpu = self.cpu.map(|cpu| cpu.to_string());
        if self.ends_with_parent {
            // The option survives each `exec`.
            words.extend(["setpriv", "--pdeathsig", "KILL", "--"].map(OsStr::new));
        }
        if let Some(cpu) = &cpu {
            words.extend(["taskset", "-c", cpu].map(OsStr::new));
        }
        words.push(&self.program);
        let mut command = Command::new(words.remove(0));
        command.args(words).args(&self.arguments);
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command.stdin(if self.has_stdin { Stdio::piped() } else { Stdio::null() });
        command.stdout(self.stdout.to_stdio()).stderr(self.stderr.to_stdio());
        command
    }
}

impl From<Command> for Launch {
    /// Takes program, arguments, environment and folder of a command.
    fn from(command: Command) -> Self {
        let owned =
            |(name, value): (&OsStr, Option<&OsStr>)| (name.to_owned(), value.map(OsStr::to_owned));
        let environment = command.get_envs().map(owned).collect();
        let folder = command.get_current_dir().map(Path::to_owned);
        let launch = Self::new(command.get_program()).args(command.get_args());
        Self { environment, folder, ..launch }
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            if let Some(value) = value {
                write!(f, "{}={} ", name.display(), value.display())?;
            }
        }
        if let Some(cpu) = self.cpu {
            write!(f, "taskset -c {cpu} ")?;
        }
        write!(f, "{}", self.program.display())?;
        self.arguments.iter().try_for_each(|each| write!(f, " {}", each.display()))
    }
}

impl Output {
    /// Returns the output whose lines are given to a function.
    pub fn each_line(see: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self::EachLine(Arc::new(see))
    }

    fn to_stdio(&self) -> Stdio {
        match self {
            Self::Keep | Self::EachLine(_) => Stdio::piped(),
            Self::Inherit => Stdio::inherit(),
            Self::Discard => Stdio::null(),
        }
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keep => "Keep",
            Self::EachLine(_) => "EachLine",
            Self::Inherit => "Inherit",
            Self::Discard => "Discard",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_becomes_a_launch_with_its_environment() {
        let mut command = Command::new("mpirun");
        command.args(["-n", "2"]).env("A", "1").env_remove("B");
        assert_eq!(Launch::from(command).to_string(), "A=1 mpirun -n 2");
    }
}
