//! Hosts, switches and links of a fabric, and the shortest paths between them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Hosts, switches and links of a fabric.
///
/// Hosts and switches are nodes with one numbering, in the order of their creation. Frames name
/// hosts by their index among the hosts.
///
/// ```
/// use roce_fabric::Topology;
/// use std::time::Duration;
///
/// let two_tier = Topology::leaf_spine(4, 2, 8, 100_000_000_000, Duration::from_micros(1));
/// assert_eq!(two_tier.hosts().len(), 32);
/// assert_eq!(two_tier.links().len(), 4 * 2 + 32);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Topology {
    is_switch: Vec<bool>,
    hosts: Vec<usize>,
    links: Vec<TopologyLink>,
    fixed: BTreeMap<(usize, usize), usize>,
}

/// A link of a [`Topology`], full duplex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologyLink {
    /// Nodes at its ends.
    pub ends: [usize; 2],
    /// Bits per second of each direction, at least 1.
    pub bits_per_sec: u64,
    /// Propagation delay.
    pub delay: Duration,
}

impl Topology {
    /// Creates a topology without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a host. Returns its node.
    pub fn add_host(&mut self) -> usize {
        self.hosts.push(self.is_switch.len());
        self.is_switch.push(false);
        self.is_switch.len() - 1
    }

    /// Adds a switch. Returns its node.
    pub fn add_switch(&mut self) -> usize {
        self.is_switch.push(true);
        self.is_switch.len() - 1
    }

    /// Adds a link. A host sends by its first link only.
    ///
    /// # Panics
    /// If a node does not exist.
    pub fn connect(&mut self, a: usize, b: usize, bits_per_sec: u64, delay: Duration) -> usize {
        assert!(a.max(b) < self.is_switch.len(), "a link needs two existing nodes");
        self.links.push(TopologyLink { ends: [a, b], bits_per_sec: bits_per_sec.max(1), delay });
        self.links.len() - 1
    }

    /// Adds so many hosts, each with a link to a switch.
    fn add_hosts(&mut self, switch: usize, count: usize, bits_per_sec: u64, delay: Duration) {
        for _ in 0..count {
            let host = self.add_host();
            self.connect(switch, host, bits_per_sec, delay);
        }
    }

    /// Makes frames for a host leave `switch` by `link` instead of a shortest path.
    pub fn fix_route(&mut self, switch: usize, host: usize, link: usize) {
        self.fixed.insert((switch, host), link);
    }

    /// Creates `pairs` senders and as many receivers behind two switches with one link between
    /// them. Senders are the first hosts.
    pub fn dumbbell(pairs: usize, bits_per_sec: u64, delay: Duration) -> Self {
        let mut it = Self::new();
        let switches = [it.add_switch(), it.add_switch()];
        it.connect(switches[0], switches[1], bits_per_sec, delay);
        for switch in switches {
            it.add_hosts(switch, pairs, bits_per_sec, delay);
        }
        it
    }

    /// Creates hosts around one switch.
    pub fn star(hosts: usize, bits_per_sec: u64, delay: Duration) -> Self {
        let mut it = Self::new();
        let switch = it.add_switch();
        it.add_hosts(switch, hosts, bits_per_sec, delay);
        it
    }

    /// Creates leaves with hosts, each leaf with a link to every spine; all links have one rate.
    pub fn leaf_spine(
        leaves: usize,
        spines: usize,
        hosts_per_leaf: usize,
        bits_per_sec: u64,
        delay: Duration,
    ) -> Self {
        let mut it = Self::new();
        let leaves: Vec<_> = (0..leaves).map(|_| it.add_switch()).collect();
        let spines: Vec<_> = (0..spines).map(|_| it.add_switch()).collect();
        for leaf in &leaves {
            for spine in &spines {
                it.connect(*leaf, *spine, bits_per_sec, delay);
            }
        }
        for leaf in leaves {
            it.add_hosts(leaf, hosts_per_leaf, bits_per_sec, delay);
        }
        it
    }

    /// Creates a ring of switches with hosts, in which frames travel in one direction only: a
    /// cycle of buffers that wait for each other.
    pub fn switch_ring(
        switches: usize,
        hosts_per_switch: usize,
        bits_per_sec: u64,
        delay: Duration,
    ) -> Self {
        let mut it = Self::new();
        let ring: Vec<_> = (0..switches).map(|_| it.add_switch()).collect();
        let links: Vec<_> = (0..switches)
            .map(|i| it.connect(ring[i], ring[(i + 1) % switches], bits_per_sec, delay))
            .collect();
        for at in 0..switches {
            for _ in 0..hosts_per_switch {
                let host = it.add_host();
                it.connect(ring[at], host, bits_per_sec, delay);
                let index = it.hosts.len() - 1;
                for other in (0..switches).filter(|other| *other != at) {
                    it.fix_route(ring[other], index, links[other]);
                }
            }
        }
        it
    }

    /// Returns the nodes of the hosts, by index.
    pub fn hosts(&self) -> &[usize] {
        &self.hosts
    }

    /// Returns the links.
    pub fn links(&self) -> &[TopologyLink] {
        &self.links
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.is_switch.len()
    }

    /// Returns true if the node is a switch.
    pub fn is_switch(&self, node: usize) -> bool {
        self.is_switch[node]
    }

    /// Returns for each node and host the links of all shortest paths, over links that are up.
    pub(crate) fn routes(&self, up: &[bool]) -> Vec<Vec<Vec<usize>>> {
        let mut neighbours = vec![Vec::new(); self.nodes()];
        for (id, link) in self.links.iter().enumerate().filter(|(id, _)| up[*id]) {
            neighbours[link.ends[0]].push((link.ends[1], id));
            neighbours[link.ends[1]].push((link.ends[0], id));
        }
        let mut routes = vec![vec![Vec::new(); self.hosts.len()]; self.nodes()];
        for (host, start) in self.hosts.iter().enumerate() {
            let mut distance = vec![usize::MAX; self.nodes()];
            distance[*start] = 0;
            let mut queue = VecDeque::from([*start]);
            while let Some(node) = queue.pop_front() {
                for (next, link) in &neighbours[node] {
                    if distance[*next] == usize::MAX {
                        distance[*next] = distance[node] + 1;
                        // A host forwards nothing.
                        if self.is_switch[*next] {
                            queue.push_back(*next);
                        }
                    }
                    if distance[*next] == distance[node] + 1 {
                        routes[*next][host].push(*link);
                    }
                }
            }
        }
        for ((switch, host), link) in &self.fixed {
            if up[*link] {
                routes[*switch][*host] = vec![*link];
            }
        }
        routes
    }
}
