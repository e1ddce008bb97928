use super::tracked_flow::{MAX_RESOLUTION, RETRY_INTERVAL};
use std::io;
use std::time::Duration;

use roce_wire::MacAddr;

use super::*;
use crate::kernel::Solicitation;
use crate::route::{InterfaceRoute, Neighbour, NextHop, RouteError};

const GATEWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 254));
const OTHER_GATEWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 253));
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OTHER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn valid(mac: MacAddr) -> Neighbour {
    Neighbour::Valid { mac, is_stale: false }
}

fn flow(last: u8) -> Flow {
    let address = |last| IpAddr::from([10, 0, 0, last]);
    Flow { source: address(1), destination: address(last), traffic_class: 0 }
}

/// A kernel whose tables the test writes.
struct Tables {
    /// `None`: every destination is on the link.
    route: Option<Option<InterfaceRoute>>,
    neighbours: HashMap<IpAddr, Neighbour>,
    /// What a solicitation makes of an entry; `None`: it has no effect and is not confirmed.
    after_solicitation: Option<Neighbour>,
    is_link_up: bool,
    solicited: Vec<IpAddr>,
    queries: usize,
}

impl Tables {
    fn new() -> Self {
        Self {
            route: None,
            neighbours: HashMap::new(),
            after_solicitation: Some(Neighbour::Incomplete),
            is_link_up: true,
            solicited: Vec::new(),
            queries: 0,
        }
    }
}

impl Kernel for Tables {
    fn route(&mut self, flow: &Flow) -> io::Result<Option<InterfaceRoute>> {
        self.queries += 1;
        Ok(self.route.unwrap_or(Some(InterfaceRoute::Via(flow.destination))))
    }

    fn neighbour(&mut self, address: IpAddr) -> io::Result<Neighbour> {
        self.queries += 1;
        Ok(self.neighbours.get(&address).copied().unwrap_or(Neighbour::Unknown))
    }

    fn solicit(&mut self, _: &Flow, next_hop: IpAddr) -> Solicitation {
        self.queries += 1;
        if !self.is_link_up {
            return Solicitation::LinkDown;
        }
        self.solicited.push(next_hop);
        let Some(entry) = self.after_solicitation else { return Solicitation::Asked };
        let before = self.neighbours.entry(next_hop).or_insert(entry);
        if !matches!(before, Neighbour::Valid { .. }) {
            *before = entry;
        }
        Solicitation::Begun
    }
}

/// A resolver, its kernel, and the outcomes.
struct Rig {
    resolver: Resolver,
    kernel: Tables,
    now: Instant,
    outcomes: HashMap<Flow, Outcome>,
}

impl Rig {
    fn new() -> Self {
        let (resolver, kernel) = (Resolver::new("eth0"), Tables::new());
        Self { resolver, kernel, now: Instant::from_nanos(1), outcomes: HashMap::new() }
    }

    fn look_up(&mut self, flow: Flow) -> (Arc<Flow>, Option<Outcome>) {
        self.resolver.look_up(flow, self.now, &mut self.kernel, &mut self.outcomes)
    }

    /// Changes an entry of the kernel, which notifies.
    fn neighbour(&mut self, address: IpAddr, entry: Neighbour) {
        self.kernel.neighbours.insert(address, entry);
        let changed = BTreeSet::from([address]);
        self.resolver.on_neighbours(&changed, self.now, &mut self.kernel, &mut self.outcomes);
    }

    fn route(&mut self, route: Option<InterfaceRoute>) {
        self.kernel.route = Some(route);
        self.resolver.on_routes(self.now, &mut self.kernel, &mut self.outcomes);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.resolver.on_timeout(self.now, &mut self.kernel, &mut self.outcomes);
    }

    fn outcome(&mut self, flow: Flow) -> Option<Outcome> {
        self.outcomes.remove(&flow)
    }
}

fn is_no_neighbour(outcome: &Option<Outcome>) -> bool {
    matches!(outcome, Some(Err(RouteError::NoNeighbour { .. })))
}

fn is_found(outcome: &Option<Outcome>, mac: MacAddr) -> bool {
    matches!(outcome, Some(Ok(NextHop::Neighbour(found))) if *found == mac)
}

#[test]
fn a_neighbour_that_the_kernel_knows_is_found_at_once() {
    let mut rig = Rig::new();
    rig.kernel.neighbours.insert(flow(2).destination, valid(MAC));
    assert!(is_found(&rig.look_up(flow(2)).1, MAC));
    assert!(rig.kernel.solicited.is_empty());
}

#[test]
fn a_stale_neighbour_is_used_at_once_and_verified() {
    let mut rig = Rig::new();
    let stale = Neighbour::Valid { mac: MAC, is_stale: true };
    rig.kernel.neighbours.insert(flow(2).destination, stale);
    assert!(is_found(&rig.look_up(flow(2)).1, MAC));
    assert_eq!(rig.kernel.solicited, [flow(2).destination]);
}

#[test]
fn a_neighbour_that_fails_fails_the_resolution_at_once() {
    let mut rig = Rig::new();
    let (_used, outcome) = rig.look_up(flow(2));
    assert!(outcome.is_none());
    rig.neighbour(flow(2).destination, Neighbour::Failed);
    assert!(is_no_neighbour(&rig.outcome(flow(2))));
}

#[test]
fn an_entry_that_failed_earlier_does_not_fail_the_resolution() {
    for confirms in [true, false] {
        let mut rig = Rig::new();
        if !confirms {
            rig.kernel.after_solicitation = None;
        }
        rig.kernel.neighbours.insert(flow(2).destination, Neighbour::Failed);
        let (_used, outcome) = rig.look_up(flow(2));
        assert!(outcome.is_none());
        if !confirms {
            // The kernel notifies of another change of the entry before it sends a solicitation.
            rig.neighbour(flow(2).destination, Neighbour::Failed);
            assert!(rig.outcome(flow(2)).is_none());
            rig.neighbour(flow(2).destination, Neighbour::Incomplete);
        }
        rig.neighbour(flow(2).destination, valid(MAC));
        assert!(is_found(&rig.outcome(flow(2)), MAC));
    }
}

#[test]
fn a_kernel_that_fails_at_the_solicitation_fails_the_resolution() {
    let mut rig = Rig::new();
    rig.kernel.after_solicitation = Some(Neighbour::Failed);
    assert!(is_no_neighbour(&rig.look_up(flow(2)).1));
}

#[test]
fn a_resolution_without_an_outcome_fails_at_its_deadline() {
    let mut rig = Rig::new();
    rig.kernel.after_solicitation = None;
    let (_used, outcome) = rig.look_up(flow(2));
    assert!(outcome.is_none());
    assert_eq!(rig.resolver.poll_timeout(), Some(rig.now + MAX_RESOLUTION));
    rig.pass(MAX_RESOLUTION - Duration::from_nanos(1));
    assert!(rig.outcome(flow(2)).is_none());
    rig.pass(Duration::from_nanos(1));
    assert!(is_no_neighbour(&rig.outcome(flow(2))));
}

#[test]
fn dead_peers_do_not_delay_a_live_one() {
    let mut rig = Rig::new();
    let dead: Vec<_> = (2..5).map(|last| rig.look_up(flow(last))).collect();
    assert!(dead.iter().all(|(_, outcome)| outcome.is_none()));
    rig.kernel.neighbours.insert(flow(9).destination, valid(MAC));
    assert!(is_found(&rig.look_up(flow(9)).1, MAC));
}

#[test]
fn a_changed_gateway_and_a_changed_mac_are_followed() {
    let mut rig = Rig::new();
    rig.kernel.neighbours.insert(GATEWAY, valid(MAC));
    rig.kernel.route = Some(Some(InterfaceRoute::Via(GATEWAY)));
    let (_used, outcome) = rig.look_up(flow(2));
    assert!(is_found(&outcome, MAC));
    rig.route(Some(InterfaceRoute::Via(OTHER_GATEWAY)));
    assert!(rig.outcome(flow(2)).is_none(), "the new gateway is not resolved yet");
    rig.neighbour(OTHER_GATEWAY, valid(OTHER_MAC));
    assert!(is_found(&rig.outcome(flow(2)), OTHER_MAC));
    rig.neighbour(OTHER_GATEWAY, valid(MAC));
    assert!(is_found(&rig.outcome(flow(2)), MAC));
}

#[test]
fn a_route_that_goes_and_comes_back_is_followed() {
    let mut rig = Rig::new();
    rig.kernel.neighbours.insert(flow(2).destination, valid(MAC));
    let (_used, outcome) = rig.look_up(flow(2));
    assert!(is_found(&outcome, MAC));
    rig.route(None);
    assert!(matches!(rig.outcome(flow(2)), Some(Err(RouteError::NoRoute { .. }))));
    rig.route(Some(InterfaceRoute::Via(flow(2).destination)));
    assert!(is_found(&rig.outcome(flow(2)), MAC));
    rig.route(Some(InterfaceRoute::ThisHost));
    assert!(matches!(rig.outcome(flow(2)), Some(Ok(NextHop::ThisHost))));
}

#[test]
fn the_entry_of_a_next_hop_in_use_is_kept_alive() {
    let mut rig = Rig::new();
    rig.kernel.neighbours.insert(flow(2).destination, valid(MAC));
    let (used, _) = rig.look_up(flow(2));
    rig.neighbour(flow(2).destination, Neighbour::Unknown);
    assert_eq!(rig.kernel.solicited, [flow(2).destination]);
    // It does not reply: after a backoff it is solicited again.
    rig.neighbour(flow(2).destination, Neighbour::Failed);
    assert!(is_no_neighbour(&rig.outcome(flow(2))));
    rig.neighbour(flow(2).destination, Neighbour::Unknown);
    assert_eq!(rig.kernel.solicited.len(), 1);
    rig.pass(RETRY_INTERVAL);
    assert_eq!(rig.kernel.solicited.len(), 2);
    drop(used);
    rig.pass(MAX_RESOLUTION);
    assert_eq!(rig.resolver.poll_timeout(), None, "a flow without users is removed");
}

#[test]
fn a_neighbour_that_went_with_its_link_is_solicited_once_the_link_is_there_again() {
    for (entry, has_route) in
        [(Neighbour::Unknown, false), (Neighbour::Unknown, true), (Neighbour::Failed, true)]
    {
        let mut rig = Rig::new();
        let peer = flow(2).destination;
        rig.kernel.neighbours.insert(peer, valid(MAC));
        let (_used, _) = rig.look_up(flow(2));
        rig.kernel.is_link_up = false;
        if !has_route {
            rig.kernel.route = Some(None);
        }
        // The kernel reports the neighbour before the route.
        rig.neighbour(peer, entry);
        assert!(rig.kernel.solicited.is_empty());
        let told = rig.outcome(flow(2));
        assert_eq!(matches!(told, Some(Err(RouteError::NoRoute { .. }))), !has_route, "{told:?}");
        rig.kernel.is_link_up = true;
        rig.route(Some(InterfaceRoute::Via(peer)));
        assert_eq!(rig.kernel.solicited, [peer], "{entry:?}, route: {has_route}");
        rig.neighbour(peer, valid(OTHER_MAC));
        assert!(is_found(&rig.outcome(flow(2)), OTHER_MAC));
    }
}

#[test]
fn a_caller_does_not_wait_for_the_backoff_of_an_earlier_resolution() {
    let mut rig = Rig::new();
    let (_used, _) = rig.look_up(flow(2));
    rig.neighbour(flow(2).destination, Neighbour::Failed);
    assert!(is_no_neighbour(&rig.outcome(flow(2))));
    rig.kernel.after_solicitation = Some(valid(MAC));
    let (_also_used, outcome) = rig.look_up(flow(2));
    assert!(outcome.is_none() && is_found(&rig.outcome(flow(2)), MAC));
}

#[test]
fn all_users_of_a_flow_learn_what_a_new_one_finds() {
    let mut rig = Rig::new();
    rig.kernel.neighbours.insert(flow(2).destination, valid(MAC));
    let (_used, _) = rig.look_up(flow(2));
    rig.kernel.neighbours.insert(flow(2).destination, valid(OTHER_MAC));
    let (_also_used, outcome) = rig.look_up(flow(2));
    assert!(outcome.is_none() && is_found(&rig.outcome(flow(2)), OTHER_MAC));
}

#[test]
fn neighbours_that_no_flow_uses_cause_no_queries() {
    let mut rig = Rig::new();
    rig.kernel.neighbours.insert(flow(2).destination, valid(MAC));
    let (_used, _) = rig.look_up(flow(2));
    let before = rig.kernel.queries;
    for last in 100..200 {
        rig.neighbour(flow(last).destination, valid(OTHER_MAC));
    }
    assert_eq!(rig.kernel.queries, before);
    assert!(rig.outcomes.is_empty());
}

#[test]
fn flows_without_users_do_not_accumulate() {
    let mut rig = Rig::new();
    for round in 0..10_000_u32 {
        let destination = IpAddr::from(round.to_be_bytes());
        rig.kernel.neighbours = HashMap::from([(destination, valid(MAC))]);
        let _unused = rig.look_up(Flow { destination, ..flow(1) });
    }
    assert!(rig.resolver.flows.len() <= MIN_SWEEP);
}
