//! Routes: the next hop is the kernel's, and follows it.
//!
//! `10.2.0.5` belongs to the right host; the left one reaches it through a gateway. There are two:
//! `10.1.0.11` has the right host's MAC address, at `10.1.0.12` there is nothing.

use roce_test_macros::tier1;
use std::net::IpAddr;
use std::process::Command;

use roce_tests::fixtures::{COMPLETION_TIMEOUT, Cable, TestDevice, device_config};
use roce_tests::ip::{batch, ip, wait_until};
use roce_tests::writer::{Writer, patient_from};
use roce_verbs::{AddressVector, CompletionStatus, Device, DeviceConfig, Gid};

const MTU: u32 = 1500;
const FAR: &str = "10.2.0.5";
const LIVE_GATEWAY: &str = "10.1.0.11";
const DEAD_GATEWAY: &str = "10.1.0.12";
const DEAD_MAC: &str = "02:00:00:00:00:99";

struct Net {
    cable: Cable,
    left: TestDevice,
    right: TestDevice,
}

fn net() -> Net {
    let cable = Cable::with_mtu(MTU);
    ip(&cable.right, &format!("address add {FAR}/32 dev eth0"));
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    Net { cable, left, right }
}

impl Net {
    /// Gives both gateways MAC addresses, so that neither has to answer.
    fn add_gateways(&self) {
        let mac = self.right.device.gid_table().unwrap()[0].gid.ip();
        let IpAddr::V6(link_local) = mac else { panic!("{mac} follows from a MAC address") };
        let o = link_local.octets();
        let mac = format!(
            "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}",
            o[8] ^ 2,
            o[9],
            o[10],
            o[13],
            o[14],
            o[15]
        );
        let neighbour =
            |ip, mac| format!("neighbour add {ip} lladdr {mac} nud permanent dev eth0\n");
        let commands = neighbour(LIVE_GATEWAY, mac.as_str()) + &neighbour(DEAD_GATEWAY, DEAD_MAC);
        batch(&self.cable.left, &commands);
    }

    fn writer(&self, from: &str) -> Writer<'_> {
        let ours = patient_from(&self.left.device, from);
        let theirs = patient_from(&self.right.device, FAR);
        Writer::connect((&self.left, &ours), (&self.right, &theirs), 64)
    }
}

fn assert_that_it_writes(writer: &Writer<'_>, how: &str) {
    let (status, took) = writer.write(64);
    println!("{how}: bound {COMPLETION_TIMEOUT:?}, observed {took:?}");
    assert_eq!(status, CompletionStatus::Success);
}

#[tier1]
fn a_changed_gateway_is_followed_while_requests_wait() {
    let net = net();
    net.add_gateways();
    let left = &net.cable.left;
    ip(left, &format!("route add 10.2.0.0/24 via {DEAD_GATEWAY}"));
    let writer = net.writer("10.1.0.1");
    writer.post(64);
    // It waits for what the dead gateway does not forward; its retries last for eight seconds.
    let sent = || net.left.device.counter("sent_pkts").unwrap();
    wait_until("the request is sent", || sent() > 0);
    assert!(net.left.cq.poll_one().is_none(), "the gateway is dead");
    ip(left, &format!("route replace 10.2.0.0/24 via {LIVE_GATEWAY}"));
    let began = std::time::Instant::now();
    let status = net.left.completion().status;
    println!("a request behind a changed gateway: bound 8.6s, observed {:?}", began.elapsed());
    assert_eq!(status, CompletionStatus::Success);
}

#[tier1]
fn a_route_that_goes_away_stops_the_packets_and_one_that_comes_lets_them_go() {
    let net = net();
    net.add_gateways();
    let left = &net.cable.left;
    ip(left, &format!("route add 10.2.0.0/24 via {LIVE_GATEWAY}"));
    let writer = net.writer("10.1.0.1");
    assert_that_it_writes(&writer, "a WRITE through a gateway");
    ip(left, "route delete 10.2.0.0/24");
    let dropped = || net.left.device.counter("drop_no_route").unwrap();
    // As many as leave before the news is here.
    let mut posted = 0;
    wait_until("a packet finds no route", || {
        if net.left.cq.poll_one().is_some() || posted == 0 {
            writer.post(64);
            posted += 1;
        }
        dropped() > 0
    });
    ip(left, &format!("route add 10.2.0.0/24 via {LIVE_GATEWAY}"));
    assert_eq!(net.left.completion().status, CompletionStatus::Success);
}

#[tier1]
fn an_ipv4_peer_behind_an_ipv6_next_hop_is_reached() {
    let net = net();
    let commands = format!(
        "route add 10.2.0.0/24 via inet6 fd00:1::2 dev eth0\n\
         neighbour add {FAR} lladdr {DEAD_MAC} nud permanent dev eth0\n"
    );
    // The second is for a device that would look for the destination itself on the link.
    batch(&net.cable.left, &commands);
    assert_that_it_writes(&net.writer("10.1.0.1"), "a WRITE over an IPv6 next hop");
}

#[tier1]
fn a_rule_for_the_source_address_chooses_the_route() {
    let net = net();
    net.add_gateways();
    let left = &net.cable.left;
    ip(left, "address add 10.1.0.7/32 dev eth0");
    ip(left, &format!("route add 10.2.0.0/24 via {DEAD_GATEWAY}"));
    ip(left, &format!("route add 10.2.0.0/24 via {LIVE_GATEWAY} dev eth0 table 100"));
    ip(left, "rule add from 10.1.0.7 table 100");
    assert_that_it_writes(&net.writer("10.1.0.7"), "a WRITE from the address with a rule");
    // A rule that comes later is followed, too.
    let writer = net.writer("10.1.0.1");
    let sent = || net.left.device.counter("sent_pkts").unwrap();
    let before = sent();
    writer.post(64);
    wait_until("the request is sent", || sent() > before);
    ip(left, "rule add from 10.1.0.1 table 100");
    assert_eq!(net.left.completion().status, CompletionStatus::Success);
}

/// Set in the process that has no CAP_NET_ADMIN.
const PEER: &str = "ROCE_TEST_LINK_LOCAL_PEER";

#[tier1]
fn a_link_local_peer_is_resolved_without_cap_net_admin() {
    if let Ok(peer) = std::env::var(PEER) {
        let device = Device::open("eth0", device_config()).unwrap();
        let peer: IpAddr = peer.parse().unwrap();
        device.resolve(&AddressVector::new(0, Gid::from(peer))).unwrap();
        return;
    }
    let cable = Cable::with_mtu(MTU);
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let row = || right.device.gid_table().unwrap()[0];
    wait_until("the peer has its link-local address", || row().usable);
    let left = cable.left.run(|| Device::open("eth0", device_config())).unwrap();
    wait_until("the address is there", || left.gid_table().unwrap()[0].usable);
    drop(left);
    ip(&cable.left, "neighbour flush dev eth0");
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact"]);
    command.arg("routes::a_link_local_peer_is_resolved_without_cap_net_admin");
    command.env(PEER, row().gid.ip().to_string());
    let output = cable.left.run(|| command.output()).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    // A name that selects no test would succeed, too.
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}
