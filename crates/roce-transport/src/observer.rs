//! Reports of what the engine does.

use roce_wire::{NakCode, Psn, Qpn, RnrTimer};

use crate::request_fault::RequestFault;
use crate::value_table::value_table;
use crate::{Completion, CompletionOperation, Instant, QpState, SrqHandle};

/// Receives a call for each thing that the engine does. Traces, tests and teaching tools implement
/// it.
///
/// Every method has an empty default; an engine over `()` compiles them away.
pub trait Observer {
    /// A packet reached its queue pair.
    fn packet_accepted(&mut self, _at: Instant, _qpn: Qpn, _psn: Psn) {}
    /// A packet was dropped; the reason is a name among the [`Counters`](crate::Counters).
    fn packet_dropped(&mut self, _at: Instant, _qpn: Qpn, _psn: Psn, _why: &'static str) {}
    /// A request of the peer could not be executed.
    fn request_refused(&mut self, _at: Instant, _qpn: Qpn, _psn: Psn, _why: &RequestFault) {}
    /// A NAK was sent.
    fn nak_sent(&mut self, _at: Instant, _qpn: Qpn, _psn: Psn, _code: NakCode) {}
    /// A NAK was received.
    fn nak_received(&mut self, _at: Instant, _qpn: Qpn, _psn: Psn, _code: NakCode) {}
    /// An RNR NAK was sent: no receive is posted.
    fn rnr_sent(&mut self, _at: Instant, _qpn: Qpn, _psn: Psn) {}
    /// An RNR NAK was received: the peer has no receive posted.
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
    /// A receive was posted to a shared receive queue.
    fn posted_shared_recv(&mut self, _at: Instant, _srq: SrqHandle, _work_id: u64) {}
    /// Work was completed.
    fn completed(&mut self, _at: Instant, _completion: &Completion) {}
    /// A train was written.
    fn transmitted(&mut self, _at: Instant, _qpn: Qpn, _packets: usize) {}
}

impl Observer for () {}

value_table! {
    /// Why requests are sent again.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum RetransmitCause {
        /// The local ACK timeout expired.
        AckTimeout = 0, "ack-timeout";
        /// The peer reported a missing packet.
        SequenceNak = 1, "sequence-nak";
        /// The wait of an RNR NAK is over.
        RnrTimeout = 2, "rnr-timeout";
        /// A response is missing before one that arrived.
        ImpliedNak = 3, "implied-nak";
        /// The probe timeout expired for the first time: the last packet is sent alone.
        TailProbe = 4, "tail-probe";
        /// The probe timeout expired again. This consumes no retry.
        ProbeTimeout = 5, "probe-timeout";
    }
    /// Returns its number in traces and probes.
    code;
    /// Returns its name in traces.
    name;
}

impl RetransmitCause {}
