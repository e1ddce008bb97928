//! A queue pair of a reliable connection.
//!
//! | module | contents |
//! |---|---|
//! | `send_state` | the requests of a queue pair, and how far they are sent and acknowledged |
//! | `loss_recovery` | what was lost, and what to do about it: retries, NAKs, probe timeout, gaps |
//! | `requester` | sends on `send_state` what its window admits, and does what `loss_recovery` says; `transmit` decides which packet is next, `packets` and `single_packet` write it, `ack_request` decides its AckReq, `repeat` writes probes and repairs |
//! | `completer` | handles responses: tells the requester what is acknowledged and missing; `early_responses` keeps responses behind a missing one |
//! | `responder` | executes new requests and responds to repeated ones; `response_writer` writes the responses |
//! | `reorder_buffer` | keeps packets that arrived before a missing one |
//! | `flush` | failure of requests, and of the queue pair |
//!
//! # Order, loss and reports
//!
//! What a peer, or a host that forges its address, can make a queue pair keep, and believe:
//!
//! - **Which packets.** A request up to 4096 PSNs ahead of the expected one, and a response up to 4096 PSNs ahead
//!   of the oldest that is outstanding. Everything else is dropped. A request further ahead draws a NAK
//!   once nothing in order has arrived for 100 µs. Of two packets of one PSN the first counts.
//! - **How much.** Of [`max_reorder_bytes`](crate::EndpointConfig::max_reorder_bytes) a queue pair keeps at most
//!   as much as it leaves for others, and all queue pairs of a peer address at most three quarters. Where
//!   room is needed, packets of the queue pair that are farther ahead make it.
//! - **How long.** Until their turn comes, and 100 to 200 ms without progress.
//! - **Belief.** A requester takes the peer for one that keeps packets if the two ends have agreed on gap reports,
//!   or after it has seen twice what no peer that goes back N can say (`loss_recovery::keeping_peer`). One disproof
//!   ends that for the connection.
//! - **Reports.** They are sent, and taken, only by queue pairs that have agreed on them out of band, for
//!   outstanding requests, and beside the ACKs and NAKs of the standard.
//! - **Marks.** A marked packet counts only if its PSN is one that the peer can be at.

mod completer;
mod flush;
mod kept_packet;
mod loss_recovery;
mod reorder_buffer;
mod requester;
mod responder;
mod send_state;

use core::net::IpAddr;

use roce_wire::{Ecn, GapReport, Operation, Packet, Psn, Service, Verified};

use self::completer::Completer;
use self::requester::Requester;
use self::responder::{Responder, ResponderError};
use crate::congestion::{CongestionAlgorithm, NotificationPoint};
use crate::context::{Context, DropReason};
use crate::owed_ack::OwedAck;
use crate::peer_window::{PeerView, PeerWindow};
use crate::qp::context::QpContext;
use crate::qp::modify;
use crate::qp::receive_queue::ReceiveQueue;
use crate::qp::receives::Receives;
use crate::qp::shared_receive_queue::SrqTable;
use crate::qp::validate::validate_send;
use crate::reorder_budget::ReorderBudget;
use crate::timers::Timers;
use crate::train::TrainWriter;
use crate::tx_demand::{PendingResponses, TxDemand};
use crate::{
    EndpointConfig, InlineData, Instant, Memory, ModifyError, Observer, PostError, QpAttributes,
    QpInfo, QpState, RecvWr, RequestFault, SendWr,
};

/// One end of a reliable connection.
#[derive(Debug)]
pub(crate) struct RcQueuePair {
    qp: QpContext,
    requester: Requester,
    completer: Completer,
    responder: Responder,
    receives: Receives,
    timers: Timers,
    notification: NotificationPoint,
    /// The next train is of requests, if both requests and responses wait.
    requests_first: bool,
    /// A marked request has arrived since the last ACK.
    is_marked: bool,
}

impl RcQueuePair {
    /// A queue pair in RESET.
    pub(crate) fn new(qp: QpContext, config: &EndpointConfig) -> Self {
        Self {
            requester: Requester::new(config, &qp, Default::default()),
            completer: Completer::default(),
            responder: Responder::new(Default::default(), 0),
            receives: Receives::of(&qp.init),
            qp,
            timers: Timers::default(),
            notification: NotificationPoint::default(),
            requests_first: false,
            is_marked: false,
        }
    }

    /// Sets attributes and goes to another state.
    pub(crate) fn modify<O: Observer>(
        &mut self,
        asked: &QpAttributes,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ModifyError> {
        let from = self.qp.state;
        let to = modify::validate(Service::Rc, from, asked)?;
        if to == QpState::Reset {
            cx.out.owed_acks.extend(self.take_owed_ack());
            self.drop_kept(&mut cx.out.reorder_budget);
            *self = Self::new(self.qp.reset(), cx.config);
            cx.out.observer.state_changed(cx.now, cx.qpn, from, to);
            return Ok(());
        }
        self.qp.attributes.merge(asked);
        self.qp.params.take(asked);
        match (from, to) {
            (_, QpState::Error) => {
                self.fail(None, cx);
                return Ok(());
            }
            (QpState::Init, QpState::ReadyToReceive) => {
                let first = asked.rq_psn.unwrap_or_default();
                self.responder = Responder::new(first, asked.max_dest_rd_atomic.unwrap_or(0));
            }
            (QpState::ReadyToReceive, QpState::ReadyToSend) => {
                let first = asked.sq_psn.unwrap_or_default();
                self.requester = Requester::new(cx.config, &self.qp, first);
            }
            (QpState::ReadyToSend, QpState::SendQueueDrain) => {
                self.requester.send_mut().drain();
            }
            (QpState::SendQueueDrain, QpState::ReadyToSend) => {
                self.requester.send_mut().stop_draining()
            }
            (QpState::SendQueueDrain, QpState::SendQueueDrain) => {
                if let Some(max) = asked.max_dest_rd_atomic {
                    self.responder.set_max_dest_rd_atomic(max);
                }
            }
            _ => {}
        }
        self.qp.set_state(to, cx);
        self.requester.send_mut().note_drained(&self.qp, cx);
        self.keep_timed(cx.time);
        Ok(())
    }

    /// Arms the timers without which a request might never end.
    pub(crate) fn keep_timed(&mut self, time: Instant) {
        let Self { qp, requester, timers, .. } = self;
        if qp.state.is_sending() {
            requester.keep_timed(qp, timers, time);
        }
    }

    /// Returns true if a timer ends every request that has to end by itself.
    pub(crate) fn is_timed(&self) -> bool {
        let Self { qp, requester, timers, .. } = self;
        !qp.state.is_sending() || requester.is_timed(qp, timers)
    }

    /// Takes the ACK that the queue pair owes, before it is reset or destroyed.
    pub(crate) fn take_owed_ack(&mut self) -> Option<OwedAck> {
        let (psn, nak) = self.responder.responses.take_first_ack()?;
        let (path, dest_qpn) = self.qp.path_and_dest()?;
        let msn = self.responder.msn();
        Some(OwedAck { qpn: self.qp.qpn, dest_qpn, path, psn, nak, msn })
    }

    /// Fails if the request could not be posted behind `ahead` others.
    pub(crate) fn check_send(&self, work: &SendWr, ahead: usize) -> Result<(), PostError> {
        validate_send(work, &self.qp, self.requester.send().len() + ahead).map(|_| ())
    }

    pub(crate) fn take_inline_buffer(&mut self) -> InlineData {
        self.requester.send_mut().take_inline_buffer()
    }

    /// Returns true if a message that is not whole holds a receive.
    pub(crate) const fn holds_receive(&self) -> bool {
        self.responder.message.holds_receive()
    }

    /// Drops the packets that are kept behind a missing one.
    pub(crate) fn drop_kept(&mut self, budget: &mut ReorderBudget) {
        self.completer.drop_kept(budget);
        self.responder.drop_kept(budget);
    }

    /// Posts to the send queue. Inlined, or the request would be moved once more, a call each time.
    #[inline]
    pub(crate) fn post_send<O: Observer>(
        &mut self,
        work: SendWr,
        cx: &mut Context<'_, O>,
    ) -> Result<(), PostError> {
        let (len, packets) = validate_send(&work, &self.qp, self.requester.send().len())?;
        self.requester.send_mut().reserve()?;
        let operation = work.operation.completion_operation();
        cx.out.observer.posted_send(cx.now, cx.qpn, work.wr_id, operation, len);
        self.requester.send_mut().push(work, len, packets);
        if !self.qp.state.is_sending() {
            self.requester.send_mut().flush(&self.qp, cx);
        }
        Ok(())
    }

    /// Posts to the receive queue.
    pub(crate) fn post_recv<O: Observer>(
        &mut self,
        work: RecvWr,
        cx: &mut Context<'_, O>,
    ) -> Result<(), PostError> {
        self.receives.post(work, 0, &self.qp, cx)
    }

    /// Handles a packet, of the peer or of another host.
    pub(crate) fn handle_packet<O: Observer>(
        &mut self,
        packet: &Packet<'_, Verified>,
        srqs: &mut SrqTable,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) {
        let (psn, operation) = (packet.bth().psn(), packet.operation());
        if let Err(cause) = self.qp.admit(packet) {
            return cx.dropped(psn, cause);
        }
        cx.counters().rcvd_pkts += 1;
        cx.out.observer.packet_accepted(cx.now, cx.qpn, psn);
        self.qp.note_established(cx);
        if packet.ecn() == Ecn::CongestionExperienced {
            self.on_marked(operation, psn, cx);
        }
        let Self { qp, requester, completer, responder, receives, timers, .. } = self;
        if packet.view().is_request() {
            let Some(receives) = receives.queue_mut(srqs) else { return };
            let executed = responder.handle_request(qp, packet, receives, memory, cx);
            if let Err(error) = executed {
                self.fail_request(error, cx);
            }
        } else if let Err(status) =
            completer.handle_response(requester, qp, timers, packet, memory, cx)
        {
            self.fail(Some(status), cx);
        }
    }

    /// A packet was marked. One whose PSN the peer cannot be at is not the peer's.
    #[cold]
    #[inline(never)]
    fn on_marked<O: Observer>(&mut self, operation: Operation, psn: Psn, cx: &mut Context<'_, O>) {
        let is_plausible = match operation {
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAck => {
                self.requester.send().outstanding(psn).is_some()
            }
            _ => self.responder.is_plausible(psn),
        };
        if !is_plausible {
            return;
        }
        let is_due = cx.on_marked(&mut self.notification, self.qp.path_and_dest());
        match operation {
            // The peer sends as much as was requested, so the requester reacts itself.
            Operation::ReadResponse => {
                self.requester.on_becn(&self.qp, cx);
                if is_due && cx.config.congestion.algorithm == CongestionAlgorithm::Dcqcn {
                    self.requester.on_cnp(&self.qp, cx);
                }
            }
            Operation::Acknowledge | Operation::AtomicAck => {}
            _ => self.is_marked = cx.config.congestion.np_enable,
        }
    }

    /// Handles a congestion notification packet.
    pub(crate) fn handle_cnp<O: Observer>(
        &mut self,
        packet: &Packet<'_, Verified>,
        cx: &mut Context<'_, O>,
    ) {
        let psn = packet.bth().psn();
        if let Err(cause) = self.qp.admit(packet) {
            return cx.dropped(psn, cause);
        }
        cx.counters().rcvd_pkts += 1;
        if cx.config.congestion.algorithm == CongestionAlgorithm::Loss {
            return cx.dropped(psn, DropReason::CnpIgnored);
        }
        cx.counters().rp_cnp_handled += 1;
        self.requester.on_cnp(&self.qp, cx);
    }

    /// Handles a gap report.
    pub(crate) fn handle_gap_report<O: Observer>(
        &mut self,
        packet: &Packet<'_, Verified>,
        cx: &mut Context<'_, O>,
    ) {
        let psn = packet.bth().psn();
        if let Err(cause) = self.qp.admit(packet) {
            return cx.dropped(psn, cause);
        }
        cx.counters().rcvd_pkts += 1;
        let Self { qp, requester, completer, timers, .. } = self;
        match GapReport::parse(packet.payload()).filter(|_| qp.params.gap_reports) {
            Some(report) => completer.handle_gap_report(requester, qp, timers, psn, report, cx),
            None => cx.dropped(psn, DropReason::GapReportIgnored),
        }
    }

    /// Drops packets that have been kept for long without progress.
    pub(crate) fn drop_idle(&mut self, budget: &mut ReorderBudget) {
        self.completer.drop_idle(self.requester.send(), budget);
        self.responder.drop_idle(budget);
    }

    /// Fires the timers that are due; `peer` is what all queue pairs know of the peer.
    pub(crate) fn handle_timeout<O: Observer>(&mut self, peer: PeerView, cx: &mut Context<'_, O>) {
        self.requester.on_timer(cx.time);
        while let Some(timer) = self.timers.take_due(cx.time) {
            let Self { qp, requester, timers, .. } = self;
            if let Err(status) = requester.on_timeout(timer, peer, qp, timers, cx) {
                self.fail(Some(status), cx);
            }
        }
    }

    /// Writes one train of what may leave now: requests only with a `peer_window`. Returns true if an
    /// ACK is left since it is delayed.
    pub(crate) fn transmit<O: Observer>(
        &mut self,
        delay_acks: bool,
        mut window: Option<&mut PeerWindow>,
        memory: &mut impl Memory,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) -> bool {
        let holds = delay_acks && self.responder.responses.is_only_an_ack();
        // Neither requests nor responses may starve the other; a train has one kind alone.
        let order = [self.requests_first, !self.requests_first];
        for is_requests in order {
            if is_requests {
                if let Some(window) = window.as_deref_mut() {
                    self.transmit_requests(window, memory, train, cx);
                } else if self.demand().repairs {
                    let Self { qp, requester, timers, .. } = self;
                    requester.repeat(qp, timers, memory, train, cx);
                }
            } else if !holds {
                self.transmit_responses(memory, train, cx);
            }
            if !train.is_empty() {
                // Requests that are posted later have not waited: an ACK in front of them completes the
                // peer's request before the reply to it.
                self.requests_first =
                    !is_requests && (self.requester.has_unsent() || self.requester.has_repairs());
                break;
            }
        }
        holds
    }

    /// Writes the only packet there is to send, if it is a whole message: see
    /// [`Requester::transmit_single`].
    pub(crate) fn transmit_single<O: Observer>(
        &mut self,
        delay_acks: bool,
        window: &mut PeerWindow,
        memory: &impl Memory,
        buf: &mut [u8],
        cx: &mut Context<'_, O>,
    ) -> Option<usize> {
        let Self { qp, requester, responder, timers, .. } = self;
        let responses = &responder.responses;
        let is_held = delay_acks && responses.is_only_an_ack();
        let has_responses = !responses.is_empty() && !is_held;
        if qp.state != QpState::ReadyToSend || has_responses {
            return None;
        }
        let len = requester.transmit_single(qp, timers, window, memory, buf, cx)?;
        self.requests_first = false;
        Some(len)
    }

    /// Writes the ACK that is all there is to respond, if it fits behind the message in the train.
    // Apart, so that the code that writes other trains stays as it is.
    #[cold]
    #[inline(never)]
    pub(crate) fn transmit_ack_behind<O: Observer>(
        &mut self,
        memory: &impl Memory,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) {
        let Self { qp, responder, receives, is_marked, .. } = self;
        let written =
            responder.write_responses(qp, receives.own(), memory, train, is_marked, cx).is_ok();
        debug_assert!(written, "an ACK reads no memory");
    }

    /// Returns true if the train just written was of requests without AckReq, and the next one has
    /// to follow it: see [`Requester::must_continue`].
    pub(crate) fn must_continue(&self) -> bool {
        !self.requests_first && self.qp.state.is_sending() && self.requester.must_continue()
    }

    /// Returns false if what is sent next is one packet behind others that are in flight and timed.
    pub(crate) fn needs_fresh_now(&self) -> bool {
        self.requester.needs_fresh_now(&self.timers)
    }

    /// Returns what is left to send.
    #[inline]
    pub(crate) fn demand(&self) -> TxDemand {
        let Self { qp, requester, responder, .. } = self;
        let responses = &responder.responses;
        TxDemand {
            requests: requester.has_unsent() && qp.state.is_sending(),
            is_paced: false,
            repairs: requester.has_repairs() && qp.state.is_sending(),
            responses: if responses.is_empty() {
                PendingResponses::None
            } else if responses.is_only_an_ack() {
                PendingResponses::AckOnly
            } else {
                PendingResponses::Some
            },
        }
    }

    /// Address of the peer, if the queue pair has a path.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.qp.params.path.map(|path| path.remote)
    }

    /// Returns true if requests are sent and not acknowledged, and more may be sent.
    pub(crate) fn has_outstanding(&self) -> bool {
        self.requester.send().in_flight() > 0 && self.qp.state.is_sending()
    }

    /// The next train is of requests: the queue pair has waited for the peer window for them.
    pub(crate) fn prefer_requests(&mut self) {
        self.requests_first = true;
    }

    /// Forgets frames in flight: another peer window numbers those that follow.
    pub(crate) fn reset_frames(&mut self) {
        self.requester.reset_frames();
    }

    /// The earliest deadline of a timer.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let earliest = self.timers.earliest();
        match self.requester.wakes_at() {
            None => earliest,
            Some(at) => Some(earliest.map_or(at, |earliest| earliest.min(at))),
        }
    }

    pub(crate) const fn context(&self) -> &QpContext {
        &self.qp
    }

    /// Returns attributes and state.
    pub(crate) fn info(&self) -> QpInfo {
        let QpContext { init, state, mut attributes, .. } = self.qp;
        let send = self.requester.send();
        attributes.state = Some(state);
        attributes.current_state = Some(state);
        if attributes.sq_psn.is_some() {
            attributes.sq_psn = Some(send.psn(send.max_sent()));
        }
        if attributes.rq_psn.is_some() {
            attributes.rq_psn = Some(self.responder.expected);
        }
        QpInfo {
            init,
            state,
            attributes,
            is_draining: send.is_draining(),
            sends_outstanding: send.len() as u32, // at most `MAX_WR`
            receives_posted: self.receives.own().map_or(0, ReceiveQueue::len),
        }
    }

    /// Returns the rate in bits per second to which congestion control limits the sender, if it does.
    pub(crate) fn rate_limit(&self) -> Option<u64> {
        self.requester.rate_limit()
    }

    fn transmit_requests<O: Observer>(
        &mut self,
        window: &mut PeerWindow,
        memory: &mut impl Memory,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) {
        let Self { qp, requester, timers, .. } = self;
        if !qp.state.is_sending() || requester.send().is_empty() {
            return;
        }
        if let Err(status) = requester.transmit(qp, timers, window, memory, train, cx) {
            self.fail(Some(status), cx);
        }
    }

    /// In ERROR too, where the NAK is still to be sent.
    fn transmit_responses<O: Observer>(
        &mut self,
        memory: &impl Memory,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) {
        let Self { qp, responder, receives, is_marked, .. } = self;
        if responder.responses.is_empty() {
            return;
        }
        let Err(broken) =
            responder.write_responses(qp, receives.own(), memory, train, is_marked, cx)
        else {
            return;
        };
        // Later responses must not be sent: they would acknowledge this one.
        responder.responses.clear();
        responder.expected = broken.psn;
        self.fail_request(ResponderError::Fault(RequestFault::RemoteMemory(broken.fault)), cx);
        // Only the NAK is left, which needs no memory.
        let Self { qp, responder, receives, is_marked, .. } = self;
        let _refused =
            responder.write_responses(qp, receives.own(), memory, train, is_marked, cx).is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_queue_pair_takes_about_a_kilobyte() {
        let len = size_of::<RcQueuePair>();
        assert!(len <= 1040, "{len} bytes");
    }
}
