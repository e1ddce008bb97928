//! What has happened in a row since the last progress: retries, probe timeouts, NAKs.

use crate::qp::context::QpParams;

/// The retries left for the oldest request, and how its NAKs are handled. Progress makes a new one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retries {
    left: u8,
    rnr_left: u8,
    /// Probe timeouts, 255 at most.
    pub(super) probe_timeouts: u8,
    pub(super) naks: NakHandling,
}

/// What to do about a NAK for the oldest packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NakHandling {
    /// Repair the loss, and count a retry.
    CountRetry,
    /// Repair the loss without counting a retry: the NAK may be for packets sent before a timer fired
    /// (rxe follows an RNR NAK with a sequence NAK).
    NoRetryCost,
    /// Ignore it: it is for packets sent before an earlier NAK was handled.
    Ignore,
    /// Ignore it: the peer has no receive for the oldest packet, and the requester waits.
    RnrWait,
}

impl Retries {
    #[inline]
    pub(super) fn new(params: &QpParams) -> Self {
        Self {
            left: params.retry_count,
            rnr_left: params.rnr_retry.unwrap_or(0),
            probe_timeouts: 0,
            naks: NakHandling::CountRetry,
        }
    }

    /// Returns false if no retry is left.
    //= rule rc-retries: InfiniBand, clause not known
    //# An ACK timeout or a loss costs a retry. Without one left the oldest request ends with that status.
    #[must_use]
    pub(super) fn spend(&mut self) -> bool {
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// The peer has no receive, and the requester waits: returns false if no RNR retry is left.
    //= rule rc-rnr-retries: InfiniBand, clause not known; rxe_comp.c: rxe_completer
    //# An RNR NAK costs one of the RNR retries, of which 7 mean any number.
    #[must_use]
    pub(super) fn begin_rnr_wait(&mut self, params: &QpParams) -> bool {
        if params.rnr_retry.is_some() {
            let Some(left) = self.rnr_left.checked_sub(1) else { return false };
            self.rnr_left = left;
        }
        // The peer has received the oldest packet. Losses between its RNR NAKs are not losses in a
        // row: without this they would use up the retries of a request that waits for a receive.
        self.left = params.retry_count;
        self.probe_timeouts = 0;
        self.naks = NakHandling::RnrWait;
        true
    }

    /// A probe timeout expired. Returns true the first time.
    pub(super) fn on_probe_timeout(&mut self) -> bool {
        self.probe_timeouts = self.probe_timeouts.saturating_add(1);
        self.probe_timeouts == 1
    }
}
