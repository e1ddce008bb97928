//! Processes with connection management on one address (tier 1).

use std::error::Error;
use std::time::Duration;

use roce_netns::process::{Launch, Running};
use roce_netns::{Host, Link, VirtualNetwork};
use roce_test_macros::tier1;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const SERVER: &str = "10.1.0.2";
/// The longest that a program may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Starts a `roce pingpong --cm` that ends with the test.
fn start(host: &Host, port: u16, more: &[&str]) -> Outcome<Running> {
    let launch = Launch::new(env!("CARGO_BIN_EXE_roce"));
    let launch = launch.args(["pingpong", "--cm", "-d", "eth0", "-n", "200", "-c", "-p"]);
    let launch = launch.arg(port.to_string()).args(more);
    Ok(launch.grace(Duration::ZERO).start_in(host)?)
}

/// Starts a server, and returns when it listens.
fn serve(host: &Host, port: u16) -> Outcome<Running> {
    let server = start(host, port, &[])?;
    match server.read_line(LIMIT)? {
        Some(line) if line.contains("listening on") => Ok(server),
        line => Err(format!("{line:?}: {}", server.wait(LIMIT)?.text()).into()),
    }
}

fn expect_success(running: Running) -> Outcome {
    let outcome = running.wait(LIMIT)?.check()?;
    match outcome.stdout.contains("200 iters in") {
        true => Ok(()),
        false => Err(outcome.text().into()),
    }
}

fn expect_failure(running: Running, words: &str) -> Outcome {
    let outcome = running.wait(LIMIT)?;
    let text = outcome.text();
    match !outcome.status.success() && outcome.exceeded.is_none() && text.contains(words) {
        true => Ok(()),
        false => Err(format!("{text:?} has no {words:?}").into()),
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
    let servers = ports.map(|port| serve(&server, port));
    let servers = servers.into_iter().collect::<Outcome<Vec<_>>>()?;
    expect_failure(start(&server, 7002, &[])?, "in use")?;
    // One of the three says that nothing listens there, and none of them about the others' ports.
    expect_failure(start(&client, 7004, &[SERVER])?, "no listener")?;
    let clients = ports.map(|port| start(&client, port, &[SERVER]));
    for running in clients.into_iter().collect::<Outcome<Vec<_>>>()?.into_iter().chain(servers) {
        expect_success(running)?;
    }
    Ok(())
}

#[tier1]
fn a_killed_server_leaves_its_port_to_the_next_one_and_its_peer_to_one_that_lives() -> Outcome {
    let [client, server] = two_hosts()?;
    for _ in 0..3 {
        let killed = serve(&server, 7001)?;
        let other = serve(&server, 7002)?;
        drop(killed);
        // The one that lives answers for the one that does not.
        expect_failure(start(&client, 7001, &[SERVER])?, "no listener")?;
        let next = serve(&server, 7001)?;
        expect_success(start(&client, 7001, &[SERVER])?)?;
        expect_success(next)?;
        expect_success(start(&client, 7002, &[SERVER])?)?;
        expect_success(other)?;
    }
    Ok(())
}
