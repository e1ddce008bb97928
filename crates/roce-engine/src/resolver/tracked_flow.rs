//! The resolution of one flow.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use roce_transport::Instant;
use roce_wire::MacAddr;

use crate::kernel::{Kernel, Solicitation};
use crate::route::{Flow, InterfaceRoute, Neighbour, NextHop, Outcome, RouteError};

/// A flow in use and its next hop.
#[derive(Debug, Default)]
pub(super) struct TrackedFlow {
    users: Weak<Flow>,
    /// Last next hop that was found; `None` before the first, and if there is no route.
    hop: Option<NextHop>,
    /// Address of the neighbour in the route.
    next_hop: Option<IpAddr>,
    resolution: Resolution,
}

/// The state of the resolution of a next hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Resolution {
    /// No resolution is in progress.
    #[default]
    Idle,
    /// The next hop was solicited.
    InProgress { deadline: Instant, asked: Solicitation },
    /// The next hop did not reply; the next resolution starts then.
    Backoff { until: Instant },
}

/// The arguments of an examination of a flow.
pub(super) struct LookupContext<'a> {
    pub(super) flow: &'a Flow,
    /// The interface's name.
    pub(super) interface: &'a str,
    pub(super) now: Instant,
    pub(super) kernel: &'a mut dyn Kernel,
}

/// Longest time for the kernel to resolve a neighbour. By default it sends three solicitations, a
/// second apart, and then reports the failure.
pub(super) const MAX_RESOLUTION: Duration = Duration::from_secs(4);
/// Time before a next hop in use that did not reply is solicited again.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(5);

impl TrackedFlow {
    /// Returns a handle that keeps the flow in use, and whether it was in use before.
    pub(super) fn acquire(&mut self, flow: Flow) -> (Arc<Flow>, bool) {
        if let Some(handle) = self.users.upgrade() {
            return (handle, true);
        }
        let handle = Arc::new(flow);
        self.users = Arc::downgrade(&handle);
        (handle, false)
    }

    pub(super) fn is_used(&self) -> bool {
        self.users.strong_count() > 0
    }

    pub(super) fn hop(&self) -> Option<NextHop> {
        self.hop
    }

    pub(super) fn is_via(&self, neighbours: &BTreeSet<IpAddr>) -> bool {
        self.next_hop.is_some_and(|next_hop| neighbours.contains(&next_hop))
    }

    pub(super) fn is_in_progress(&self) -> bool {
        matches!(self.resolution, Resolution::InProgress { .. })
    }

    /// Returns when [`on_timeout`](Self::on_timeout) has work.
    pub(super) fn timeout(&self) -> Option<Instant> {
        match self.resolution {
            Resolution::Idle => None,
            Resolution::InProgress { deadline: at, .. } | Resolution::Backoff { until: at } => {
                Some(at)
            }
        }
    }

    /// Examines the flow for a waiting caller: a backoff ends at once.
    pub(super) fn look_up(&mut self, it: &mut LookupContext<'_>) -> Option<Outcome> {
        self.end_backoff();
        let outcome = self.examine(it);
        if let (Some(Ok(NextHop::Neighbour(_))), Some(next_hop)) = (&outcome, self.next_hop)
            && let Ok(Neighbour::Valid { is_stale: true, .. }) = it.kernel.neighbour(next_hop)
        {
            // As for a packet of the kernel's own, the entry is used now and verified meanwhile.
            it.kernel.solicit(it.flow, next_hop);
        }
        outcome
    }

    /// Queries the route and its neighbour. `None`: a resolution is in progress.
    pub(super) fn examine(&mut self, it: &mut LookupContext<'_>) -> Option<Outcome> {
        if let Some(mac) = MacAddr::of_group(it.flow.destination) {
            // The interface is that of the source address, whatever the routes of the group are.
            self.settle(Some(NextHop::Group(mac)), None);
            return Some(Ok(NextHop::Group(mac)));
        }
        match it.kernel.route(it.flow) {
            Ok(Some(InterfaceRoute::Via(next_hop))) => {
                if self.next_hop != Some(next_hop) {
                    (self.next_hop, self.resolution) = (Some(next_hop), Resolution::Idle);
                }
                self.examine_next_hop(it)
            }
            Ok(Some(InterfaceRoute::ThisHost)) => {
                self.settle(Some(NextHop::ThisHost), None);
                Some(Ok(NextHop::ThisHost))
            }
            Ok(None) => {
                self.settle(None, None);
                let (destination, interface) = (it.flow.destination, it.interface.to_owned());
                Some(Err(RouteError::NoRoute { destination, interface }))
            }
            Err(error) => Some(Err(RouteError::from_kernel(error))),
        }
    }

    /// Queries the neighbour. `None`: a resolution is in progress.
    fn examine_next_hop(&mut self, it: &mut LookupContext<'_>) -> Option<Outcome> {
        let next_hop = self.next_hop?;
        let neighbour = match it.kernel.neighbour(next_hop) {
            Ok(neighbour) => neighbour,
            Err(error) => return Some(Err(RouteError::from_kernel(error))),
        };
        match (neighbour, self.resolution) {
            (Neighbour::Valid { mac, .. }, _) => Some(self.found(next_hop, mac)),
            (Neighbour::Incomplete, Resolution::InProgress { deadline, .. }) => {
                self.wait_until(deadline)
            }
            (Neighbour::Incomplete, _) => self.wait_until(it.now + MAX_RESOLUTION),
            (_, Resolution::Backoff { .. }) => None,
            (
                Neighbour::Failed,
                Resolution::InProgress { deadline, asked: Solicitation::LinkDown },
            ) => self.solicit(next_hop, deadline, it),
            (Neighbour::Failed, Resolution::InProgress { asked: Solicitation::Begun, .. }) => {
                Some(self.fail(next_hop, it))
            }
            // The entry is older than the resolution.
            (Neighbour::Failed, Resolution::InProgress { asked: Solicitation::Asked, .. }) => None,
            // Another program removed the entry, or the link was down.
            (Neighbour::Unknown, Resolution::InProgress { deadline, .. }) => {
                self.solicit(next_hop, deadline, it)
            }
            (Neighbour::Failed | Neighbour::Unknown, Resolution::Idle) => {
                self.solicit(next_hop, it.now + MAX_RESOLUTION, it)
            }
        }
    }

    /// Fails the resolution, or starts the next one after a backoff.
    pub(super) fn on_timeout(&mut self, it: &mut LookupContext<'_>) -> Option<Outcome> {
        let next_hop = self.next_hop?;
        if self.is_in_progress() {
            return Some(self.fail(next_hop, it));
        }
        self.end_backoff();
        self.examine(it)
    }

    fn solicit(
        &mut self,
        next_hop: IpAddr,
        deadline: Instant,
        it: &mut LookupContext<'_>,
    ) -> Option<Outcome> {
        let asked = it.kernel.solicit(it.flow, next_hop);
        self.resolution = Resolution::InProgress { deadline, asked };
        match it.kernel.neighbour(next_hop) {
            Ok(Neighbour::Valid { mac, .. }) => Some(self.found(next_hop, mac)),
            Ok(Neighbour::Incomplete) => self.wait_until(deadline),
            Ok(Neighbour::Failed) if asked == Solicitation::Begun => Some(self.fail(next_hop, it)),
            Ok(Neighbour::Failed | Neighbour::Unknown) => None,
            Err(error) => Some(Err(RouteError::from_kernel(error))),
        }
    }

    /// Waits for the kernel, which is resolving the next hop.
    fn wait_until(&mut self, deadline: Instant) -> Option<Outcome> {
        self.resolution = Resolution::InProgress { deadline, asked: Solicitation::Begun };
        None
    }

    fn found(&mut self, next_hop: IpAddr, mac: MacAddr) -> Outcome {
        let hop = NextHop::Neighbour(mac);
        self.settle(Some(hop), Some(next_hop));
        Ok(hop)
    }

    fn settle(&mut self, hop: Option<NextHop>, next_hop: Option<IpAddr>) {
        (self.hop, self.next_hop, self.resolution) = (hop, next_hop, Resolution::Idle);
    }

    fn fail(&mut self, next_hop: IpAddr, it: &LookupContext<'_>) -> Outcome {
        self.resolution = Resolution::Backoff { until: it.now + RETRY_INTERVAL };
        Err(RouteError::NoNeighbour { next_hop, interface: it.interface.to_owned() })
    }

    fn end_backoff(&mut self) {
        if matches!(self.resolution, Resolution::Backoff { .. }) {
            self.resolution = Resolution::Idle;
        }
    }
}
