//! Recorder of engine events.

use roce_transport::{Completion, Instant, Observer, QpState, RequestFault, RetransmitCause};
use roce_wire::{NakCode, Psn, Qpn, RnrTimer};

use crate::timeline::EventKind;

/// The observer of a host's engine, which keeps events until the world takes them into its timeline.
#[derive(Debug, Default)]
pub struct EventRecorder {
    is_on: bool,
    events: Vec<(Instant, Option<Qpn>, EventKind)>,
}

impl EventRecorder {
    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on, events: Vec::new() }
    }

    /// Keeps events from now on, or no more.
    pub(crate) fn keep(&mut self, keep: bool) {
        self.is_on = keep;
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = (Instant, Option<Qpn>, EventKind)> {
        self.events.drain(..)
    }

    pub(crate) fn record_if(&mut self, at: Instant, qpn: Qpn, kind: Option<EventKind>) {
        if let Some(kind) = kind {
            self.record(at, qpn, kind);
        }
    }

    /// Removes the last event that was recorded.
    pub(crate) fn discard_last(&mut self) {
        self.events.pop();
    }

    pub(crate) fn record(&mut self, at: Instant, qpn: Qpn, kind: EventKind) {
        if self.is_on {
            self.events.push((at, Some(qpn), kind));
        }
    }
}

impl Observer for EventRecorder {
    fn packet_dropped(&mut self, at: Instant, qpn: Qpn, psn: Psn, why: &'static str) {
        self.record(at, qpn, EventKind::Dropped { psn, why });
    }
    fn request_refused(&mut self, at: Instant, qpn: Qpn, psn: Psn, why: &RequestFault) {
        self.record(at, qpn, EventKind::Refused { psn, why: *why });
    }
    fn nak_sent(&mut self, at: Instant, qpn: Qpn, psn: Psn, code: NakCode) {
        self.record(at, qpn, EventKind::NakSent { psn, code });
    }
    fn nak_received(&mut self, at: Instant, qpn: Qpn, psn: Psn, code: NakCode) {
        self.record(at, qpn, EventKind::NakReceived { psn, code });
    }
    fn rnr_sent(&mut self, at: Instant, qpn: Qpn, psn: Psn) {
        self.record(at, qpn, EventKind::RnrSent { psn });
    }
    fn rnr_received(&mut self, at: Instant, qpn: Qpn, psn: Psn, timer: RnrTimer) {
        self.record(at, qpn, EventKind::RnrReceived { psn, timer });
    }
    fn retransmit(&mut self, at: Instant, qpn: Qpn, to: Psn, why: RetransmitCause) {
        self.record(at, qpn, EventKind::Retransmit { to, why });
    }
    fn acknowledged(&mut self, at: Instant, qpn: Qpn, up_to: Psn) {
        self.record(at, qpn, EventKind::Acknowledged { up_to });
    }
    fn window_resized(&mut self, at: Instant, qpn: Qpn, packets: u32) {
        self.record(at, qpn, EventKind::WindowResized { packets });
    }
    fn state_changed(&mut self, at: Instant, qpn: Qpn, from: QpState, to: QpState) {
        self.record(at, qpn, EventKind::StateChanged { from, to });
    }
    fn completed(&mut self, at: Instant, completion: &Completion) {
        self.record(at, completion.qpn, EventKind::Completed(*completion));
    }
}
