//! Other processes: an echo server, and a client that sends to it.

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use roce_netns::Host;

use crate::outage::ConnectTimes;

/// A process that has said that it is ready; it is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a command in a host, and waits until it says that it is ready.
    ///
    /// # Panics
    /// When it says something else.
    pub fn start(host: &Host, mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = host.spawn(command).expect("the process starts");
        let mut output = BufReader::new(child.stdout.take().expect("it was asked for"));
        let mut line = String::new();
        output.read_line(&mut line).expect("its output can be read");
        assert_eq!(line, "ready\n");
        Self { child, output }
    }

    /// Returns its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it has been waited for.
    pub fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.child.id().try_into().expect("a process id"));
        kill(id, signal).expect("it is a child that was not waited for");
    }

    /// Ends it as `kill -9` does: it cannot clean up.
    ///
    /// # Panics
    /// When it has been waited for.
    pub fn kill(mut self) {
        self.child.kill().expect("it is a child");
        self.child.wait().expect("it is a child");
    }

    /// Closes its input, and waits until it has ended of that.
    ///
    /// # Panics
    /// When it fails.
    pub fn end(mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("it is a child");
        assert!(status.success(), "{status}");
    }

    /// The last line that it prints; it ends with that.
    ///
    /// # Panics
    /// When its output cannot be read.
    pub fn last_line(mut self) -> String {
        let mut last = String::new();
        for line in self.output.by_ref().lines() {
            last = line.expect("its output can be read");
        }
        last
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _status = self.child.wait();
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
