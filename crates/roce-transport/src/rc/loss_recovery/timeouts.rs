//! What a timer that expires says of losses.

use super::LossRecovery;
use super::action::Action;
use super::phase::{Phase, ProbeStep, RepairStep};
use super::retries::NakHandling;
use crate::rc::send_state::SendState;
use crate::{CompletionStatus, Instant, RetransmitCause};

impl LossRecovery {
    /// The probe timeout expired.
    pub(crate) fn on_probe_timeout(&mut self, send: &SendState, now: Instant) -> Action {
        if send.in_flight() == 0 || self.is_in_rnr_wait() {
            return Action::None;
        }
        if matches!(self.phase, Phase::Repair(RepairStep::Waits | RepairStep::NextWaits)) {
            return Action::Repair(1);
        }
        if let Some(known) = &mut self.known {
            known.gaps.expire(now);
        }
        if self.has_gaps_due(send.reads()) {
            return Action::None;
        }
        let at = self.probe_deadline(self.probe_base);
        if at > now {
            // Before that no packet requested a response.
            return Action::WaitForResponse(at);
        }
        let is_first = self.retries.on_probe_timeout();
        if self.probe_instead(send) {
            return Action::None;
        }
        if self.is_selective() && is_first {
            self.known().gaps.expire_all();
            return Action::None;
        }
        self.retries.naks = NakHandling::NoRetryCost;
        Action::GoBack { cause: RetransmitCause::ProbeTimeout, has_cost: false }
    }

    /// Returns true, and a probe is due, if one can be sent instead of all packets.
    //= rule rc-tail-loss-probe: RFC 8985 section 7
    //# At the first probe timeout the last packet is sent again, instead of all.
    pub(crate) fn probe_instead(&mut self, send: &SendState) -> bool {
        let may_probe = self.is_open() && send.last_in_flight().is_some();
        if may_probe {
            self.phase = Phase::Probe(ProbeStep::Due);
        }
        may_probe
    }

    /// The local ACK timeout expired.
    pub(crate) fn on_ack_timeout(&mut self) -> Action {
        if !self.retries.spend() {
            return Action::GiveUp(CompletionStatus::RetryExceeded);
        }
        self.retries.naks = NakHandling::NoRetryCost;
        Action::GoBack { cause: RetransmitCause::AckTimeout, has_cost: true }
    }

    /// The local ACK timeout expired, and nothing could be sent before.
    pub(crate) fn on_unsent_timeout(&mut self) -> Action {
        if self.retries.spend() {
            return Action::None;
        }
        Action::GiveUp(CompletionStatus::RetryExceeded)
    }

    /// The wait that an RNR NAK requires has passed.
    pub(crate) fn on_rnr_timeout(&mut self) -> Action {
        if !self.is_in_rnr_wait() {
            return Action::None;
        }
        //= also rc-rnr-then-nak
        self.retries.naks = NakHandling::NoRetryCost;
        Action::GoBack { cause: RetransmitCause::RnrTimeout, has_cost: false }
    }
}
