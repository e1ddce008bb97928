//! A process that does what lines on its standard input say.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use roce_netns::Host;
use roce_netns::process::{Launch, Output, Running};

use super::LIMIT;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Death {
    Kill,
    Terminate,
    Exit,
    Exec,
}

pub(crate) const DEATHS: [Death; 4] = [Death::Kill, Death::Terminate, Death::Exit, Death::Exec];

/// The process: `roce-test-cm-process`.
pub(crate) struct Process {
    running: Running,
    number: Pid,
}

impl Process {
    pub(crate) fn start(host: &Host, command: Command) -> Self {
        // `roce run` says there that its program was ended.
        let launch = Launch::from(command).with_stdin().stderr(Output::Discard);
        // Its program ends with `roce run`.
        let running = launch.grace(Duration::ZERO).start_in(host).expect("the process starts");
        let mut process = Self { running, number: Pid::from_raw(0) };
        let line = process.line();
        let number = line.strip_prefix("process ").and_then(|number| number.parse().ok());
        process.number = Pid::from_raw(number.expect("its number"));
        process
    }

    pub(crate) fn helper() -> Command {
        Command::new(env!("CARGO_BIN_EXE_roce-test-cm-process"))
    }

    pub(crate) fn line(&self) -> String {
        let line = self.running.read_line(LIMIT).expect("a line within the time allowed");
        line.expect("its output goes on")
    }

    pub(crate) fn tell(&mut self, line: &str) {
        self.running.write_line(line).expect("the process reads");
    }

    pub(crate) fn expect(&self, line: &str) {
        assert_eq!(self.line(), line);
    }

    /// Lets the process die. Returns when that was.
    pub(crate) fn die(&mut self, death: Death) -> Instant {
        let at = Instant::now();
        match death {
            Death::Kill => kill(self.number, Signal::SIGKILL).expect("it lives"),
            Death::Terminate => kill(self.number, Signal::SIGTERM).expect("it lives"),
            Death::Exit => self.tell("exit"),
            Death::Exec => self.tell("exec"),
        }
        at
    }
}
