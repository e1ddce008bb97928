//! What a queue pair has to send.

/// What a queue pair has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TxDemand {
    /// Requests, which the peer window has to admit. They may wait for the queue pair's own window.
    pub(crate) requests: bool,
    /// The requests wait for their time.
    pub(crate) is_paced: bool,
    /// Gaps that are to be repaired now, which needs no room in the peer window.
    pub(crate) repairs: bool,
    pub(crate) responses: PendingResponses,
}

/// Responses that wait to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingResponses {
    None,
    /// An ACK, which may be delayed.
    AckOnly,
    Some,
}

/// How a queue pair waits to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxPending {
    None,
    /// With an ACK that is delayed.
    DelayedAck,
    Ready,
}

impl TxDemand {
    /// Returns true if a response waits to be sent.
    #[inline]
    pub(crate) fn has_responses(self) -> bool {
        self.responses != PendingResponses::None
    }

    /// Returns how the queue pair waits, where ACKs are delayed or not. If it has nothing, the next input
    /// schedules it again.
    #[inline]
    pub(crate) fn pending(self, delay_acks: bool) -> TxPending {
        if self.requests && !self.is_paced {
            return TxPending::Ready;
        }
        match self.responses {
            PendingResponses::None => TxPending::None,
            PendingResponses::AckOnly if delay_acks => TxPending::DelayedAck,
            PendingResponses::AckOnly | PendingResponses::Some => TxPending::Ready,
        }
    }
}
