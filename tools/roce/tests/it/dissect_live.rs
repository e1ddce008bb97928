//! `roce dissect --live` in the middle of a private network (tier 1).

use roce_test_macros::tier1;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use roce_netns::process::{Launch, Running, Signal};
use roce_netns::{Host, Link, Switch, VirtualNetwork};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[tier1]
fn live_packets_are_shown_as_they_come_until_there_are_enough() -> Outcome {
    let network = Network::new()?;
    let watcher = network.watch(&["--count", "100"])?;
    network.pingpong(100)?;
    let text = printed(watcher)?;
    let lines: Vec<&str> = text.lines().collect();
    let numbers = lines.iter().filter_map(|line| line.split_whitespace().next());
    assert!(numbers.clone().any(|number| number == "1" || number == "1.1"), "{text}");
    assert!(numbers.clone().any(|number| number == "100" || number == "100.1"), "{text}");
    let sent = |from: &str, to: &str| {
        let ends = format!(" {from} → {to} qp 0x");
        lines.iter().filter(|line| line.contains(&ends) && line.contains(" RC SEND ")).count()
    };
    assert!(sent(CLIENT, SERVER) > 10 && sent(SERVER, CLIENT) > 10, "{text}");
    let first = lines.iter().find(|line| line.contains(" RC ")).ok_or("no packet")?;
    assert!(first.contains(" | first packet seen"), "{first}");
    assert!(!text.contains("ICRC"), "every ICRC is correct, also in trains: {text}");
    assert!(text.contains(" acks "), "responses are found: {text}");
    Ok(())
}

#[tier1]
fn a_live_summary_is_printed_when_it_is_interrupted() -> Outcome {
    let network = Network::new()?;
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let watcher = network.watch(&["--summary", "--json"])?;
        network.pingpong(20)?;
        watcher.signal(signal);
        let text = printed(watcher)?;
        let rows = text.lines().map(serde_json::from_str);
        let rows: Vec<serde_json::Value> = rows.collect::<Result<_, _>>()?;
        let row = rows.iter().find(|row| row["service"] == "RC").ok_or_else(|| text.clone())?;
        assert_eq!(row["kind"], "connection", "{text}");
        let ends = ["a", "b"].map(|end| row[end]["address"].as_str().unwrap_or_default());
        assert!(ends.contains(&CLIENT) && ends.contains(&SERVER), "{text}");
        assert!(row["a"]["qp"].is_number() && row["b"]["qp"].is_number(), "{text}");
        assert_eq!(row["forward"]["wrong_icrcs"], 0, "{text}");
        // 4096 bytes each way each time.
        for way in ["forward", "backward"] {
            assert_eq!(row[way]["good_bytes"], 20 * 4096, "{way}: {text}");
        }
    }
    Ok(())
}

/// The kernel writes the IP headers of UDP sockets, and the ICRC covers them.
#[tier1]
fn every_packet_of_udp_sockets_has_the_right_icrc_at_both_ends_of_a_cable() -> Outcome {
    for [client, server] in [[CLIENT, SERVER], ["fd00::1", "fd00::2"]] {
        // Devices take IPv4 where they have both.
        let network = VirtualNetwork::new()?;
        let ends = [network.host("client")?, network.host("server")?];
        network.veth((&ends[0], "eth0"), (&ends[1], "eth0"), Link { mtu: 4200 })?;
        let prefix = if server.contains(':') { 64 } else { 24 };
        ends[0].address("eth0", format!("{client}/{prefix}").parse()?)?;
        ends[1].address("eth0", format!("{server}/{prefix}").parse()?)?;
        for (verb, count) in [("write", "20"), ("send", "20"), ("read", "5")] {
            let watchers =
                [watch(&ends[0], "eth0", &["--json"]), watch(&ends[1], "eth0", &["--json"])];
            let perf = ["perf", verb, "bw", "-d", "eth0", "-s", "65536", "-n", count];
            exchange([&ends[0], &ends[1]], &[&perf[..], &["--backend", "udp"]].concat(), server)?;
            for (place, watcher) in ["client", "server"].into_iter().zip(watchers) {
                let watcher = watcher?;
                watcher.signal(Signal::SIGINT);
                let seen = Seen::of(&printed(watcher)?)?;
                println!("{verb} at the {place}, {server}: {seen:?}");
                assert!(seen.from(client) > 0 && seen.from(server) > 0, "{seen:?}");
                assert!(seen.in_trains > 0, "{seen:?}");
                assert_eq!(seen.verdicts.keys().collect::<Vec<_>>(), ["right"], "{seen:?}");
            }
        }
    }
    Ok(())
}

/// RoCE packets of a capture.
#[derive(Debug, Default)]
struct Seen {
    /// Their number by source address.
    sources: BTreeMap<String, u32>,
    /// Their number by the verdict on their ICRC.
    verdicts: BTreeMap<String, u32>,
    in_trains: u32,
}

impl Seen {
    fn of(capture: &str) -> Outcome<Self> {
        let mut seen = Self::default();
        for line in capture.lines() {
            let packet: serde_json::Value = serde_json::from_str(line)?;
            if packet["kind"] == "roce" {
                let text =
                    |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
                *seen.sources.entry(text(&packet["source"])).or_default() += 1;
                *seen.verdicts.entry(text(&packet["icrc"]["verdict"])).or_default() += 1;
                seen.in_trains += u32::from(packet["train"].is_object());
            }
        }
        Ok(seen)
    }

    fn from(&self, source: &str) -> u32 {
        self.sources.get(source).copied().unwrap_or_default()
    }
}

#[tier1]
fn an_interface_that_is_not_there_is_told_in_one_line() -> Outcome {
    let network = Network::new()?;
    let output = start(&network.client, dissect("eth7", &[]))?.wait(LIMIT)?;
    let told = output.stderr;
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.starts_with("roce: ") && told.contains("eth7"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    Ok(())
}

/// Two hosts and a switch between them, where packets are watched at the client's port. At the
/// client itself one would miss what it sends: that goes to the interface by the shortest way,
/// past the listeners.
struct Network {
    client: Host,
    server: Host,
    switch: Switch,
}

impl Network {
    fn new() -> Outcome<Self> {
        let network = VirtualNetwork::new()?;
        let (client, server) = (network.host("client")?, network.host("server")?);
        let switch = network.bridge(&[(&client, "eth0"), (&server, "eth0")], Link { mtu: 4200 })?;
        client.address("eth0", format!("{CLIENT}/24").parse()?)?;
        server.address("eth0", format!("{SERVER}/24").parse()?)?;
        Ok(Self { client, server, switch })
    }

    fn watch(&self, options: &[&str]) -> Outcome<Running> {
        watch(self.switch.host(), "port0", options)
    }

    /// Messages of 4096 bytes, so many each way.
    fn pingpong(&self, messages: u32) -> Outcome {
        let line = ["pingpong", "-d", "eth0", "-n", &messages.to_string()];
        exchange([&self.client, &self.server], &line, SERVER)
    }
}

/// Starts to watch an interface; returns when it does.
fn watch(host: &Host, interface: &str, options: &[&str]) -> Outcome<Running> {
    let watcher = start(host, dissect(interface, options))?;
    // A packet socket that is bound to an interface.
    let is_bound = |line: &str| line.split_whitespace().nth(4).is_some_and(|i| i != "0");
    until(|| Ok(read_in(host, "packet")?.lines().skip(1).any(is_bound)))?;
    Ok(watcher)
}

/// Runs a command at a client and its server, whose address is `of_server`.
fn exchange([client, server]: [&Host; 2], line: &[&str], of_server: &str) -> Outcome {
    let roce = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
        command.args(line).args(more);
        command
    };
    let serving = start(server, roce(&[]))?;
    serving.wait_until_listening(&[PORT.into()], LIMIT)?;
    printed(start(client, roce(&[of_server]))?)?;
    printed(serving)?;
    Ok(())
}

/// Starts a program that ends with the test, however that ends.
fn start(host: &Host, command: Command) -> Outcome<Running> {
    Ok(Launch::from(command).grace(Duration::ZERO).start_in(host)?)
}

/// Returns what a program prints, if it succeeds.
fn printed(running: Running) -> Outcome<String> {
    Ok(running.wait(LIMIT)?.check()?.stdout)
}

fn dissect(interface: &str, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    command.args(["dissect", "--live", interface]).args(options);
    command
}

/// What the kernel says of this kind of sockets in a host.
fn read_in(host: &Host, sockets: &str) -> io::Result<String> {
    host.run(|| fs::read_to_string(format!("/proc/thread-self/net/{sockets}")))
}

/// Waits for what comes soon.
fn until(has_come: impl Fn() -> Outcome<bool>) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !has_come()? {
        if Instant::now() > deadline {
            return Err("waited for half a minute".into());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

const CLIENT: &str = "10.0.0.1";
const SERVER: &str = "10.0.0.2";
/// Where the two ends of a command find each other.
const PORT: u16 = 18515;
/// The longest that a program may take.
const LIMIT: Duration = Duration::from_secs(120);
