//! Listens to the engine, for the probes and for the trace.

use roce_transport::{
    Completion, CompletionOperation, GoBack, Instant, Observer, QpState, RequestFault,
};
use roce_wire::{NakCode, Psn, Qpn, RnrTimer};

use super::{Trace, TraceKind};

/// The engine's observer: fires the probes, and feeds the trace if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watcher {
    trace: Option<Trace>,
}

impl Watcher {
    pub(crate) fn new(trace: Option<Trace>) -> Self {
        Self { trace }
    }

    /// Without a trace one branch, and `kind` is not even put together.
    #[inline]
    fn note(&self, qpn: Qpn, kind: impl FnOnce() -> TraceKind) {
        if let Some(trace) = &self.trace {
            trace.push(qpn, kind());
        }
    }

    /// The application took a completion.
    #[inline]
    pub(crate) fn polled(&self, completion: &Completion) {
        let Completion { work_id, operation, status, byte_len: bytes, .. } = *completion;
        self.note(completion.qpn, || TraceKind::PollCq { work_id, operation, status, bytes });
    }
}

// The engine's own instants are one for each round; the trace stamps what it is told.
impl Observer for Watcher {
    fn packet_dropped(&mut self, _at: Instant, qpn: Qpn, psn: Psn, why: &'static str) {
        self.note(qpn, || TraceKind::Dropped { psn, why });
    }

    fn request_refused(&mut self, _at: Instant, qpn: Qpn, psn: Psn, why: &RequestFault) {
        self.note(qpn, || TraceKind::Refused { psn, why: *why });
    }

    fn nak_sent(&mut self, _at: Instant, qpn: Qpn, psn: Psn, code: NakCode) {
        self.note(qpn, || TraceKind::NakSent { psn, code });
    }

    fn nak_received(&mut self, _at: Instant, qpn: Qpn, psn: Psn, code: NakCode) {
        self.note(qpn, || TraceKind::NakReceived { psn, code });
    }

    fn rnr_sent(&mut self, _at: Instant, qpn: Qpn, psn: Psn) {
        self.note(qpn, || TraceKind::RnrSent { psn });
    }

    fn rnr_received(&mut self, _at: Instant, qpn: Qpn, psn: Psn, timer: RnrTimer) {
        self.note(qpn, || TraceKind::RnrReceived { psn, timer });
    }

    fn went_back(&mut self, _at: Instant, qpn: Qpn, to: Psn, why: GoBack) {
        self.note(qpn, || TraceKind::Retransmit { from: to, cause: why });
    }

    fn acknowledged(&mut self, _at: Instant, qpn: Qpn, up_to: Psn) {
        self.note(qpn, || TraceKind::Acknowledged { psn: up_to });
    }

    fn window_resized(&mut self, _at: Instant, qpn: Qpn, packets: u32) {
        self.note(qpn, || TraceKind::WindowResized { packets });
    }

    fn state_changed(&mut self, _at: Instant, qpn: Qpn, from: QpState, to: QpState) {
        self.note(qpn, || TraceKind::StateChanged { from, to });
    }

    fn posted_send(
        &mut self,
        _at: Instant,
        qpn: Qpn,
        work_id: u64,
        operation: CompletionOperation,
        bytes: u64,
    ) {
        self.note(qpn, || TraceKind::PostSend { work_id, operation, bytes });
    }

    fn posted_recv(&mut self, _at: Instant, qpn: Qpn, work_id: u64) {
        self.note(qpn, || TraceKind::PostRecv { work_id });
    }

    fn completed(&mut self, _at: Instant, completion: &Completion) {
        let Completion { work_id, operation, status, byte_len: bytes, .. } = *completion;
        self.note(completion.qpn, || TraceKind::Completed { work_id, operation, status, bytes });
    }

    fn transmitted(&mut self, _at: Instant, qpn: Qpn, packets: usize) {
        self.note(qpn, || TraceKind::Transmitted { packets });
    }
}
