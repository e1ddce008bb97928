//! Resolves the next hop of each flow that paths use, and follows its changes.
//!
//! The resolver has no clock, socket or thread: the device's monitor thread calls it with the time
//! and with access to the kernel. Any number of flows is resolved at the same time.
//!
//! - A neighbour that the kernel has not resolved is solicited: the kernel resolves it.
//! - A neighbour that the kernel reports as failed fails the resolution at once, if the kernel
//!   has asked since the solicitation. An entry that failed earlier is ignored.
//! - The entry of a next hop in use is kept alive: the kernel notifies of changes only if it has an
//!   entry. It drops all entries of an interface whose MAC address changes; the new solicitation
//!   also shows the peers the new address.

mod tracked_flow;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use roce_transport::Instant;

use self::tracked_flow::{LookupContext, TrackedFlow};
use crate::kernel::Kernel;
use crate::route::{Flow, Outcome};

/// The flows in use and their next hops.
#[derive(Debug)]
pub struct Resolver {
    /// The interface's name, for errors.
    interface: String,
    flows: HashMap<Flow, TrackedFlow>,
    /// Number of flows at which unused ones are removed.
    next_sweep: usize,
}

/// Fewest flows at which unused ones are removed.
const MIN_SWEEP: usize = 64;

impl Resolver {
    /// Makes a resolver without flows.
    pub fn new(interface: &str) -> Self {
        Self { interface: interface.to_owned(), flows: HashMap::new(), next_sweep: MIN_SWEEP }
    }

    /// Finds the next hop of a flow. `None`: it is in `outcomes`, now or after one of the calls below.
    /// Changes are followed as long as the returned handle or a clone lives.
    pub fn look_up(
        &mut self,
        flow: Flow,
        now: Instant,
        kernel: &mut dyn Kernel,
        outcomes: &mut HashMap<Flow, Outcome>,
    ) -> (Arc<Flow>, Option<Outcome>) {
        if self.flows.len() >= self.next_sweep {
            self.forget_unused();
            self.next_sweep = MIN_SWEEP.max(2 * self.flows.len());
        }
        let tracked_flow = self.flows.entry(flow).or_default();
        let (handle, is_in_use) = tracked_flow.acquire(flow);
        let hop = tracked_flow.hop();
        let mut it = LookupContext { flow: &flow, interface: &self.interface, now, kernel };
        let outcome = tracked_flow.look_up(&mut it);
        if is_in_use && tracked_flow.hop() != hop {
            // The outcome is for the other users of the flow too.
            outcomes.extend(outcome.map(|outcome| (flow, outcome)));
            return (handle, None);
        }
        (handle, outcome)
    }

    /// Examines the flows whose next hop is one of these neighbours. Next hops that changed and
    /// resolutions that ended are added to `outcomes`.
    pub fn on_neighbours(
        &mut self,
        neighbours: &BTreeSet<IpAddr>,
        now: Instant,
        kernel: &mut dyn Kernel,
        outcomes: &mut HashMap<Flow, Outcome>,
    ) {
        let is_meant = |tracked_flow: &TrackedFlow| tracked_flow.is_via(neighbours);
        // With the route: where the interface went down, the kernel reports the neighbours that it has removed before
        // the routes, and they cannot be resolved.
        self.examine_all(now, kernel, outcomes, is_meant, TrackedFlow::examine);
    }

    /// Examines all flows: routes, rules or addresses changed.
    pub fn on_routes(
        &mut self,
        now: Instant,
        kernel: &mut dyn Kernel,
        outcomes: &mut HashMap<Flow, Outcome>,
    ) {
        self.examine_all(now, kernel, outcomes, |_| true, TrackedFlow::examine);
    }

    /// Fails the resolutions that have timed out, and starts those whose backoff is over.
    pub fn on_timeout(
        &mut self,
        now: Instant,
        kernel: &mut dyn Kernel,
        outcomes: &mut HashMap<Flow, Outcome>,
    ) {
        let is_due =
            |tracked_flow: &TrackedFlow| tracked_flow.timeout().is_some_and(|at| at <= now);
        self.examine_all(now, kernel, outcomes, is_due, TrackedFlow::on_timeout);
    }

    /// Returns when [`on_timeout`](Self::on_timeout) has work.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.flows.values().filter_map(TrackedFlow::timeout).min()
    }

    fn forget_unused(&mut self) {
        self.flows.retain(|_, tracked_flow| tracked_flow.is_used());
    }

    /// Examines the flows in use that `is_meant` selects, and keeps the outcomes that are new.
    fn examine_all(
        &mut self,
        now: Instant,
        kernel: &mut dyn Kernel,
        outcomes: &mut HashMap<Flow, Outcome>,
        is_meant: impl Fn(&TrackedFlow) -> bool,
        examine: impl Fn(&mut TrackedFlow, &mut LookupContext<'_>) -> Option<Outcome>,
    ) {
        self.forget_unused();
        for (flow, tracked_flow) in &mut self.flows {
            if !is_meant(tracked_flow) {
                continue;
            }
            let (hop, was_in_progress) = (tracked_flow.hop(), tracked_flow.is_in_progress());
            let mut it = LookupContext { flow, interface: &self.interface, now, kernel };
            if let Some(outcome) = examine(tracked_flow, &mut it)
                && (was_in_progress || tracked_flow.hop() != hop)
            {
                outcomes.insert(*flow, outcome);
            }
        }
    }
}

#[cfg(test)]
mod tests;
