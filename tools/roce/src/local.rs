//! `--local`: both ends of a command on one host, in a private network.
//!
//! The parent creates two hosts with a link and starts this program in each, with the same
//! arguments and a role. It prints the client's output. The children die with the parent, and the
//! network with the last child.

use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};

use roce_netns::{Host, Link, VirtualNetwork};

pub(crate) mod ring;

use crate::error::{CliError, Result};
use crate::parent_death;
use crate::rails;
use crate::ranks::{Policy, Stream, StreamKind, Supervisor};
use crate::switch::SwitchOptions;
use crate::switch::interconnect::Interconnect;
use crate::this_program;
use crate::traffic::{LOCAL_INTERFACE, Role, Traffic};

/// The server's address; the client's is the next one.
pub(crate) const SERVER: &str = "10.0.0.1";

/// Two hosts with a cable or a switch, or with a bridge or a switch for each of several rails.
#[derive(Debug)]
pub(crate) struct Pair {
    /// Before the hosts: it ends first.
    interconnects: Vec<Interconnect>,
    pub(crate) server: Host,
    pub(crate) client: Host,
}

impl Pair {
    /// Creates the network, also as an ordinary user. No thread may exist yet.
    pub(crate) fn new(link_mtu: u32, rails: u32, switch: &SwitchOptions) -> Result<Self> {
        if rails > 1 {
            let (hosts, interconnects) =
                ring::Network::new(2, rails, link_mtu, switch)?.into_parts();
            let two = <[Host; 2]>::try_from(hosts);
            let [server, client] = two.map_err(|_| CliError::new("a network of two hosts"))?;
            return Ok(Self { interconnects, server, client });
        }
        roce_netns::enter_user_namespace_if_needed()?;
        let network = VirtualNetwork::new()?;
        let (server, client) = (network.host("server")?, network.host("client")?);
        let link = Link { mtu: link_mtu };
        let ends = [(&server, LOCAL_INTERFACE), (&client, LOCAL_INTERFACE)];
        let interconnects = if switch.switch.is_some() {
            vec![Interconnect::connect(&network, &ends, link, switch, 0)?]
        } else {
            network.veth(ends[0], ends[1], link)?;
            Vec::new()
        };
        for (host, number) in [(&server, 1), (&client, 2)] {
            host.address(LOCAL_INTERFACE, format!("10.0.0.{number}/24").parse()?)?;
            // IPv6 is optional: it needs an MTU of 1280 and a kernel with IPv6.
            let _ = host.address(LOCAL_INTERFACE, format!("fd00::{number}/64").parse()?);
        }
        Ok(Self { interconnects, server, client })
    }

    /// Returns the hosts, the server first, and what connects them.
    pub(crate) fn into_parts(self) -> (Vec<Host>, Vec<Interconnect>) {
        (vec![self.server, self.client], self.interconnects)
    }

    /// Runs this process's command at both ends with more arguments; writes the client's output to
    /// `output`, and returns it.
    pub(crate) fn run_command<W: Write + Send + 'static>(
        &self,
        more: &[String],
        output: W,
    ) -> Result<W> {
        let mut ends = Supervisor::new();
        let mut command = end(Role::Server, more);
        command.stderr(Stdio::piped());
        let server = ends.start(&self.server, command)?;
        let (stdout, stderr) = (server.stdout.take(), server.stderr.take());
        let words =
            ends.copy(stream(StreamKind::Messages, stderr, "server: ")?, Vec::new(), |_| None)?;
        ends.copy(stream(StreamKind::Output, stdout, "")?, io::sink(), |line| {
            (line == READY).then_some(ServerReady)
        })?;

        let client = ends.start(&self.client, end(Role::Client, more))?;
        let (client_stdin, stdout) = (client.stdin.take(), client.stdout.take());
        let output = ends.copy(stream(StreamKind::Output, stdout, "")?, output, |_| None)?;

        let mut run = Run { client_stdin, failures: [None; 2] };
        ends.follow(&mut run)?;
        // Both have ended: the threads see the ends of the pipes.
        let output = output.join().map_err(|_| CliError::Reported(1))?;
        if ends.has_lost_reader() {
            return Err(CliError::Quit);
        }
        let _ = io::stderr().write_all(&words.join().unwrap_or_default());
        // Each end has printed its own reason.
        let [server, client] = run.failures;
        client.or(server).map_or(Ok(output), |code| Err(CliError::Reported(code)))
    }
}

/// Creates a network, runs this process's command at both ends, and prints the client's output.
pub(crate) fn run(traffic: &Traffic) -> Result {
    let pair = Pair::new(traffic.link_mtu, traffic.rails, &traffic.switch)?;
    let (mtu, last) = (traffic.link_mtu, traffic.rails - 1);
    match last {
        0 => eprintln!("private network: client 10.0.0.2 -- eth0, MTU {mtu} -- 10.0.0.1 server"),
        _ => eprintln!(
            "private network: client 10.0.R.2 -- ethR, MTU {mtu} -- 10.0.R.1 server, R from 0 to {last}"
        ),
    }
    pair.run_command(&[], io::stdout()).map(drop)
}

/// Prepares an end of a private network: it dies with its parent, and a client waits for the
/// server.
pub(crate) fn begin(role: Option<Role>) -> Result {
    if role.is_some() {
        parent_death::die_with_parent()?;
    }
    if role == Some(Role::Client) {
        // One byte of the parent means that the server is ready.
        io::stdin().read_exact(&mut [0]).map_err(|_| CliError::Reported(1))?;
    }
    Ok(())
}

/// Returns the server's address for the client of a private network that uses an interface, or the first.
pub(crate) fn server_of(role: Option<Role>, interface: Option<&str>) -> Option<String> {
    let rail = interface.and_then(rails::rail_of).unwrap_or(0);
    (role == Some(Role::Client)).then(|| rails::address(rail, 0))
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

/// Returns the command of an end.
fn end(role: Role, more: &[String]) -> Command {
    let mut command = this_program::with_own_arguments();
    let name = match role {
        Role::Server => "server",
        Role::Client => "client",
    };
    command.args(more).args(["--role", name]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Returns what a process that was started with a pipe writes to it.
fn stream<R>(kind: StreamKind, pipe: Option<R>, prefix: &str) -> Result<Stream<R>> {
    let from = pipe.ok_or_else(|| CliError::new("a process without a pipe"))?;
    Ok(Stream { kind, from, prefix: prefix.to_owned() })
}

/// A running server, rank 0, and its client, rank 1.
struct Run {
    /// The client waits on it for its start, and for its end.
    client_stdin: Option<ChildStdin>,
    /// The exit codes of the ends that failed.
    failures: [Option<u8>; 2],
}

/// The server accepts its client.
struct ServerReady;

impl Policy for Run {
    type News = ServerReady;

    fn on_news(
        &mut self,
        _: &mut Supervisor<ServerReady>,
        ServerReady: ServerReady,
    ) -> Result<ControlFlow<()>> {
        // If the client has ended, the next event reports that.
        let _ = self.client_stdin.as_mut().map(|pipe| pipe.write_all(b"\n"));
        Ok(ControlFlow::Continue(()))
    }

    fn on_end(
        &mut self,
        ends: &mut Supervisor<ServerReady>,
        rank: usize,
        status: ExitStatus,
    ) -> ControlFlow<()> {
        if let Some(failure) = self.failures.get_mut(rank) {
            *failure = (!status.success()).then(|| exit_code(status));
        }
        // Ends a client that waits.
        self.client_stdin = None;
        if rank == CLIENT && !status.success() {
            // The server could only report that the client is gone.
            ends.stop();
        } else {
            // The other end might wait forever.
            ends.stop_later();
        }
        ControlFlow::Continue(())
    }
}

/// The rank of the client.
const CLIENT: usize = 1;

fn exit_code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

const READY: &str = "ready for the client";
