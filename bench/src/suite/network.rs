//! The networks that benchmarks are played on.

use std::cell::OnceCell;
use std::net::Ipv4Addr;
use std::time::Duration;

use roce_netns::process::{Launch, Running};
use roce_netns::{Host, Link, Switch, VirtualNetwork};

use super::pair;
use crate::mpi::{self, RankHost};

/// What hosts are joined by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Topology {
    /// Two hosts, one cable (veth).
    Cable {
        /// Bytes of the largest IP packet.
        mtu: u32,
    },
    /// Hosts on a switch (bridge).
    Switch {
        /// How many.
        hosts: usize,
        /// Bytes of the largest IP packet.
        mtu: u32,
    },
    /// Two hosts on a switch that loses at random.
    Lossy {
        /// Bytes of the largest IP packet.
        mtu: u32,
        /// One in so many is lost.
        one_in: u32,
        /// One what.
        of: LossOf,
    },
}

/// What gets lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossOf {
    /// Frames as they are carried: with segmentation offload, many packets at once.
    Frames,
    /// Single packets: offload is off at every interface on the way.
    Packets,
}

/// A network that exists; it goes when this does.
#[derive(Debug)]
pub struct Network {
    hosts: Vec<Host>,
    switch: Option<Switch>,
    topology: Topology,
    namespace_holders: OnceCell<Vec<Running>>,
}

impl Network {
    /// Makes the network.
    ///
    /// # Errors
    /// A right, or a program to change interfaces with, is missing; the text says which.
    pub fn make(topology: Topology) -> Result<Self, String> {
        let network = VirtualNetwork::new().map_err(told)?;
        let count = match topology {
            Topology::Switch { hosts, .. } => hosts,
            Topology::Cable { .. } | Topology::Lossy { .. } => 2,
        };
        let name = |number| network.host(&format!("host {number}"));
        let hosts: Vec<Host> = (1..=count).map(name).collect::<Result<_, _>>().map_err(told)?;
        let link = Link { mtu: topology.mtu() };
        let switch = match topology {
            Topology::Cable { .. } => {
                network.veth((&hosts[0], IFNAME), (&hosts[1], IFNAME), link).map_err(told)?;
                None
            }
            Topology::Switch { .. } | Topology::Lossy { .. } => {
                let ends: Vec<_> = hosts.iter().map(|host| (host, IFNAME)).collect();
                Some(network.bridge(&ends, link).map_err(told)?)
            }
        };
        let network = Self { hosts, switch, topology, namespace_holders: OnceCell::new() };
        for (number, host) in network.hosts.iter().enumerate() {
            let address = format!("{}/{PREFIX}", network.address(number));
            let address = address.parse().map_err(|_| format!("{address} is no address"))?;
            host.address(IFNAME, address).map_err(told)?;
        }
        if let Topology::Lossy { one_in, of, .. } = topology {
            network.lose(one_in, of)?;
        }
        Ok(network)
    }

    /// The host of this number, from 0.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn host(&self, number: usize) -> &Host {
        &self.hosts[number]
    }

    /// How many hosts there are.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there is no host, which cannot be.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// A host's address.
    pub fn address(&self, number: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, 0, u8::try_from(number + 1).unwrap_or(u8::MAX))
    }

    /// Bytes of the largest IP packet.
    pub fn mtu(&self) -> u32 {
        self.topology.mtu()
    }

    /// A place for a rank in each host, whose sockets get a congestion control by name; the
    /// processes that hold the places go with the network.
    ///
    /// # Errors
    /// A process could not be started, or the kernel does not know the congestion control.
    pub fn rank_hosts(&self, congestion: &str) -> Result<Vec<RankHost>, String> {
        if self.namespace_holders.get().is_none() {
            let sleep = Launch::new("sleep").arg("infinity");
            let mut all = Vec::new();
            for (number, host) in self.hosts.iter().enumerate() {
                let route = mpi::route_with(congestion, IFNAME, self.address(number), PREFIX);
                run(host, &Launch::from(route))?;
                all.push(pair::start(host, &sleep)?);
            }
            // It was empty above, and no other thread sets it.
            let _ = self.namespace_holders.set(all);
        }
        let all = self.namespace_holders.get().into_iter().flatten().enumerate();
        let rank_host = |(number, namespace_pid): (usize, &Running)| RankHost {
            address: self.address(number),
            namespace_pid: namespace_pid.id(),
        };
        Ok(all.map(rank_host).collect())
    }

    fn lose(&self, one_in: u32, of: LossOf) -> Result<(), String> {
        let Some(switch) = &self.switch else { return Ok(()) };
        if of == LossOf::Packets {
            // A frame is cut where it leaves an interface: at the host, before the switch looks.
            for host in &self.hosts {
                single_packets(host, IFNAME)?;
            }
            for port in 0..self.hosts.len() {
                single_packets(switch.host(), &format!("port{port}"))?;
            }
        }
        let rules = format!(
            "add table bridge loss; \
             add chain bridge loss forward {{ type filter hook forward priority 0; }}; \
             add rule bridge loss forward numgen random mod {one_in} 0 drop"
        );
        run(switch.host(), &Launch::new("nft").args([rules])).map(drop)
    }
}

/// Switches segmentation and merging off at an interface.
fn single_packets(host: &Host, ifname: &str) -> Result<(), String> {
    let off = ["-K", ifname, "tso", "off", "gso", "off", "gro", "off"];
    run(host, &Launch::new("ethtool").args(off))?;
    // Without this the kernel still hands UDP trains through whole; older ones do not know it.
    let _ = run(host, &Launch::new("ethtool").args(["-K", ifname, "tx-udp-segmentation", "off"]));
    Ok(())
}

fn run(host: &Host, launch: &Launch) -> Result<String, String> {
    pair::finish(pair::start(host, launch)?, Duration::from_secs(10))
}

fn told(error: roce_netns::NetnsError) -> String {
    error.to_string()
}

impl Topology {
    /// Bytes of the largest IP packet.
    pub fn mtu(self) -> u32 {
        match self {
            Self::Cable { mtu } | Self::Switch { mtu, .. } | Self::Lossy { mtu, .. } => mtu,
        }
    }

    /// The programs without which it cannot be made.
    pub fn needs(self) -> &'static [&'static str] {
        match self {
            Self::Cable { .. } | Self::Switch { .. } => &[],
            Self::Lossy { of: LossOf::Frames, .. } => &["nft"],
            Self::Lossy { of: LossOf::Packets, .. } => &["nft", "ethtool"],
        }
    }

    /// For people.
    pub fn in_words(self) -> String {
        match self {
            Self::Cable { mtu } => format!("two hosts, one veth pair, MTU {mtu}"),
            Self::Switch { hosts, mtu } => format!("{hosts} hosts on a bridge, MTU {mtu}"),
            Self::Lossy { mtu, one_in, of } => {
                let of = match of {
                    LossOf::Frames => "frames as carried",
                    LossOf::Packets => "packets, segmentation offload off",
                };
                format!("two hosts on a bridge that loses one in {one_in} {of}, MTU {mtu}")
            }
        }
    }
}

/// Bits of the address that all hosts share.
const PREFIX: u32 = 24;
/// The interface, in every host.
pub(crate) const IFNAME: &str = "eth0";

#[cfg(test)]
mod tests {
    use super::{LossOf, Topology};

    #[test]
    fn a_wire_says_what_it_is_and_what_it_needs() {
        let lossy = Topology::Lossy { mtu: 1500, one_in: 100, of: LossOf::Packets };
        assert_eq!(lossy.needs(), ["nft", "ethtool"]);
        assert!(lossy.in_words().contains("one in 100 packets"));
        assert!(Topology::Cable { mtu: 9000 }.needs().is_empty());
    }
}
