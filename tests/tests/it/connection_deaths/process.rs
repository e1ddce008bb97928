//! A process that does what lines on its standard input say.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use roce_netns::Host;

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
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
    number: Pid,
}

impl Process {
    pub(crate) fn start(host: &Host, mut command: Command) -> Self {
        // `roce run` says there that its program was ended.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = host.run(|| command.spawn()).expect("the process starts");
        let (sender, output) = mpsc::channel();
        let from = BufReader::new(child.stdout.take().expect("a pipe"));
        std::thread::spawn(move || {
            from.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
        });
        let input = child.stdin.take().expect("a pipe");
        let mut process = Self { child, input, output, number: Pid::from_raw(0) };
        let line = process.line();
        let number = line.strip_prefix("process ").and_then(|number| number.parse().ok());
        process.number = Pid::from_raw(number.expect("its number"));
        process
    }

    pub(crate) fn helper() -> Command {
        Command::new(env!("CARGO_BIN_EXE_roce-test-cm-process"))
    }

    pub(crate) fn line(&self) -> String {
        self.output.recv_timeout(LIMIT).expect("a line within the time allowed")
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the process reads");
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

impl Drop for Process {
    fn drop(&mut self) {
        // Its program ends with `roce run`.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
