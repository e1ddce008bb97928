//! Processes with connection management on one address (tier 1).

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use roce_netns::{Host, Link, VirtualNetwork};
use roce_test_macros::tier1;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const SERVER: &str = "10.1.0.2";

/// A `roce pingpong --cm` that ends with the test.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(host: &Host, port: u16, more: &[&str]) -> Outcome<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
        command.args(["pingpong", "--cm", "-d", "eth0", "-n", "200", "-c", "-p"]);
        command.arg(port.to_string()).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = host.spawn(command)?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        Ok(Self { child, stdout })
    }

    /// Starts a server, and returns when it listens.
    fn server(host: &Host, port: u16) -> Outcome<Self> {
        let mut server = Self::start(host, port, &[])?;
        let mut line = String::new();
        server.stdout.read_line(&mut line)?;
        match line.contains("listening on") {
            true => Ok(server),
            false => Err(format!("{line:?}: {}", server.end()?.1).into()),
        }
    }

    /// Waits for its end. Returns whether it went well, and all that it printed.
    fn end(mut self) -> Outcome<(bool, String)> {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text)?;
        let stderr = self.child.stderr.as_mut().ok_or("no standard error")?;
        stderr.read_to_string(&mut text)?;
        Ok((self.child.wait()?.success(), text))
    }

    fn succeeds(self) -> Outcome {
        let (is_success, text) = self.end()?;
        match is_success && text.contains("200 iters in") {
            true => Ok(()),
            false => Err(text.into()),
        }
    }

    fn fails_with(self, words: &str) -> Outcome {
        let (is_success, text) = self.end()?;
        match !is_success && text.contains(words) {
            true => Ok(()),
            false => Err(format!("{text:?} has no {words:?}").into()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

fn two_hosts() -> Outcome<[Host; 2]> {
    let network = VirtualNetwork::new()?;
    let hosts = [network.host("client")?, network.host("server")?];
    network.veth((&hosts[0], "eth0"), (&hosts[1], "eth0"), Link { mtu: 1500 })?;
    hosts[0].address("eth0", "10.1.0.1/24".parse()?)?;
    hosts[1].address("eth0", format!("{SERVER}/24").parse()?)?;
    Ok(hosts)
}

#[tier1]
fn servers_on_one_address_get_each_its_own_clients_and_a_port_belongs_to_one() -> Outcome {
    let [client, server] = two_hosts()?;
    let ports = [7001, 7002, 7003];
    let servers = ports.map(|port| Running::server(&server, port));
    let servers = servers.into_iter().collect::<Outcome<Vec<_>>>()?;
    Running::start(&server, 7002, &[])?.fails_with("in use")?;
    // One of the three says that nothing listens there, and none of them about the others' ports.
    Running::start(&client, 7004, &[SERVER])?.fails_with("no listener")?;
    let clients = ports.map(|port| Running::start(&client, port, &[SERVER]));
    for running in clients.into_iter().collect::<Outcome<Vec<_>>>()?.into_iter().chain(servers) {
        running.succeeds()?;
    }
    Ok(())
}

#[tier1]
fn a_killed_server_leaves_its_port_to_the_next_one_and_its_peer_to_one_that_lives() -> Outcome {
    let [client, server] = two_hosts()?;
    for _ in 0..3 {
        let killed = Running::server(&server, 7001)?;
        let other = Running::server(&server, 7002)?;
        drop(killed);
        // The one that lives answers for the one that does not.
        Running::start(&client, 7001, &[SERVER])?.fails_with("no listener")?;
        let next = Running::server(&server, 7001)?;
        Running::start(&client, 7001, &[SERVER])?.succeeds()?;
        next.succeeds()?;
        Running::start(&client, 7002, &[SERVER])?.succeeds()?;
        other.succeeds()?;
    }
    Ok(())
}
