//! One end of an unreliable connection.

use roce_wire::{Ecn, Packet, Psn, Verified};

use super::Unreliable;
use crate::congestion::NotificationPoint;
use crate::context::{Context, DropReason};
use crate::qp::context::QpContext;
use crate::qp::incoming_message::{IncomingMessage, Placed};
use crate::qp::local_operation::execute_local;
use crate::qp::modify;
use crate::qp::outgoing_message::DataPacket;
use crate::qp::shared_receive_queue::SrqTable;
use crate::train::TrainWriter;
use crate::transfer::GatherCopy;
use crate::unreliable::pacer::Pacer;
use crate::{
    CompletionStatus, Memory, ModifyError, Observer, PostError, QpAttributes, QpInfo, QpState,
    RecvWr, RequestFault, SendWr,
};

/// One end of an unreliable connection.
#[derive(Debug)]
pub(crate) struct UcQueuePair {
    pub(crate) base: Unreliable,
    /// The PSN of the next packet, if none is lost.
    expected: Psn,
    message: IncomingMessage,
    notification: NotificationPoint,
}

/// A packet at most so far behind the expected one is a late or duplicated one, and dropped. One
/// further behind shows that half the PSN circle was lost.
const MAX_LATE: i32 = 1 << 16;

impl UcQueuePair {
    /// A queue pair in RESET.
    pub(crate) fn new(qp: QpContext) -> Self {
        let (expected, message) = (Psn::ZERO, IncomingMessage::None);
        let notification = NotificationPoint::default();
        Self { base: Unreliable::new(qp), expected, message, notification }
    }

    pub(crate) fn modify<O: Observer>(
        &mut self,
        asked: &QpAttributes,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ModifyError> {
        let Unreliable { qp, .. } = &self.base;
        // The receive of a message that is not whole is flushed before those behind it.
        if modify::validate(qp.init.service, qp.state, asked)? == QpState::Error {
            self.flush_message(CompletionStatus::WorkRequestFlushed, cx);
        }
        match self.base.modify(asked, cx)? {
            (_, QpState::Reset) => self.message = IncomingMessage::None,
            (QpState::Init, QpState::ReadyToReceive) => {
                self.expected = asked.rq_psn.unwrap_or_default();
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn post_send<O: Observer>(
        &mut self,
        work: SendWr,
        cx: &mut Context<'_, O>,
    ) -> Result<(), PostError> {
        self.base.post_send(work, cx)
    }

    pub(crate) fn post_recv<O: Observer>(
        &mut self,
        work: RecvWr,
        cx: &mut Context<'_, O>,
    ) -> Result<(), PostError> {
        self.base.post_recv(work, u32::from(self.message.holds_receive()), cx)
    }

    /// Returns true if a message that is not whole holds a receive.
    pub(crate) const fn holds_receive(&self) -> bool {
        self.message.holds_receive()
    }

    /// Writes one train of requests.
    pub(crate) fn transmit<M: Memory, O: Observer>(
        &mut self,
        memory: &mut M,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) {
        let Unreliable { qp, sender, .. } = &mut self.base;
        let max_rate = qp.params.path.and_then(|path| path.max_rate);
        let max_packets = Pacer::max_packets(max_rate, qp.params.mtu);
        let mut gather = GatherCopy::new();
        let mut failed = None;
        while (train.packets() as u64) < max_packets
            && let Some(entry) = sender.sendable(qp.state, cx.time)
        {
            if entry.work.operation.is_local() {
                match execute_local(&entry.work.operation, qp.accessor(), memory) {
                    Ok(()) => sender.commit(0, qp, cx),
                    Err(status) => failed = Some(status),
                }
                if failed.is_some() {
                    break;
                }
                continue;
            }
            let memory = &*memory;
            let packet = DataPacket { entry, seq: sender.next, psn: sender.psn() };
            let end = sender.next.saturating_add(max_packets - train.packets() as u64);
            let written = match sender.next > entry.first {
                true => packet.write_middle(end, qp, memory, &gather, |_| false, train),
                false => 0,
            };
            if written > 0 {
                sender.commit(written, qp, cx);
                continue;
            }
            match packet.write(qp, memory, &mut gather, || false, train) {
                Ok(true) => sender.commit(1, qp, cx),
                Ok(false) => break,
                Err(_) => {
                    failed = Some(CompletionStatus::LocalProtectionError);
                    break;
                }
            }
        }
        sender.on_train(train.len(), max_rate, qp, cx);
        if let Some(status) = failed {
            self.base.fail_send(Some(status), cx);
        }
    }

    /// Handles a packet, of the peer or of another host.
    pub(crate) fn handle_packet<O: Observer>(
        &mut self,
        packet: &Packet<'_, Verified>,
        srqs: &mut SrqTable,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) {
        let (psn, info) = (packet.bth().psn(), packet.view());
        if let Err(cause) = self.base.qp.admit(packet) {
            return cx.dropped(psn, cause);
        }
        if packet.ecn() == Ecn::CongestionExperienced {
            cx.on_marked(&mut self.notification, self.base.qp.path_and_dest());
        }
        let ahead = psn.distance_from(self.expected);
        if (-MAX_LATE..0).contains(&ahead) {
            return cx.dropped(psn, DropReason::OutOfSequence);
        }
        //= rule uc-gap: InfiniBand 9.8.2; rxe_resp.c: check_psn
        //# A gap drops the message that it cuts, and nothing else; the next begins with a First or
        //# Only packet.
        // A message ends with its last packet, with a gap, or with the first packet of the next.
        if ahead != 0 || info.position().is_first() {
            self.drop_message(srqs, cx);
        }
        if !self.message.admits(info.operation(), info.position()) {
            self.drop_message(srqs, cx);
            if ahead == 0 {
                self.expected = psn.advanced_by(1);
            }
            return cx.dropped(psn, DropReason::OutOfSequence);
        }
        self.expected = psn.advanced_by(1);
        cx.counters().rcvd_pkts += 1;
        cx.out.observer.packet_accepted(cx.now, cx.qpn, psn);
        let Unreliable { qp, receives, .. } = &mut self.base;
        qp.note_established(cx);
        let Some(receives) = receives.queue_mut(srqs) else { return };
        match self.message.place(packet.view(), qp, receives, memory) {
            Ok(Placed::Part) => {}
            Ok(Placed::Whole(None)) => cx.counters().uc_rcvd_msgs += 1,
            Ok(Placed::Whole(Some(completion))) => {
                cx.counters().uc_rcvd_msgs += 1;
                cx.counters().rdma_recvs += 1;
                qp.complete_received(completion, cx);
            }
            //= rule uc-no-receive: rxe_resp.c: check_resource
            //# A message without a receive is dropped as a whole.
            Ok(Placed::NoReceive) => {
                self.message = IncomingMessage::None;
                cx.dropped(psn, DropReason::OutOfBuffer);
            }
            Err(RequestFault::ReceiveMemory(_)) => {
                cx.counters().local_protection_err += 1;
                self.flush_message(CompletionStatus::LocalProtectionError, cx);
                self.base.fail(cx);
            }
            //= rule uc-fault-drops: InfiniBand 9.9.3; rxe_resp.c: do_class_d1e_error
            //# A message that its headers or its receive do not allow is dropped without a
            //# response, and the receive is used for the next.
            Err(fault) => {
                cx.out.observer.request_refused(cx.now, cx.qpn, psn, &fault);
                self.drop_refused(srqs, cx);
            }
        }
    }

    /// Gives up the message that is not whole, if there is one. Its receive is used for the next.
    fn drop_message<O: Observer>(&mut self, srqs: &mut SrqTable, cx: &mut Context<'_, O>) {
        if !matches!(self.message, IncomingMessage::None) {
            self.drop_refused(srqs, cx);
        }
    }

    fn drop_refused<O: Observer>(&mut self, srqs: &mut SrqTable, cx: &mut Context<'_, O>) {
        cx.counters().uc_dropped_msgs += 1;
        if let Some(work) = self.message.take_receive()
            && let Some(receives) = self.base.receives.queue_mut(srqs)
        {
            receives.put_back(work);
        }
    }

    fn flush_message<O: Observer>(&mut self, status: CompletionStatus, cx: &mut Context<'_, O>) {
        if let Some(work) = self.message.take_receive() {
            self.base.qp.complete_receive(&work, status, cx);
        }
    }

    /// The queue pair failed for an external reason.
    pub(crate) fn handle_failure<O: Observer>(&mut self, cx: &mut Context<'_, O>) {
        self.flush_message(CompletionStatus::WorkRequestFlushed, cx);
        self.base.fail(cx);
    }

    /// Returns attributes and state.
    pub(crate) fn info(&self) -> QpInfo {
        let mut info = self.base.info();
        if info.attributes.rq_psn.is_some() {
            info.attributes.rq_psn = Some(self.expected);
        }
        info
    }
}
