//! A queue pair of the endpoint.

use core::net::IpAddr;

use roce_wire::Qpn;

use crate::endpoint::queue_pair::QueuePair;
use crate::peer_window::Ticket;
use crate::{Instant, SrqHandle};

/// A queue pair, and what the scheduler knows of it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) qpn: Qpn,
    pub(super) queue_pair: QueuePair,
    /// The shared receive queue that it takes from.
    pub(super) srq: Option<SrqHandle>,
    /// Deadline of its entry in the timer queue.
    pub(super) timer_at: Option<Instant>,
    /// Peer address and table index; `None` before the queue pair has a path.
    pub(super) peer: Option<(IpAddr, usize)>,
    /// Ticket in that peer's wait queue.
    pub(super) wait_ticket: Option<Ticket>,
}
