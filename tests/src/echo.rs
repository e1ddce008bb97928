//! Other processes: an echo server, and a client that sends to it.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use roce_netns::Host;
use roce_netns::process::{Launch, Output, Running, Signal};

use crate::outage::ConnectTimes;

/// A process that has said that it is ready; it is killed when this is dropped.
#[derive(Debug)]
pub struct Process(Running);

impl Process {
    /// Starts a command in a host, and waits until it says that it is ready.
    ///
    /// # Panics
    /// When it says something else.
    pub fn start(host: &Host, command: Command) -> Self {
        let launch = Launch::from(command).with_stdin().stderr(Output::Inherit);
        // A stopped process would not take SIGTERM.
        let running = launch.grace(Duration::ZERO).start_in(host).expect("the process starts");
        let line = running.read_line(Duration::MAX).expect("its output can be read");
        assert_eq!(line.as_deref(), Some("ready"));
        Self(running)
    }

    /// Returns its number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.0.signal(signal);
    }

    /// Ends it as `kill -9` does: it cannot clean up.
    pub fn kill(self) {
        drop(self);
    }

    /// Closes its input, and waits until it has ended of that.
    ///
    /// # Panics
    /// When it fails.
    pub fn end(self) {
        let ended = self.0.wait(Duration::MAX).and_then(|outcome| outcome.check());
        ended.expect("it succeeds");
    }

    /// The last line that it prints; it ends with that.
    ///
    /// # Panics
    /// When its output cannot be read.
    pub fn last_line(self) -> String {
        let mut last = String::new();
        while let Some(line) = self.0.read_line(Duration::MAX).expect("its output can be read") {
            last = line;
        }
        last
    }
}

/// An echo server in a process of its own.
#[derive(Debug)]
pub struct Echo {
    /// The process.
    pub process: Process,
    /// Where it is found by TCP.
    pub address: SocketAddr,
}

impl Echo {
    /// Starts `program`, which is `roce-test-echo`, on an interface and an address of a host.
    ///
    /// # Panics
    /// When it does not get ready.
    pub fn start(program: &str, host: &Host, interface: &str, ip: &str, port: u16) -> Self {
        let ip: IpAddr = ip.parse().expect("an address");
        Self::start_with(program, host, interface, SocketAddr::new(ip, port), &[])
    }

    /// As [`start`](Self::start), with more arguments behind the address.
    ///
    /// # Panics
    /// When it does not get ready.
    pub fn start_with(
        program: &str,
        host: &Host,
        interface: &str,
        address: SocketAddr,
        arguments: &[&str],
    ) -> Self {
        let place = address.to_string();
        let arguments = [&[program, interface, &place], arguments].concat();
        Self::start_by(host, address, &arguments)
    }

    /// Starts a command line that runs `roce-test-echo` at an address of a host.
    ///
    /// # Panics
    /// When it does not get ready.
    pub fn start_by(host: &Host, address: SocketAddr, line: &[&str]) -> Self {
        let (program, arguments) = line.split_first().expect("a program");
        let mut command = Command::new(program);
        command.args(arguments);
        Self { process: Process::start(host, command), address }
    }
}

/// Starts `program`, which is `roce-test-sender`: it sends messages (`echo` or `write`) to an echo
/// server for so many seconds, one by one, and then says how that went.
///
/// # Panics
/// When it does not get ready.
pub fn start_sender(
    program: &str,
    host: &Host,
    echo: &Echo,
    seconds: f64,
    times: ConnectTimes,
    message: &str,
) -> Process {
    let mut command = Command::new(program);
    command.arg("eth0").arg(echo.address.to_string()).arg(seconds.to_string());
    command.arg(times.timeout.to_string()).arg(times.retry_count.to_string());
    command.arg(message);
    Process::start(host, command)
}
