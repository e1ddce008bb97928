//! Hosts around a switch with queues, marks and pauses.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use roce_netns::{Host, IpNet, Link, VirtualNetwork};
use roce_switch::{SoftwareSwitch, SwitchReport, SwitchSettings};

use crate::ip::wait_until;

/// Hosts around a switch: host 0 has `10.1.0.1`, host 1 `10.1.0.2` and so on, on `eth0`. Port *i* of
/// the switch is that of host *i*.
#[derive(Debug)]
pub struct SwitchedNetwork {
    /// The hosts.
    pub hosts: Vec<Host>,
    stop: UnixStream,
    switch: JoinHandle<SwitchReport>,
}

impl SwitchedNetwork {
    /// Connects so many hosts by links of this MTU, and starts to forward.
    ///
    /// # Panics
    /// Without the right to make namespaces: `cargo xtask test` gives it.
    pub fn new(settings: &SwitchSettings, hosts: usize, mtu: u32) -> Self {
        let network = VirtualNetwork::new().expect("tier 1 runs as root or in a user namespace");
        let host = |name: &str| network.host(name).expect("a namespace");
        let centre = host("switch");
        // The kernel would send packets of its own.
        let _ = centre.run(|| fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"));
        let hosts: Vec<_> = (0..hosts).map(|number| host(&format!("host {number}"))).collect();
        let mut ports = Vec::new();
        for (number, host) in hosts.iter().enumerate() {
            let port = format!("port{number}");
            network.veth((&centre, &port), (host, "eth0"), Link { mtu }).expect("a veth pair");
            host.run(|| roce_io::disable_transmit_offload("eth0")).expect("a veth has ethtool");
            let address: IpNet = format!("10.1.0.{}/24", number + 1).parse().expect("an address");
            host.address("eth0", address).expect("an address on eth0");
            ports.push(port);
        }
        for host in &hosts {
            let is_running = || {
                let interfaces = host.run(roce_io::interfaces).expect("interfaces are listed");
                interfaces.iter().any(|it| it.name == "eth0" && it.flags.running)
            };
            wait_until("the link is up", is_running);
        }
        let mut switch =
            centre.run(|| SoftwareSwitch::open(settings, &ports)).expect("the switch opens");
        let (stop, stopped) = UnixStream::pair().expect("a socket pair");
        let switch = std::thread::spawn(move || {
            switch.run_until_readable(stopped.as_fd()).expect("the switch waits");
            // Its interfaces exist until here.
            drop(centre);
            switch.report()
        });
        Self { hosts, stop, switch }
    }

    /// Stops the switch and returns what it has done.
    ///
    /// # Panics
    /// When it has panicked.
    pub fn stop(self) -> SwitchReport {
        drop(self.stop);
        self.switch.join().expect("the switch ends")
    }
}
