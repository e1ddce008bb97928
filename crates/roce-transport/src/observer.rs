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
    fn retransmit(&mut self, _at: Instant, _qpn: Qpn, _to: Psn, _cause: RetransmitCause) {}
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
pub enum RetransmitCause {
    /// The peer stayed silent.
    AckTimeout,
    /// The peer misses a packet.
    SequenceNak,
    /// The peer had no receive posted, and the wait is over.
    RnrTimeout,
    /// An answer is missing before one that came.
    ImpliedNak,
    /// Nothing was heard for a few round trips: the last packet alone, to draw an answer.
    TailProbe,
    /// Nothing was heard in spite of that. Other than after the ACK timer, this costs no
    /// retry.
    ProbeTimeout,
}

impl RetransmitCause {
    /// A number for tools that know no names, as [`Display`](fmt::Display) has a name.
    pub const fn code(self) -> u8 {
        match self {
            Self::AckTimeout => 0,
            Self::SequenceNak => 1,
            Self::RnrTimeout => 2,
            Self::ImpliedNak => 3,
            Self::TailProbe => 4,
            Self::ProbeTimeout => 5,
        }
    }

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AckTimeout => "ack-timeout",
            Self::SequenceNak => "sequence-nak",
            Self::RnrTimeout => "rnr-timeout",
            Self::ImpliedNak => "implied-nak",
            Self::TailProbe => "tail-probe",
            Self::ProbeTimeout => "probe-timeout",
        }
    }
}

impl fmt::Display for RetransmitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
