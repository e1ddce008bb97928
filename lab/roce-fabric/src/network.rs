//! Hosts, switches, the links between them, and the clock that moves frames along.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

use crate::link::Direction;
use crate::{Fate, Impairment, Instant, LinkConfig};

/// A host or a switch of one [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(usize);

/// A link of one [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(usize);

/// A frame that reached a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When its last bit came in.
    pub at: Instant,
    /// The frame, after impairment.
    pub bytes: Bytes,
}

/// What became of the frames, over all links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Frames handed to [`Network::send`].
    pub sent: u64,
    /// Frames put into a host's inbox.
    pub delivered: u64,
    /// Lost to [`Fate::Drop`].
    pub dropped: u64,
    /// Copies made by [`Fate::Duplicate`].
    pub duplicated: u64,
    /// Held up by [`Fate::Delay`].
    pub delayed: u64,
    /// Changed by [`Fate::Corrupt`].
    pub corrupted: u64,
    /// Marked by [`Fate::Mark`].
    pub marked: u64,
    /// Lost because a queue was full.
    pub overflowed: u64,
    /// Lost because there was no link to leave by.
    pub unlinked: u64,
}

/// A network and its clock.
///
/// Events at the same instant happen in the order in which they were caused, so frames on one
/// link never overtake each other unless impairment delays one.
///
/// # Example: three hosts and a switch
/// A switch forwards by the frame's first six bytes, from a table that the test writes; an
/// address that is not in the table goes to every other port.
/// ```
/// use roce_fabric::{LinkConfig, Network, Instant};
///
/// let mut network = Network::new();
/// let switch = network.add_switch();
/// let hosts = [network.add_host(), network.add_host(), network.add_host()];
/// for (i, host) in hosts.into_iter().enumerate() {
///     let link = network.connect(switch, host, LinkConfig::default());
///     network.set_route(switch, [0, 0, 0, 0, 0, i as u8], link);
/// }
/// network.send(hosts[0], vec![0, 0, 0, 0, 0, 2, b'!']);
/// while let Some(next) = network.next_event() {
///     network.advance_to(next);
/// }
/// assert_eq!(network.receive(hosts[1]), None);
/// assert_eq!(network.receive(hosts[2]).unwrap().at, Instant::from_nanos(2_000));
/// ```
#[derive(Debug, Default)]
pub struct Network {
    now: u64,
    nodes: Vec<Node>,
    links: Vec<Link>,
    /// Frames on their way, by arrival and then by cause: the frame that left first arrives first.
    flights: BTreeMap<(Instant, u64), Flight>,
    causes: u64,
    stats: NetworkStats,
}

#[derive(Debug)]
struct Node {
    links: Vec<LinkId>,
    role: Role,
}

#[derive(Debug)]
enum Role {
    Host { inbox: VecDeque<Arrival> },
    Switch { routes: BTreeMap<[u8; 6], LinkId> },
}

#[derive(Debug)]
struct Link {
    ends: [NodeId; 2],
    /// `directions[i]` leads away from `ends[i]`.
    directions: [Direction; 2],
}

#[derive(Debug)]
struct Flight {
    link: LinkId,
    to: NodeId,
    bytes: Bytes,
}

impl Network {
    /// An empty network at [`Instant::START`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a host: a node that sends and receives frames.
    pub fn add_host(&mut self) -> NodeId {
        self.add(Role::Host { inbox: VecDeque::new() })
    }

    /// Adds a switch with an empty table.
    pub fn add_switch(&mut self) -> NodeId {
        self.add(Role::Switch { routes: BTreeMap::new() })
    }

    /// Lays a link between two nodes. A host sends by its first link only.
    ///
    /// # Panics
    /// When a node is not of this network.
    pub fn connect(&mut self, a: NodeId, b: NodeId, config: LinkConfig) -> LinkId {
        let id = LinkId(self.links.len());
        self.links.push(Link {
            ends: [a, b],
            directions: [Direction::new(config), Direction::new(config)],
        });
        self.nodes[a.0].links.push(id);
        if a != b {
            self.nodes[b.0].links.push(id);
        }
        id
    }

    /// From now on frames for `address` leave `switch` by `link`.
    ///
    /// # Panics
    /// When `switch` is no switch of this network.
    pub fn set_route(&mut self, switch: NodeId, address: [u8; 6], link: LinkId) {
        let Role::Switch { routes } = &mut self.nodes[switch.0].role else {
            panic!("node {} is a host; only a switch has routes", switch.0)
        };
        routes.insert(address, link);
    }

    /// From now on frames that leave `from` by `link` meet these fates.
    ///
    /// # Panics
    /// When `from` is not an end of `link`.
    pub fn set_impairment(&mut self, link: LinkId, from: NodeId, impairment: Impairment) {
        self.direction(link, from).impairment = impairment;
    }

    /// Hands a frame to a host's link, now. The network shares the bytes with the caller and
    /// copies them only to corrupt them.
    ///
    /// # Panics
    /// When `host` is no host of this network.
    pub fn send(&mut self, host: NodeId, bytes: impl Into<Bytes>) {
        assert!(matches!(self.nodes[host.0].role, Role::Host { .. }), "only hosts send");
        self.stats.sent += 1;
        match self.nodes[host.0].links.first() {
            Some(&link) => self.launch(link, host, bytes.into()),
            None => self.stats.unlinked += 1,
        }
    }

    /// Moves the clock to `time` and every frame as far as it gets by then. A `time` in the
    /// past changes nothing.
    pub fn advance_to(&mut self, time: Instant) {
        while let Some(next) = self.flights.first_entry() {
            let (at, _) = *next.key();
            if at > time {
                break;
            }
            let flight = next.remove();
            self.now = self.now.max(at.as_nanos());
            self.land(flight);
        }
        self.now = self.now.max(time.as_nanos());
    }

    /// The oldest frame that has arrived at `host` and was not taken yet.
    ///
    /// # Panics
    /// When `host` is no host of this network.
    pub fn receive(&mut self, host: NodeId) -> Option<Arrival> {
        let Role::Host { inbox } = &mut self.nodes[host.0].role else {
            panic!("node {} is a switch; only a host receives", host.0)
        };
        inbox.pop_front()
    }

    /// The virtual now.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// When the next frame reaches its next node; `None` when nothing is on its way.
    pub fn next_event(&self) -> Option<Instant> {
        self.flights.first_key_value().map(|((at, _), _)| *at)
    }

    /// How many frames are on their way.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// What became of the frames so far.
    pub fn stats(&self) -> NetworkStats {
        self.stats
    }

    fn add(&mut self, role: Role) -> NodeId {
        self.nodes.push(Node { links: Vec::new(), role });
        NodeId(self.nodes.len() - 1)
    }

    fn direction(&mut self, link: LinkId, from: NodeId) -> &mut Direction {
        let link = &mut self.links[link.0];
        let end = link.ends.iter().position(|end| *end == from);
        &mut link.directions[end.expect("`from` is an end of the link")]
    }

    /// One frame enters one direction of one link: impairment, queue, rate, latency.
    fn launch(&mut self, link: LinkId, from: NodeId, mut bytes: Bytes) {
        let now = self.now();
        let to = {
            let [a, b] = self.links[link.0].ends;
            if from == a { b } else { a }
        };
        let direction = self.direction(link, from);
        let fate = direction.impairment.next_fate(&bytes);
        if fate == Fate::Drop {
            self.stats.dropped += 1;
            return;
        }
        let Some(mut at) = direction.admit(now, bytes.len()) else {
            self.stats.overflowed += 1;
            return;
        };
        match fate {
            Fate::Pass | Fate::Drop => {}
            Fate::Delay(lag) => {
                self.stats.delayed += 1;
                at += lag;
            }
            Fate::Corrupt { bit } => {
                if !bytes.is_empty() {
                    self.stats.corrupted += 1;
                    let bit = bit % (bytes.len() * 8);
                    let mut corrupted = BytesMut::from(bytes);
                    corrupted[bit / 8] ^= 0x80 >> (bit % 8);
                    bytes = corrupted.freeze();
                }
            }
            Fate::Mark => {
                let mut marked = BytesMut::from(bytes);
                self.stats.marked += u64::from(roce_wire::mark_congestion(&mut marked));
                bytes = marked.freeze();
            }
            Fate::Duplicate(lag) => {
                self.stats.duplicated += 1;
                let copy = Flight { link, to, bytes: bytes.clone() };
                self.depart(at, Flight { link, to, bytes });
                self.depart(at + lag, copy);
                return;
            }
        }
        self.depart(at, Flight { link, to, bytes });
    }

    fn depart(&mut self, arrives: Instant, flight: Flight) {
        self.causes += 1;
        self.flights.insert((arrives, self.causes), flight);
    }

    fn land(&mut self, flight: Flight) {
        let at = self.now();
        let Flight { link, to, bytes } = flight;
        let node = &mut self.nodes[to.0];
        match &mut node.role {
            Role::Host { inbox } => {
                self.stats.delivered += 1;
                inbox.push_back(Arrival { at, bytes });
            }
            Role::Switch { routes } => {
                let out = bytes.first_chunk::<6>().and_then(|address| routes.get(address));
                match out.copied() {
                    // Back where it came from: a real switch filters that too.
                    Some(out) if out == link => self.stats.unlinked += 1,
                    Some(out) => self.launch(out, to, bytes),
                    None => {
                        let others: Vec<_> =
                            node.links.iter().copied().filter(|other| *other != link).collect();
                        for out in others {
                            self.launch(out, to, bytes.clone());
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ImpairmentRates;
    use std::time::Duration;

    fn pair(config: LinkConfig) -> (Network, NodeId, NodeId, LinkId) {
        let mut network = Network::new();
        let (a, b) = (network.add_host(), network.add_host());
        let link = network.connect(a, b, config);
        (network, a, b, link)
    }

    fn run(network: &mut Network, host: NodeId) -> Vec<Arrival> {
        while let Some(next) = network.next_event() {
            network.advance_to(next);
        }
        std::iter::from_fn(|| network.receive(host)).collect()
    }

    fn first_bytes(arrivals: &[Arrival]) -> Vec<u8> {
        arrivals.iter().map(|arrival| arrival.bytes[0]).collect()
    }

    #[test]
    fn without_misfortune_frames_arrive_intact_in_order_after_the_latency() {
        let (mut network, a, b, _) = pair(LinkConfig::with_latency(Duration::from_nanos(70)));
        for i in 0..10 {
            network.send(a, vec![i; 9]);
        }
        let arrivals = run(&mut network, b);
        assert_eq!(first_bytes(&arrivals), (0..10).collect::<Vec<_>>());
        assert!(arrivals.iter().all(|it| it.at == Instant::from_nanos(70) && it.bytes.len() == 9));
    }

    #[test]
    fn a_script_is_followed_frame_by_frame() {
        let (mut network, a, b, link) = pair(LinkConfig::default());
        let lag = Duration::from_micros(5);
        let script = [
            Fate::Drop,
            Fate::Duplicate(lag),
            Fate::Delay(lag * 2),
            Fate::Corrupt { bit: 9 },
            Fate::Pass,
        ];
        network.set_impairment(link, a, Impairment::scripted(script));
        for i in 0..5 {
            network.send(a, vec![i, 0]);
        }
        let arrivals = run(&mut network, b);
        assert_eq!(first_bytes(&arrivals), [1, 3, 4, 1, 2]);
        assert_eq!(arrivals[1].bytes[..], [3, 0b0100_0000]);
        assert_eq!(arrivals[4].at, Instant::from_nanos(11_000));
        let expected = NetworkStats {
            sent: 5,
            delivered: 5,
            dropped: 1,
            duplicated: 1,
            delayed: 1,
            corrupted: 1,
            ..NetworkStats::default()
        };
        assert_eq!(network.stats(), expected);
    }

    #[test]
    fn misfortune_in_one_direction_leaves_the_other_alone() {
        let (mut network, a, b, link) = pair(LinkConfig::default());
        network.set_impairment(link, a, Impairment::scripted([Fate::Drop]));
        network.send(a, vec![1]);
        network.send(b, vec![2]);
        assert_eq!(first_bytes(&run(&mut network, a)), [2]);
        assert_eq!(network.receive(b), None);
    }

    #[test]
    fn the_same_seed_gives_the_same_run_byte_for_byte() {
        let rates = ImpairmentRates {
            drop: 0.1,
            duplicate: 0.1,
            delay: 0.2,
            corrupt: 0.1,
            mark: 0.0,
            max_delay: Duration::from_micros(50),
        };
        let run_seed = |seed| {
            let (mut network, a, b, link) = pair(LinkConfig::default());
            network.set_impairment(link, a, Impairment::random(seed, rates));
            for i in 0..200 {
                network.send(a, vec![i; 40]);
            }
            run(&mut network, b)
        };
        assert_eq!(run_seed(1), run_seed(1));
        assert_ne!(run_seed(1), run_seed(2));
    }

    #[test]
    fn a_full_queue_loses_the_frames_behind_it_and_counts_them() {
        let slow = LinkConfig { bits_per_sec: Some(1_000), queue_frames: 3, ..Default::default() };
        let (mut network, a, b, _) = pair(slow);
        for i in 0..5 {
            network.send(a, vec![i]);
        }
        assert_eq!(first_bytes(&run(&mut network, b)), [0, 1, 2]);
        assert_eq!(network.stats().overflowed, 2);
    }

    #[test]
    fn a_switch_floods_what_it_does_not_know_but_never_back() {
        let mut network = Network::new();
        let switch = network.add_switch();
        let hosts: Vec<_> = (0..3).map(|_| network.add_host()).collect();
        for host in &hosts {
            network.connect(switch, *host, LinkConfig::default());
        }
        network.send(hosts[1], vec![0xff; 6]);
        let seen: Vec<_> = hosts.iter().map(|host| run(&mut network, *host).len()).collect();
        assert_eq!(seen, [1, 0, 1]);
    }

    #[test]
    fn a_switch_never_sends_a_frame_back_where_it_came_from() {
        let mut network = Network::new();
        let switch = network.add_switch();
        let host = network.add_host();
        let link = network.connect(switch, host, LinkConfig::default());
        network.set_route(switch, [7; 6], link);
        network.send(host, vec![7; 6]);
        assert_eq!(run(&mut network, host), []);
        assert_eq!(network.stats().unlinked, 1);
    }

    #[test]
    fn the_clock_never_goes_back_and_a_frame_never_arrives_before_its_time() {
        let (mut network, a, b, _) = pair(LinkConfig::with_latency(Duration::from_nanos(10)));
        network.advance_to(Instant::from_nanos(100));
        network.advance_to(Instant::from_nanos(50));
        assert_eq!(network.now(), Instant::from_nanos(100));
        network.send(a, vec![1]);
        network.advance_to(Instant::from_nanos(109));
        assert_eq!(network.receive(b), None);
        network.advance_to(Instant::from_nanos(110));
        assert_eq!(network.receive(b).map(|arrival| arrival.at), Some(Instant::from_nanos(110)));
    }

    #[test]
    fn a_host_without_a_link_loses_what_it_sends() {
        let mut network = Network::new();
        let alone = network.add_host();
        network.send(alone, vec![1]);
        assert_eq!((network.next_event(), network.stats().unlinked), (None, 1));
    }
}
