//! What the engine does, told as it happens.

use core::fmt;

use roce_wire::{NakCode, Psn, Qpn, RnrTimer};

use crate::fault::RequestFault;
use crate::{Completion, CompletionOperation, Instant, QpState};

/// Is told what the engine does as it happens. Traces, tests and teaching tools listen here;
/// the engine prints nothing.
///
/// Every method has an empty default; an engine over `()` compiles them away.
pub trait Observer {
    /// A packet reached its queue pair.
    fn packet_accepted(&mut self, _at: Instant, _qpn: Qpn, _psn: Psn) {}
    /// A packet was dropped; the reason is a name among the [`Counters`](crate::Counters).
    fn packet_dropped(&mut self, _at: Instant, _qpn: Qpn, _psn: Psn, _why: &'static str) {}
    /// A request of the peer's was refused.
    fn request_refused(&mut self, _at: Instant, _qpn: Qpn, _psn: Psn, _why: &RequestFault) {}
    /// A NAK was sent.
    fn nak_sent(&mut self, _at: Instant, _qpn: Qpn, _psn: Psn, _code: NakCode) {}
    /// A NAK came in.
    fn nak_received(&mut self, _at: Instant, _qpn: Qpn, _psn: Psn, _code: NakCode) {}
    /// The peer was told that no receive is posted.
    fn rnr_sent(&mut self, _at: Instant, _qpn: Qpn, _psn: Psn) {}
    /// The peer said that it has no receive posted.
    fn rnr_received(&mut self, _at: Instant, _qpn: Qpn, _psn: Psn, _timer: RnrTimer) {}
    /// Requests will be sent again from here on.
    fn went_back(&mut self, _at: Instant, _qpn: Qpn, _to: Psn, _why: GoBack) {}
    /// Everything up to and including this PSN is acknowledged.
    fn acknowledged(&mut self, _at: Instant, _qpn: Qpn, _up_to: Psn) {}
    /// The send window has a new size, in packets.
    fn window_resized(&mut self, _at: Instant, _qpn: Qpn, _packets: u32) {}
    /// A queue pair changed its state.
    fn state_changed(&mut self, _at: Instant, _qpn: Qpn, _from: QpState, _to: QpState) {}
    /// A request of `bytes` bytes was posted to the send queue.
    fn posted_send(
        &mut self,
        _at: Instant,
        _qpn: Qpn,
        _work_id: u64,
        _operation: CompletionOperation,
        _bytes: u64,
    ) {
    }
    /// A receive was posted.
    fn posted_recv(&mut self, _at: Instant, _qpn: Qpn, _work_id: u64) {}
    /// Work was completed.
    fn completed(&mut self, _at: Instant, _completion: &Completion) {}
    /// A train was written.
    fn transmitted(&mut self, _at: Instant, _qpn: Qpn, _packets: usize) {}
}

impl Observer for () {}

/// Why requests are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoBack {
    /// The peer stayed silent.
    Timeout,
    /// The peer misses a packet.
    SequenceNak,
    /// The peer had no receive posted, and the wait is over.
    RnrNak,
    /// An answer is missing before one that came.
    ImpliedNak,
    /// Nothing was heard for a few round trips: the last packet alone, to draw an answer.
    Probe,
    /// Nothing was heard in spite of that. Other than after the ACK timer, this costs no
    /// retry.
    Quiet,
}

impl GoBack {
    /// A number for tools that know no names, as [`Display`](fmt::Display) has a name.
    pub const fn code(self) -> u8 {
        match self {
            Self::Timeout => 0,
            Self::SequenceNak => 1,
            Self::RnrNak => 2,
            Self::ImpliedNak => 3,
            Self::Probe => 4,
            Self::Quiet => 5,
        }
    }

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::SequenceNak => "sequence-nak",
            Self::RnrNak => "rnr-nak",
            Self::ImpliedNak => "implied-nak",
            Self::Probe => "probe",
            Self::Quiet => "quiet",
        }
    }
}

impl fmt::Display for GoBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
