//! The observer of the endpoint, which feeds the probes and the trace.

use roce_transport::{
    Completion, CompletionOperation, Instant, Observer, QpState, RequestFault, RetransmitCause,
    SrqHandle,
};
use roce_wire::{NakCode, Psn, Qpn, RnrTimer};

use super::{Trace, TraceKind};
use crate::probes;

/// The observer of the endpoint: fires the probes, and adds events to the trace if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct TraceObserver {
    trace: Option<Trace>,
}

impl TraceObserver {
    pub(crate) fn new(trace: Option<Trace>) -> Self {
        Self { trace }
    }

    /// Adds an event to the trace. Without a trace this is one branch, and `kind` is not called.
    #[inline]
    fn note(&self, qpn: Qpn, kind: impl FnOnce() -> TraceKind) {
        if let Some(trace) = &self.trace {
            trace.push(qpn, kind());
        }
    }

    /// Notes that the application polled a completion.
    #[inline(never)]
    pub(crate) fn polled(&self, completion: &Completion) {
        let Completion { wr_id, operation, status, byte_len: bytes, .. } = *completion;
        probes::poll_cq(completion);
        self.note(completion.qpn, || TraceKind::PollCq { wr_id, operation, status, bytes });
    }
}

// The endpoint has one instant for each round, so the trace reads the clock itself.
//
// Functions that fire a probe are never inlined: each probe then has one address, which every tool
// can watch. They are always linked: the linker drops functions without callers, but not the notes
// of their probes, which would then point to no address.
impl Observer for TraceObserver {
    fn packet_dropped(&mut self, _at: Instant, qpn: Qpn, psn: Psn, why: &'static str) {
        self.note(qpn, || TraceKind::Dropped { psn, why });
    }

    fn request_refused(&mut self, _at: Instant, qpn: Qpn, psn: Psn, why: &RequestFault) {
        self.note(qpn, || TraceKind::Refused { psn, why: *why });
    }

    #[inline(never)]
    fn nak_sent(&mut self, _at: Instant, qpn: Qpn, psn: Psn, code: NakCode) {
        probes::nak_sent(qpn, psn, code);
        self.note(qpn, || TraceKind::NakSent { psn, code });
    }

    #[inline(never)]
    fn nak_received(&mut self, _at: Instant, qpn: Qpn, psn: Psn, code: NakCode) {
        probes::nak_received(qpn, psn, code);
        self.note(qpn, || TraceKind::NakReceived { psn, code });
    }

    #[inline(never)]
    fn rnr_sent(&mut self, _at: Instant, qpn: Qpn, psn: Psn) {
        probes::rnr_sent(qpn, psn);
        self.note(qpn, || TraceKind::RnrSent { psn });
    }

    #[inline(never)]
    fn rnr_received(&mut self, _at: Instant, qpn: Qpn, psn: Psn, timer: RnrTimer) {
        probes::rnr_received(qpn, psn, timer);
        self.note(qpn, || TraceKind::RnrReceived { psn, timer });
    }

    #[inline(never)]
    fn retransmit(&mut self, _at: Instant, qpn: Qpn, to: Psn, why: RetransmitCause) {
        probes::retransmit(qpn, to, why);
        self.note(qpn, || TraceKind::Retransmit { from: to, cause: why });
    }

    fn acknowledged(&mut self, _at: Instant, qpn: Qpn, up_to: Psn) {
        self.note(qpn, || TraceKind::Acknowledged { psn: up_to });
    }

    fn window_resized(&mut self, _at: Instant, qpn: Qpn, packets: u32) {
        self.note(qpn, || TraceKind::WindowResized { packets });
    }

    #[inline(never)]
    fn state_changed(&mut self, _at: Instant, qpn: Qpn, from: QpState, to: QpState) {
        probes::modify_qp(qpn, from, to);
        self.note(qpn, || TraceKind::StateChanged { from, to });
    }

    #[inline(never)]
    fn posted_send(
        &mut self,
        _at: Instant,
        qpn: Qpn,
        wr_id: u64,
        operation: CompletionOperation,
        bytes: u64,
    ) {
        probes::post_send(qpn, wr_id, operation, bytes);
        self.note(qpn, || TraceKind::PostSend { wr_id, operation, bytes });
    }

    #[inline(never)]
    fn posted_recv(&mut self, _at: Instant, qpn: Qpn, wr_id: u64) {
        probes::post_recv(qpn, wr_id);
        self.note(qpn, || TraceKind::PostRecv { wr_id });
    }

    #[inline(never)]
    fn posted_shared_recv(&mut self, _at: Instant, srq: SrqHandle, wr_id: u64) {
        probes::post_srq_recv(srq, wr_id);
        self.note(NO_QP, || TraceKind::PostSrqRecv { srq, wr_id });
    }

    fn completed(&mut self, _at: Instant, completion: &Completion) {
        let Completion { wr_id, operation, status, byte_len: bytes, .. } = *completion;
        self.note(completion.qpn, || TraceKind::Completed { wr_id, operation, status, bytes });
    }

    fn transmitted(&mut self, _at: Instant, qpn: Qpn, packets: usize) {
        self.note(qpn, || TraceKind::Transmitted { packets });
    }
}

/// The queue pair of events that concern none.
const NO_QP: Qpn = Qpn::from_be_bytes([0; 3]);

/// Keeps every probe in every program.
#[used]
static PROBES: Probes = Probes {
    polled: TraceObserver::polled,
    posted_send: <TraceObserver as Observer>::posted_send,
    posted_recv: <TraceObserver as Observer>::posted_recv,
    posted_shared_recv: <TraceObserver as Observer>::posted_shared_recv,
    state_changed: <TraceObserver as Observer>::state_changed,
    retransmit: <TraceObserver as Observer>::retransmit,
    naks: [<TraceObserver as Observer>::nak_sent, <TraceObserver as Observer>::nak_received],
    rnr_sent: <TraceObserver as Observer>::rnr_sent,
    rnr_received: <TraceObserver as Observer>::rnr_received,
};

type OnNak = fn(&mut TraceObserver, Instant, Qpn, Psn, NakCode);

#[allow(dead_code, reason = "it is never read; its pointers keep the functions linked")]
struct Probes {
    polled: fn(&TraceObserver, &Completion),
    posted_send: fn(&mut TraceObserver, Instant, Qpn, u64, CompletionOperation, u64),
    posted_recv: fn(&mut TraceObserver, Instant, Qpn, u64),
    posted_shared_recv: fn(&mut TraceObserver, Instant, SrqHandle, u64),
    state_changed: fn(&mut TraceObserver, Instant, Qpn, QpState, QpState),
    retransmit: fn(&mut TraceObserver, Instant, Qpn, Psn, RetransmitCause),
    naks: [OnNak; 2],
    rnr_sent: fn(&mut TraceObserver, Instant, Qpn, Psn),
    rnr_received: fn(&mut TraceObserver, Instant, Qpn, Psn, RnrTimer),
}
