//! What is being done about a loss.

use crate::Instant;
use crate::rc::send_state::SendPosition;

/// What is being done about a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing: no loss is known.
    #[default]
    Open,
    /// A packet is sent again to draw a response.
    Probe(ProbeStep),
    /// Everything is sent again.
    GoBackN(Trigger),
    /// The oldest packets are sent again.
    Repair(RepairStep),
    /// Gaps are known, and each is repaired alone.
    Selective,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeStep {
    /// The probe is to be sent.
    Due,
    /// The oldest packet was sent as a probe, and the last one is to be sent.
    LastDue,
    Sent,
}

/// What go-back-N began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// The ACK timeout, or a missing response.
    Loss,
    Nak,
    /// A probe timeout, which may have been too early.
    ProbeTimeout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RepairStep {
    /// The peer reported a missing packet, which may be late.
    Waits,
    /// A partial ACK arrived after a repair, so early that the next packet may be late.
    NextWaits,
    /// The repair is being sent.
    Sends,
    /// The repair was sent, and new packets after it.
    Sent,
}

/// The latest go-back-N or repair.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Resent {
    /// What was to be sent next before it, and before others that it interrupted.
    pub(super) resume: SendPosition,
    /// First sequence number behind the repair, or behind the request with which the go-back-N begins.
    pub(super) end: u64,
    /// Packets of the repair; in a go-back-N after a NAK those that may be in flight.
    pub(super) packets: u32,
    /// Its time, or that of the NAK that may still become one.
    pub(super) at: Instant,
}
