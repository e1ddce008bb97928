//! Commands whose link goes down while they run (tier 1).

use roce_test_macros::tier1;
use std::error::Error;
use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use roce_netns::process::{Launch, Output, Running};
use roce_netns::{Host, Link, VirtualNetwork};

type Outcome = Result<(), Box<dyn Error>>;

/// The longest that anything here may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A command that runs, and the lines that it prints on standard error.
struct End {
    running: Running,
    stderr: Receiver<String>,
}

impl End {
    fn start(host: &Host, arguments: &str) -> Result<Self, Box<dyn Error>> {
        let (tell, stderr) = mpsc::channel();
        let lines = Output::each_line(move |line| {
            // The test may have ended.
            let _heard = tell.send(line.to_owned());
        });
        let launch = Launch::new(env!("CARGO_BIN_EXE_roce")).args(arguments.split(' '));
        let launch = launch.stdout(Output::Discard).stderr(lines).grace(Duration::ZERO);
        Ok(Self { running: launch.start_in(host)?, stderr })
    }

    /// Waits for the end, and returns how it ended and what it said on standard error.
    fn wait(self) -> Result<(ExitStatus, String), Box<dyn Error>> {
        let said: Vec<String> = self.stderr.iter().collect();
        let outcome = self.running.wait(PATIENCE)?;
        Ok((outcome.status, said.join("\n")))
    }
}

/// Waits for a line that holds `text`.
fn expect(lines: &Receiver<String>, text: &str) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) if line.contains(text) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(format!("no line with {text:?}: {error}").into()),
        }
    }
}

/// Two hosts on one switch: each has a link of its own.
struct Network {
    server: Host,
    client: Host,
    _switch: roce_netns::Switch,
}

impl Network {
    fn new() -> Result<Self, Box<dyn Error>> {
        let network = VirtualNetwork::new()?;
        let (server, client) = (network.host("server")?, network.host("client")?);
        let switch = network.bridge(&[(&server, "eth0"), (&client, "eth0")], Link::default())?;
        for (host, number) in [(&server, 1), (&client, 2)] {
            host.address("eth0", format!("10.0.0.{number}/24").parse()?)?;
        }
        Ok(Self { server, client, _switch: switch })
    }

    /// Starts a command at both ends; returns when they exchange messages.
    fn start(&self, command: &str, more: &str) -> Result<[End; 2], Box<dyn Error>> {
        let before = self.sent_packets();
        let server = End::start(&self.server, &format!("{command} -d eth0 {more}"))?;
        // A client that comes too early is started again.
        let deadline = Instant::now() + PATIENCE;
        let client = loop {
            let client = End::start(&self.client, &format!("{command} -d eth0 10.0.0.1 {more}"))?;
            while !client.running.has_ended() && self.sent_packets() < before + BUSY {
                assert!(Instant::now() < deadline, "no traffic");
                std::thread::sleep(Duration::from_millis(10));
            }
            if !client.running.has_ended() {
                break client;
            }
            let complaint = client.wait()?.1;
            assert!(Instant::now() < deadline, "{complaint}");
        };
        Ok([server, client])
    }

    fn sent_packets(&self) -> u64 {
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        let text = self.client.run(read);
        let line = text.lines().find_map(|line| line.trim().strip_prefix("eth0:"));
        // Eight columns of what was received, then bytes and packets sent.
        line.and_then(|line| line.split_whitespace().nth(9)?.parse().ok()).unwrap_or(0)
    }
}

/// Packets that only a running test sends.
const BUSY: u64 = 300;

/// Commands that run for a long time, and what they need to.
const COMMANDS: [(&str, &str); 3] =
    [("perf write bw", "-D 60"), ("perf send lat", "-D 60"), ("pingpong", "-n 100000000")];

#[tier1]
fn both_ends_say_why_they_fail_when_the_link_goes_down_for_good() -> Outcome {
    for (command, more) in COMMANDS {
        let network = Network::new()?;
        let [server, client] = network.start(command, more)?;
        let began = Instant::now();
        network.client.set_down("eth0")?;
        expect(&client.stderr, "the link of eth0 is down")?;
        let said = began.elapsed();
        let (status, complaint) = client.wait()?;
        let ended = began.elapsed();
        println!("| {command}: link down is told | 1s | {said:?} |");
        println!("| {command}: client ends | 536ms and more | {ended:?} |");
        assert!(said < Duration::from_secs(1), "{said:?}");
        assert!(!status.success(), "{complaint}");
        assert!(complaint.contains("The link of eth0 is down."), "{complaint}");
        // The server's own link is up: it learns of the client's end by silence.
        if command == "pingpong" {
            continue;
        }
        let (status, complaint) = server.wait()?;
        println!("| {command}: server ends | 7s | {:?} |", began.elapsed());
        assert!(!status.success(), "{complaint}");
        assert!(
            complaint.contains("has gone away") || complaint.contains("retry counter exceeded"),
            "{complaint}"
        );
    }
    Ok(())
}

#[tier1]
fn a_pingpong_server_that_only_waits_fails_when_its_own_link_stays_down() -> Outcome {
    let network = Network::new()?;
    let [server, _client] = network.start("pingpong", "-n 100000000")?;
    network.server.set_down("eth0")?;
    expect(&server.stderr, "the link of eth0 is down")?;
    let (status, complaint) = server.wait()?;
    assert!(!status.success(), "{complaint}");
    assert!(complaint.contains("The link of eth0 is down."), "{complaint}");
    Ok(())
}

#[tier1]
fn a_command_goes_on_when_the_link_is_back_in_time_and_says_so() -> Outcome {
    let network = Network::new()?;
    // The retries last 8.6 seconds.
    let [server, client] = network.start("perf write bw", "-D 4 -u 18")?;
    network.client.set_down("eth0")?;
    expect(&client.stderr, "the link of eth0 is down")?;
    std::thread::sleep(Duration::from_secs(1));
    network.client.set_up("eth0")?;
    expect(&client.stderr, "the link of eth0 is back")?;
    for end in [client, server] {
        let (status, complaint) = end.wait()?;
        assert!(status.success(), "{complaint}");
    }
    Ok(())
}

#[tier1]
fn pingpong_with_different_options_names_both_values_at_both_ends() -> Outcome {
    let network = Network::new()?;
    for (of_server, of_client, name, values) in [
        ("-m 1024", "-m 512", "-m", ["1024", "512"]),
        ("-n 20", "-n 30", "-n", ["20", "30"]),
        ("-s 64", "-s 65", "-s", ["64", "65"]),
        ("--service srq -q 4", "--service srq -q 5", "-q", ["4", "5"]),
    ] {
        let server = End::start(&network.server, &format!("pingpong -d eth0 {of_server}"))?;
        let client = format!("pingpong -d eth0 10.0.0.1 {of_client}");
        // A client that comes before the server is refused.
        let of_client = loop {
            let end = End::start(&network.client, &client)?.wait()?;
            if !end.1.contains("refused") {
                break end;
            }
        };
        let [here, there] = values;
        for ((status, said), own, other) in
            [(of_client, there, here), (server.wait()?, here, there)]
        {
            assert!(!status.success(), "{said}");
            let expected = format!("{name} is {own} here and {other} at the other end");
            assert!(said.contains(&expected), "{said}");
        }
    }
    Ok(())
}
