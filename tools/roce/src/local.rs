//! `--local`: both ends of a command on one host, in a private network.
//!
//! The parent creates two hosts with a link and starts this program in each, with the same
//! arguments and a role. It prints the client's output. The children die with the parent, and the
//! network with the last child.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use roce_netns::{Host, Link, VirtualNetwork};

pub(crate) mod ring;
pub(crate) mod termination;

use crate::error::{CliError, Result};
use crate::log;
use crate::switch::SwitchOptions;
use crate::switch::interconnect::Interconnect;
use crate::traffic::{Role, Traffic};

/// The interface's name at both ends.
pub(crate) const INTERFACE: &str = "eth0";

/// The server's address; the client's is the next one.
pub(crate) const SERVER: &str = "10.0.0.1";

/// Two hosts with a link, or with a switch.
#[derive(Debug)]
pub(crate) struct Pair {
    /// Before the hosts: it ends first.
    interconnect: Option<Interconnect>,
    pub(crate) server: Host,
    pub(crate) client: Host,
}

impl Pair {
    /// Creates the network, also as an ordinary user. No thread may exist yet.
    pub(crate) fn new(link_mtu: u32, switch: &SwitchOptions) -> Result<Self> {
        roce_netns::enter_user_namespace_if_needed()?;
        let network = VirtualNetwork::new()?;
        let (server, client) = (network.host("server")?, network.host("client")?);
        let link = Link { mtu: link_mtu };
        let ends = [(&server, INTERFACE), (&client, INTERFACE)];
        let interconnect = if switch.switch.is_some() {
            Some(Interconnect::connect(&network, &ends, link, switch, 0)?)
        } else {
            network.veth(ends[0], ends[1], link)?;
            None
        };
        for (host, number) in [(&server, 1), (&client, 2)] {
            host.address(INTERFACE, format!("10.0.0.{number}/24").parse()?)?;
            // IPv6 is optional: it needs an MTU of 1280 and a kernel with IPv6.
            let _ = host.address(INTERFACE, format!("fd00::{number}/64").parse()?);
        }
        Ok(Self { interconnect, server, client })
    }

    /// Returns the hosts, the server first, and what connects them.
    pub(crate) fn into_parts(self) -> (Vec<Host>, Option<Interconnect>) {
        (vec![self.server, self.client], self.interconnect)
    }

    /// Runs this process's command at both ends with more arguments; writes the client's output to
    /// `output`.
    pub(crate) fn run_command(&self, more: &[String], output: &mut (impl Write + Send)) -> Result {
        let server = start(&self.server, Role::Server, more)?;
        let client = start(&self.client, Role::Client, more)?;
        Run { server, client }.finish(output)
    }
}

/// Creates a network, runs this process's command at both ends, and prints the client's output.
pub(crate) fn run(traffic: &Traffic) -> Result {
    let pair = Pair::new(traffic.link_mtu, &traffic.switch)?;
    eprintln!(
        "private network: client 10.0.0.2 -- {INTERFACE}, MTU {} -- 10.0.0.1 server",
        traffic.link_mtu
    );
    pair.run_command(&[], &mut io::stdout())
}

/// Prepares an end of a private network: it dies with its parent, and a client waits for the
/// server.
pub(crate) fn begin(role: Option<Role>) -> Result {
    if role.is_some() {
        die_with_parent()?;
    }
    if role == Some(Role::Client) {
        // One byte of the parent means that the server is ready.
        io::stdin().read_exact(&mut [0]).map_err(|_| CliError::Reported(1))?;
    }
    Ok(())
}

/// Asks the kernel to kill this process when its parent ends.
pub(crate) fn die_with_parent() -> Result {
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|errno| CliError::context("setting the parent death signal", errno))
}

/// Returns the server address for the client of a private network.
pub(crate) fn server_of(role: Option<Role>) -> Option<String> {
    (role == Some(Role::Client)).then(|| SERVER.to_owned())
}

/// Announces that a client may connect to this server.
pub(crate) fn announce_ready(role: Option<Role>) {
    if role == Some(Role::Server) {
        println!("{READY}");
    }
}

/// Keeps the client alive until the server is done, so that the server's last messages are
/// acknowledged.
pub(crate) fn linger(role: Option<Role>) {
    if role == Some(Role::Client) {
        // The parent writes a byte or closes the pipe.
        let _ = io::stdin().read(&mut [0]);
    }
}

fn start(host: &Host, role: Role, more: &[String]) -> Result<Child> {
    let mut command = myself();
    let name = match role {
        Role::Server => "server",
        Role::Client => "client",
    };
    command.args(more).args(["--role", name]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    if role == Role::Server {
        command.stderr(Stdio::piped());
    }
    Ok(host.spawn(command)?)
}

/// Returns the command of this program with its own arguments.
fn myself() -> Command {
    myself_with(&[])
}

/// Returns the command of this program with its own arguments, and `more` behind the first, which is
/// the name of the command.
pub(crate) fn myself_with(more: &[&OsStr]) -> Command {
    // This path is the running program, even if its file was replaced or is not readable.
    let mut command = Command::new("/proc/self/exe");
    let mut arguments = std::env::args_os();
    command.arg0(arguments.next().unwrap_or_else(|| "roce".into()));
    command.args(arguments.next()).args(more).args(arguments);
    if log::invalid_level().is_some() {
        // This process has warned about it.
        command.env_remove(log::VARIABLE);
    }
    command
}

/// A running server and its client.
struct Run {
    server: Child,
    client: Child,
}

enum Event {
    ServerReady,
    ServerEnded,
    ClientEnded,
    /// The reader of the client's output has gone away.
    ReaderGone,
}

impl Run {
    fn finish(mut self, output: &mut (impl Write + Send)) -> Result {
        let (tell, news) = mpsc::channel();
        let mut client_stdin = self.client.stdin.take();
        let server_stdout = self.server.stdout.take();
        let server_stderr = self.server.stderr.take();
        let client_stdout = self.client.stdout.take();
        thread::scope(|scope| {
            let complaint = scope.spawn(|| {
                let mut text = String::new();
                let _ = server_stderr.map(|mut pipe| pipe.read_to_string(&mut text));
                text
            });
            let of_server = tell.clone();
            scope.spawn(move || watch_server(server_stdout, &of_server));
            scope.spawn(move || {
                let event = match client_stdout.map(|mut pipe| copy(&mut pipe, output)) {
                    Some(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                        Event::ReaderGone
                    }
                    _ => Event::ClientEnded,
                };
                let _ = tell.send(event);
            });
            let outcome = self.follow(&news, &mut client_stdin);
            // Both have ended or were stopped by `follow`: the threads see the ends of the pipes.
            let words = complaint.join().unwrap_or_default();
            if !matches!(outcome, Err(CliError::Reported(0))) {
                words.lines().for_each(|line| eprintln!("server: {line}"));
            }
            outcome
        })
    }

    /// Waits until both have ended, and ends the one that would wait forever.
    fn follow(&mut self, news: &Receiver<Event>, client_stdin: &mut Option<ChildStdin>) -> Result {
        // What comes next once one has ended: time to end by itself, SIGTERM, SIGKILL.
        let mut signals = [Signal::SIGTERM, Signal::SIGKILL].into_iter();
        let (mut server_alive, mut client_alive) = (true, true);
        while server_alive || client_alive {
            let are_both = server_alive && client_alive;
            let patience = if are_both { Duration::MAX } else { END_TIMEOUT };
            let mut is_over = false;
            match news.recv_timeout(patience) {
                Ok(Event::ServerReady) => {
                    // If the client has ended, the next event reports that.
                    let _ = client_stdin.as_mut().map(|pipe| pipe.write_all(b"\n"));
                }
                Ok(Event::ServerEnded) => {
                    server_alive = false;
                    // Ends a client that waits for its start or for its end.
                    *client_stdin = None;
                }
                Ok(Event::ReaderGone) => {
                    self.server.kill()?;
                    self.client.kill()?;
                    self.server.wait()?;
                    self.client.wait()?;
                    return Err(CliError::Reported(0));
                }
                Ok(Event::ClientEnded) => {
                    client_alive = false;
                    // The server could only report that the client is gone.
                    is_over = server_alive && !self.client.wait()?.success();
                }
                // The other end would wait forever.
                Err(_) => is_over = true,
            }
            if is_over && let Some(signal) = signals.next() {
                let other = if server_alive { &self.server } else { &self.client };
                // It may have ended already.
                let _ = kill(pid_of(other), signal);
            }
        }
        let (server, client) = (self.server.wait()?, self.client.wait()?);
        // Each end has printed its own reason.
        match (client.success(), server.success()) {
            (true, true) => Ok(()),
            (true, false) => Err(CliError::Reported(exit_code(server))),
            (false, _) => Err(CliError::Reported(exit_code(client))),
        }
    }
}

/// Reports that the server is ready, then that it has ended.
fn watch_server(stdout: Option<impl Read>, tell: &Sender<Event>) {
    if let Some(pipe) = stdout {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if line == READY {
                let _ = tell.send(Event::ServerReady);
            }
        }
    }
    let _ = tell.send(Event::ServerEnded);
}

/// Copies bytes as soon as they arrive.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let len = from.read(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..len])?;
        to.flush()?;
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap_or(i32::MAX))
}

fn exit_code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

const READY: &str = "ready for the client";

/// Time that one end may take to end after the other.
const END_TIMEOUT: Duration = Duration::from_secs(3);
