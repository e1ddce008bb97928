//! The small programs between two hosts on a cable (tier 1).

use roce_test_macros::tier1;
use std::error::Error;
use std::time::{Duration, Instant};

use roce_netns::process::{Launch, Running};
use roce_netns::{Host, Link, VirtualNetwork};
use serde_json::Value;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[tier1]
fn trains_arrive_whole_and_are_counted_alike_at_both_ends() -> Outcome {
    let (server, client) = cable()?;
    let large = ["--payload", "1024"];
    let whole = ["--payload", "8", "--whole"];
    for (size, more) in [
        (&large[..], &["--working-set", "1M"][..]),
        (&large, &["--no-icrc"]),
        (&large, &["--plain-icrc"]),
        (&large, &["--train", "1"]),
        (&whole, &[]),
        (&whole, &["--train", "1", "--batch", "64"]),
    ] {
        let options = [&["--mtu", "1500"], size, more].concat();
        let (there, here) = both(&server, &client, TRAINS, &options)?;
        assert_eq!(there["packets"], here["packets"], "{here}");
        assert_eq!(here["bad_icrc"], 0, "{here}");
        assert!(here["packets"].as_u64() > Some(0) && here["gbits"].as_f64() > Some(0.0), "{here}");
        assert!(here["sent_packets"].as_u64() >= here["packets"].as_u64(), "{here}");
    }
    Ok(())
}

#[tier1]
fn times_are_ordered_and_every_question_is_answered() -> Outcome {
    let (server, client) = cable()?;
    let cases: [(&str, &[&str]); 6] = [
        (PINGPONG, &[]),
        (SOCKETS_PINGPONG, &["--kind", "tcp", "--wait", "spin"]),
        (SOCKETS_PINGPONG, &["--kind", "tcp", "--wait", "block"]),
        (SOCKETS_PINGPONG, &["--kind", "tcp", "--wait", "block-server", "--pause", "100"]),
        (SOCKETS_PINGPONG, &["--kind", "udp", "--wait", "spin"]),
        (SOCKETS_PINGPONG, &["--kind", "udp", "--wait", "block"]),
    ];
    for (program, options) in cases {
        let (there, here) = both(&server, &client, program, options)?;
        assert_eq!(there, here);
        let times: Option<Vec<f64>> = ["min", "p50", "p99", "p999", "max"]
            .map(|name| here[name].as_f64())
            .into_iter()
            .collect();
        let times = times.ok_or_else(|| here.to_string())?;
        assert!(times.is_sorted() && times[0] > 0.0 && here["lost"] == 0, "{here}");
    }
    Ok(())
}

#[tier1]
fn a_raw_ring_of_any_size_goes_round_and_ends_at_all_ranks() -> Outcome {
    for ranks in [2, 3, 4] {
        let network = VirtualNetwork::new()?;
        let hosts: Vec<Host> = (0..ranks)
            .map(|rank| network.host(&format!("rank {rank}")))
            .collect::<Result<_, _>>()?;
        let ends: Vec<_> = hosts.iter().map(|host| (host, "eth0")).collect();
        let _switch = network.bridge(&ends, Link { mtu: 1500 })?;
        let address = |rank: usize| format!("10.0.0.{}", rank + 1);
        for (rank, host) in hosts.iter().enumerate() {
            host.address("eth0", format!("{}/24", address(rank)).parse()?)?;
        }
        let mut others = Vec::new();
        for host in &hosts[1..] {
            others.push(start(host, RAW_ALLREDUCE, &["--listen", "--interface", "eth0"])?);
        }
        let addresses: Vec<String> = (1..ranks).map(address).collect();
        let to: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let options = [&["--interface", "eth0", "--seconds", "0.1", "--to"][..], &to].concat();
        let first = object(start(&hosts[0], RAW_ALLREDUCE, &options)?)?;
        assert!(first["operations"].as_u64() > Some(0), "{first}");
        assert!(first["us"].as_f64() > Some(0.0) && first["ranks"] == ranks, "{first}");
        for other in others {
            assert_eq!(object(other)?, first);
        }
    }
    Ok(())
}

#[tier1]
fn an_exchange_of_any_size_ends_with_the_sums_at_both_ends() -> Outcome {
    let (server, client) = cable_with(4300)?;
    // One packet a train, trains of two lengths, more trains than an end may be ahead.
    for options in [&["--size", "8K"][..], &["--size", "264K"], &["--size", "8M", "--no-icrc"]] {
        let (there, here) = both(&server, &client, EXCHANGE, options)?;
        assert_eq!(there, here);
        assert!(here["operations"].as_u64() > Some(0), "{here}");
        assert!(here["us"].as_f64() > Some(0.0) && here["gbytes"].as_f64() > Some(0.0), "{here}");
    }
    Ok(())
}

#[tier1]
fn small_messages_are_counted_where_they_arrive() -> Outcome {
    let (server, client) = cable()?;
    for options in [&["--kind", "tcp"][..], &["--kind", "tcp", "--nodelay"], &["--kind", "udp"]] {
        let (there, here) = both(&server, &client, SOCKETS_RATE, options)?;
        assert_eq!(there["messages"], here["messages"]);
        assert!(here["messages"].as_u64() > Some(0), "{here}");
        assert!(here["messages"].as_u64() <= here["sent_messages"].as_u64(), "{here}");
    }
    Ok(())
}

#[tier1]
fn an_end_whose_peer_dies_says_so_and_ends() -> Outcome {
    let (server, client) = cable_with(4300)?;
    for (program, raw) in [
        (TRAINS, &["--interface", "eth0", "--payload", "1024"][..]),
        (PINGPONG, &["--interface", "eth0"]),
        (EXCHANGE, &["--interface", "eth0"]),
        (SOCKETS_PINGPONG, &[]),
        (SOCKETS_RATE, &[]),
    ] {
        for listener_dies in [false, true] {
            let there = start(&server, program, &[&["--listen"], raw].concat())?;
            let long = [&["--to", SERVER, "--seconds", "60"], raw].concat();
            let here = start(&client, program, &long)?;
            // The control is over when the listener has gone from its port.
            let met = wait_until(|| server.run(|| !has_listener() && has_connection()));
            if let Err(error) = met {
                let told = [here.end()?, there.end()?];
                return Err(format!("{program}: {error}: {told:?}").into());
            }
            let (victim, survivor) = if listener_dies { (there, here) } else { (here, there) };
            victim.end()?;
            let output = survivor.wait(LIMIT)?;
            let told = output.stderr;
            assert_eq!(output.status.code(), Some(1), "{program}: {told}");
            assert!(told.lines().count() == 1 && told.contains("the other end"), "{told}");
        }
    }
    Ok(())
}

#[tier1]
fn the_server_tells_the_client_why_it_cannot() -> Outcome {
    let (server, client) = cable()?;
    let there = start(&server, TRAINS, &["--listen", "--interface", "eth7"])?;
    let here =
        start(&client, TRAINS, &["--to", SERVER, "--interface", "eth0", "--payload", "1024"])?;
    for end in [here, there] {
        let output = end.wait(LIMIT)?;
        let told = output.stderr;
        assert!(output.status.code() == Some(1) && told.contains("no interface eth7"), "{told}");
    }
    Ok(())
}

fn cable() -> Outcome<(Host, Host)> {
    cable_with(1500)
}

fn cable_with(mtu: u32) -> Outcome<(Host, Host)> {
    let network = VirtualNetwork::new()?;
    let (server, client) = (network.host("server")?, network.host("client")?);
    network.veth((&server, "eth0"), (&client, "eth0"), Link { mtu })?;
    server.address("eth0", format!("{SERVER}/24").parse()?)?;
    client.address("eth0", "10.0.0.2/24".parse()?)?;
    Ok((server, client))
}

/// A short run of both ends with the same options; what the server and the client printed.
fn both(server: &Host, client: &Host, program: &str, options: &[&str]) -> Outcome<(Value, Value)> {
    let is_raw = [TRAINS, PINGPONG, EXCHANGE].contains(&program);
    let interface: &[&str] = if is_raw { &["--interface", "eth0"] } else { &[] };
    let there = start(server, program, &[&["--listen"], interface, options].concat())?;
    let short = ["--to", SERVER, "--seconds", "0.1"];
    let here = start(client, program, &[&short, interface, options].concat())?;
    let here = object(here);
    Ok((object(there)?, here?))
}

fn start(host: &Host, program: &str, options: &[&str]) -> Outcome<Running> {
    Ok(Launch::new(program).args(options).grace(Duration::ZERO).start_in(host)?)
}

/// The one line of JSON that a program prints.
fn object(running: Running) -> Outcome<Value> {
    let outcome = running.wait(LIMIT)?.check()?;
    if outcome.stdout.lines().count() != 1 {
        return Err(outcome.text().into());
    }
    Ok(serde_json::from_str(&outcome.stdout)?)
}

/// Whether a program listens at the programs' port in this thread's namespace.
fn has_listener() -> bool {
    tcp_states().contains(&"0A".to_owned())
}

/// Whether there is a connection at the programs' port in this thread's namespace.
fn has_connection() -> bool {
    tcp_states().contains(&"01".to_owned())
}

/// The states, in the kernel's numbers, of the sockets at the programs' port.
fn tcp_states() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap_or_default();
    let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let at_port = rows.filter(|row| row.get(1).is_some_and(|local| local.ends_with(":BB27")));
    at_port.filter_map(|row| row.get(3).map(|state| (*state).to_owned())).collect()
}

fn wait_until(mut is_so: impl FnMut() -> bool) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        if Instant::now() > deadline {
            return Err("the two ends did not meet".into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// The longest that a program may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
const SERVER: &str = "10.0.0.1";
const TRAINS: &str = env!("CARGO_BIN_EXE_raw_trains");
const PINGPONG: &str = env!("CARGO_BIN_EXE_raw_pingpong");
const RAW_ALLREDUCE: &str = env!("CARGO_BIN_EXE_raw_allreduce");
const EXCHANGE: &str = env!("CARGO_BIN_EXE_raw_exchange");
const SOCKETS_PINGPONG: &str = env!("CARGO_BIN_EXE_sockets_pingpong");
const SOCKETS_RATE: &str = env!("CARGO_BIN_EXE_sockets_rate");
