//! Virtual networks carry packets and are removed completely (tier 1).

use roce_test_macros::tier1;
use std::error::Error;
use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::net::if_::if_nametoindex;
use roce_netns::process::Launch;
use roce_netns::{Host, Link, NetnsError, VirtualNetwork};

type Outcome = Result<(), Box<dyn Error>>;

/// The longest that a step may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(10);

#[tier1]
fn two_connected_hosts_exchange_datagrams_over_ipv4_and_ipv6() -> Outcome {
    let network = VirtualNetwork::new()?;
    let (left, right) = (network.host("left")?, network.host("right")?);
    network.veth((&left, "eth0"), (&right, "eth0"), Link { mtu: 9000 })?;
    for (host, number) in [(&left, 1), (&right, 2)] {
        host.address("eth0", format!("10.0.0.{number}/24").parse()?)?;
        host.address("eth0", format!("fd00::{number}/64").parse()?)?;
    }
    ping(&left, "10.0.0.1", &right, "10.0.0.2")?;
    ping(&right, "fd00::2", &left, "fd00::1")
}

#[tier1]
fn each_of_three_hosts_on_a_switch_reaches_every_other() -> Outcome {
    let network = VirtualNetwork::new()?;
    let hosts = [network.host("a")?, network.host("b")?, network.host("c")?];
    let switch = network.bridge(&hosts.each_ref().map(|host| (host, "eth0")), Link::default())?;
    let shown_to_iptables = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    if switch.host().run(|| fs::OpenOptions::new().write(true).open(shown_to_iptables)).is_ok() {
        let shown = switch.host().run(|| fs::read_to_string(shown_to_iptables))?;
        assert_eq!(shown.trim(), "0", "a switch forwards frames and nothing else");
    }
    let addresses: Vec<String> = (1..=3).map(|number| format!("10.0.0.{number}")).collect();
    for (host, address) in hosts.iter().zip(&addresses) {
        host.address("eth0", format!("{address}/24").parse()?)?;
    }
    for (from, to) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        ping(&hosts[from], &addresses[from], &hosts[to], &addresses[to])?;
    }
    Ok(())
}

#[tier1]
fn unconnected_hosts_share_neither_addresses_nor_ports() -> Outcome {
    let network = VirtualNetwork::new()?;
    let (left, right) = (network.host("left")?, network.host("right")?);
    let bind = || UdpSocket::bind("127.0.0.1:4791");
    let (_one, _other) = (left.run(bind)?, right.run(bind)?);
    Ok(())
}

#[tier1]
fn a_program_in_a_host_sees_only_its_interfaces() -> Outcome {
    let network = VirtualNetwork::new()?;
    let (left, right) = (network.host("left")?, network.host("right")?);
    network.veth((&left, "only-left"), (&right, "only-right"), Link::default())?;
    let cat = Launch::new("cat").arg("/proc/net/dev").start_in(&left)?;
    let listing = cat.wait(LIMIT)?.check()?.stdout;
    assert!(listing.contains("only-left") && !listing.contains("only-right"), "{listing}");
    Ok(())
}

#[tier1]
fn a_program_with_a_parent_death_signal_runs_as_long_as_the_host() -> Outcome {
    let host = VirtualNetwork::new()?.host("host")?;
    let launch = Launch::new("sh").args(["-c", "echo begun; read nothing"]).with_stdin();
    let running = launch.end_with_parent().start_in(&host)?;
    assert_eq!(running.read_line(LIMIT)?.as_deref(), Some("begun"));
    assert!(!running.has_ended());
    drop(host);
    assert!(running.wait_for_exit(LIMIT).is_some(), "the program outlived its host");
    Ok(())
}

#[tier1]
fn a_host_is_removed_with_its_last_handle_and_its_cables() -> Outcome {
    let network = VirtualNetwork::new()?;
    let (stays, goes) = (network.host("stays")?, network.host("goes")?);
    network.veth((&stays, "eth0"), (&goes, "eth0"), Link::default())?;
    let has_cable = || stays.run(|| if_nametoindex("eth0").is_ok());
    assert!(has_cable());
    let clone = goes.clone();
    drop(goes);
    assert!(has_cable(), "a clone of the handle still holds the host");
    drop(clone);
    // The kernel removes a namespace asynchronously.
    let patience = Instant::now() + Duration::from_secs(10);
    while has_cable() {
        assert!(Instant::now() < patience, "the cable outlived the host at its other end");
    }
    Ok(())
}

#[tier1]
fn a_tap_device_persists_and_has_the_given_mtu() -> Outcome {
    let network = VirtualNetwork::new()?;
    let host = network.host("host")?;
    network.tap(&host, "guest0", Link { mtu: 4200 })?;
    let switch = network.switch("switch", Link { mtu: 4200 })?;
    switch.tap("guest1")?;
    for (host, ifname) in [(&host, "guest0"), (switch.host(), "guest1")] {
        let mut command = Command::new("ip");
        command.args(["link", "show", ifname]).stdout(Stdio::piped());
        let output = host.spawn(command)?.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("mtu 4200") && text.contains(",UP"), "{text}");
    }
    Ok(())
}

#[tier1]
fn a_change_to_a_missing_interface_is_refused_by_name() -> Outcome {
    let host = VirtualNetwork::new()?.host("lonely")?;
    let refusal = host.address("eth7", "10.0.0.1/24".parse()?).unwrap_err();
    assert!(matches!(refusal, NetnsError::Refused { .. }));
    assert_eq!(
        refusal.to_string(),
        "cannot add the address 10.0.0.1/24 to eth7 in host lonely: No such device (os error 19)"
    );
    Ok(())
}

/// Sends a datagram from one host to another and checks it on arrival.
fn ping(from: &Host, source: &str, to: &Host, target: &str) -> Outcome {
    let (source, target): (IpAddr, IpAddr) = (source.parse()?, target.parse()?);
    let receiver = to.run(|| UdpSocket::bind(SocketAddr::new(target, 4791)))?;
    receiver.set_read_timeout(Some(Duration::from_secs(10)))?;
    let sender = from.run(|| UdpSocket::bind(SocketAddr::new(source, 0)))?;
    sender.send_to(b"hello", receiver.local_addr()?)?;
    let mut buffer = [0; 16];
    let (len, peer) = receiver.recv_from(&mut buffer)?;
    assert_eq!((&buffer[..len], peer), (&b"hello"[..], sender.local_addr()?));
    Ok(())
}
