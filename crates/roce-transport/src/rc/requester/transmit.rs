//! The requester: turns posted requests into packets.

use crate::context::Context;
use crate::rc::qp_context::QpContext;
use crate::rc::requester::Requester;
use crate::rc::requester::outstanding_reads::ReadRequest;
use crate::rc::requester::send_queue::SendEntry;
use crate::timers::Timers;
use crate::train::TrainWriter;
use crate::transfer::GatherCopy;
use crate::{CompletionStatus, Memory, Observer, SendOperation};

/// The most packets in a row of which none asks for an acknowledgement.
const MAX_WITHOUT_ACK_REQ: u32 = 128;

/// How often the window's worth of packets asks for an acknowledgement, while one queue pair's
/// trains follow each other. With one for each train WRITEs of 1 MiB go 4 % slower at path MTU
/// 4096; with 8 as fast, but then a message of 128 KiB asks in its middle, which takes 3 % off an
/// allreduce of 256 KiB. Where queue pairs take turns each train asks, for its answer tells
/// when the peer has room for the next one's.
const ACK_REQUESTS_PER_WINDOW: u32 = 4;

/// What became of an attempt to write the next packet.
pub(crate) enum Step {
    /// It was written.
    Sent(Sent),
    /// Something was done that needs no packet.
    Local,
    /// Nothing more can be sent now.
    Blocked,
    /// It does not fit into this train.
    NoRoom,
}

/// A packet that was written.
pub(crate) struct Sent {
    /// Sequence numbers used.
    pub(crate) packets: u32,
    pub(crate) ack_request: bool,
    /// It begins a message that the peer counts, and was never sent before.
    pub(crate) begins: bool,
    /// It asks for answers, for the first time.
    pub(crate) read: Option<ReadRequest>,
    /// So many bytes of them.
    pub(crate) response_len: u64,
}

impl Requester {
    /// Writes what may leave now and fits into one train.
    ///
    /// # Errors
    /// The request in front cannot be sent and ends with this.
    pub(crate) fn transmit<M: Memory, O: Observer>(
        &mut self,
        qp: &QpContext,
        timers: &mut Timers,
        memory: &mut M,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        let mut gather = GatherCopy::new();
        let (before, had_requested_ack) = (self.max_sent, self.has_requested_ack());
        if self.recovery.take_probe() && self.write_probe(qp, memory, train, cx) {
            self.keep_timed(qp, timers, cx.time);
            return Ok(());
        }
        let result = loop {
            self.write_middle_packets(qp, memory, &gather, train, cx);
            match self.step(qp, memory, &mut gather, train, cx) {
                Ok(Step::Sent(sent)) => self.commit(sent, cx),
                Ok(Step::Local) => {}
                Ok(Step::NoRoom) => break Ok(true),
                Ok(Step::Blocked) => break Ok(false),
                Err(status) => break Err(status),
            }
        };
        let goes_on = cx.is_alone && matches!(result, Ok(true));
        let may_wait = (goes_on
            && self.since_ack_req < self.effective_window() / ACK_REQUESTS_PER_WINDOW)
            || self.defers_ack();
        if train.packets() > 1 && !may_wait {
            train.request_ack();
            self.since_ack_req = 0;
        }
        if self.max_sent > before && self.since_ack_req == 0 {
            // Of a READ the first answer is what is timed.
            let last = self.max_sent - 1;
            let seq = self.reads.find(last).map_or(last, |request| request.start);
            self.recovery.on_sent(seq, cx.time);
        }
        if self.max_sent > before && !had_requested_ack {
            self.recovery.rebase_probe_timer(cx.time);
        }
        self.keep_timed(qp, timers, cx.time);
        result.map(|_| ())
    }

    fn step<M: Memory, O: Observer>(
        &mut self,
        qp: &QpContext,
        memory: &mut M,
        gather: &mut GatherCopy<M::Grant>,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) -> Result<Step, CompletionStatus> {
        if self.in_rnr_wait || self.drain_before.is_some_and(|it| self.current_wqe >= it) {
            return Ok(Step::Blocked);
        }
        let Some(entry) = self.queue.get(self.current_wqe) else { return Ok(Step::Blocked) };
        let is_in_front = self.current_wqe == self.queue.head();
        let operation = entry.work.operation;
        if let SendOperation::LocalInvalidate { key } = operation {
            if !is_in_front {
                return Ok(Step::Blocked);
            }
            let done = memory.invalidate(qp.init.pd, key);
            done.map_err(|_| CompletionStatus::LocalQpOperationError)?;
            self.complete_front(CompletionStatus::Success, qp, cx);
            self.current_wqe += 1;
            self.note_drained(qp, cx);
            return Ok(Step::Local);
        }
        if self.next == entry.first && !self.may_begin(entry) {
            return Ok(Step::Blocked);
        }
        if self.next - self.unacked >= u64::from(self.effective_window()) {
            self.window.on_limit();
            return Ok(Step::Blocked);
        }
        let step = match operation {
            SendOperation::Read { remote } => self.write_read(entry, remote, qp, memory, train),
            _ if operation.is_atomic() => self.write_atomic(entry, qp, memory, train),
            _ => self.write_data(entry, qp, memory, gather, train),
        };
        match step {
            Ok(step) => Ok(step),
            // What was sent before it is not to blame and ends first.
            Err(_) if !is_in_front => Ok(Step::Blocked),
            Err(_) => {
                cx.counters().local_protection_err += 1;
                Err(CompletionStatus::LocalProtectionError)
            }
        }
    }

    fn commit<O: Observer>(&mut self, sent: Sent, cx: &mut Context<'_, O>) {
        if self.next < self.max_sent {
            cx.counters().resent_pkts += 1;
        }
        self.next += u64::from(sent.packets);
        self.max_sent = self.max_sent.max(self.next);
        self.since_ack_req = if sent.ack_request { 0 } else { self.since_ack_req + 1 };
        if sent.begins {
            self.credit.on_begun();
        }
        if let Some(request) = sent.read {
            self.reads.push(request);
        }
        if sent.response_len > 0 {
            self.frames.expect_response_frames(sent.response_len);
        }
        if self.queue.get(self.current_wqe).is_some_and(|it| it.end() <= self.next) {
            self.current_wqe += 1;
        }
    }

    /// May the next packet be the first of this request?
    pub(crate) fn may_begin(&self, entry: SendEntry<'_>) -> bool {
        let operation = entry.work.operation;
        if entry.work.fence && self.reads.outstanding(self.next) > 0 {
            return false;
        }
        let was_sent_before = self.next < self.max_sent;
        // Without a receive to count on, one message at a time asks whether there is one.
        was_sent_before
            || !operation.takes_receive()
            || self.next == self.unacked
            || self.credit.has_room()
    }

    /// Must the peer acknowledge the packet that is about to be sent?
    pub(crate) fn must_request_ack(&self) -> bool {
        let size = self.effective_window();
        let in_flight = self.next + 1 - self.unacked;
        // In the middle of the window, so that it moves on before it is used up; and at its
        // end, or everybody would wait.
        self.since_ack_req + 1 >= (size / 2).min(MAX_WITHOUT_ACK_REQ)
            || in_flight >= u64::from(size)
            || self.recovery.must_probe_ack(in_flight)
    }

    /// Does nobody wait for the acknowledgement of this request, and nothing run short without it?
    pub(crate) fn may_defer_ack(&self, entry: SendEntry<'_>, qp: &QpContext) -> bool {
        let since_ack_req = self.since_ack_req + 1;
        // Asked in the middle, the peer has answered before there is nothing left.
        entry.work.defer_ack
            && !entry.work.signaled
            // Without a timer nobody would ever ask again.
            && qp.params.ack_timeout.is_some()
            && !qp.init.signal_all
            && since_ack_req < qp.init.cap.max_send_wr / 2
            && (!entry.work.operation.takes_receive()
                || self.credit.left(self.next == entry.first).is_none_or(|left| since_ack_req < left))
    }

    /// Did the packet sent last end a request whose acknowledgement nobody waits for?
    pub(crate) fn defers_ack(&self) -> bool {
        let last = self.current_wqe.checked_sub(1).and_then(|number| self.queue.get(number));
        last.is_some_and(|it| it.work.defer_ack && it.end() == self.next)
    }
}
