//! Decides which packets of which requests leave next.

use crate::context::Context;
use crate::qp::context::QpContext;
use crate::qp::send_queue::SendEntry;
use crate::rc::requester::Requester;
use crate::rc::requester::ack_request::AckPolicy;
use crate::rc::requester::outstanding_reads::ReadRequest;
use crate::timers::Timers;
use crate::train::TrainWriter;
use crate::transfer::GatherCopy;
use crate::{CompletionStatus, Memory, Observer, SendOperation};

/// Result of an attempt to write the next packet.
pub(crate) enum Step {
    /// The packet was written.
    Sent(Sent),
    /// A local operation was executed.
    Local,
    /// Nothing more can be sent now.
    Blocked,
    /// The packet does not fit into this train.
    NoRoom,
}

/// Packets of one request that were written and are about to leave.
pub(crate) struct Sent {
    /// Sequence numbers used.
    pub(super) seqs: u64,
    /// Packets: one for a READ request, whatever sequence numbers its responses use.
    pub(super) packets: u64,
    /// The first packet begins a message that the peer counts, and was never sent before.
    pub(super) begins: bool,
    /// The last packet ends the request.
    pub(super) ends: bool,
    /// READ request or atomic that was sent for the first time.
    pub(super) read: Option<ReadRequest>,
    /// Bytes that the packet requests.
    pub(super) response_len: u64,
}

impl Sent {
    /// `packets` packets of a SEND or WRITE.
    pub(super) const fn data(packets: u64, begins: bool, ends: bool) -> Self {
        Self { seqs: packets, packets, begins, ends, read: None, response_len: 0 }
    }
}

impl Requester {
    /// Writes what may leave now and fits into one train.
    ///
    /// # Errors
    /// The request in front cannot be sent and ends with this status.
    pub(crate) fn transmit<M: Memory, O: Observer>(
        &mut self,
        qp: &QpContext,
        timers: &mut Timers,
        memory: &mut M,
        peer_wants_ack: bool,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        if self.has_to_repeat() {
            self.repeat(qp, timers, memory, train, cx);
            if !train.is_empty() {
                return Ok(());
            }
        }
        if self.is_paced(cx.time) {
            self.keep_timed(qp, timers, cx.time);
            return Ok(());
        }
        let start = self.next;
        let mut gather = GatherCopy::new();
        let mut acks = AckPolicy::new(self, peer_wants_ack);
        let (before, had_requested_ack) = (self.max_sent, self.has_requested_ack());
        let result = loop {
            if let Some(sent) = self.write_middle_packets(qp, memory, &gather, &mut acks, train) {
                self.commit(&sent, cx.counters());
            }
            match self.step(qp, memory, &mut gather, &mut acks, train, cx) {
                Ok(Step::Sent(sent)) => self.commit(&sent, cx.counters()),
                Ok(Step::Local) => {}
                Ok(Step::NoRoom) => break Ok(true),
                Ok(Step::Blocked) => break Ok(false),
                Err(status) => break Err(status),
            }
        };
        let continues = cx.is_alone && matches!(result, Ok(true));
        if acks.requests_at_train_end(train.packets(), continues, self) {
            train.request_ack();
        }
        self.since_ack_req = acks.since_ack_req();
        if self.max_sent > before && self.since_ack_req == 0 {
            // Of a READ the first response is timed.
            let last = self.max_sent - 1;
            let seq = self.reads.find(last).map_or(last, |request| request.start);
            self.recovery.on_sent(seq, cx.time);
        }
        if self.max_sent > before && !had_requested_ack {
            self.recovery.rebase_probe_timer(cx.time);
        }
        self.note_paced(start, qp, cx.time);
        self.keep_timed(qp, timers, cx.time);
        result.map(|_| ())
    }

    fn step<M: Memory, O: Observer>(
        &mut self,
        qp: &QpContext,
        memory: &mut M,
        gather: &mut GatherCopy<M::Grant>,
        acks: &mut AckPolicy,
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
            let done = memory.invalidate(qp.accessor(), key);
            done.map_err(|_| CompletionStatus::LocalQpOperationError)?;
            self.queue.complete_front(CompletionStatus::Success, qp, cx);
            self.current_wqe += 1;
            self.note_drained(qp, cx);
            return Ok(Step::Local);
        }
        if self.next == entry.first && !self.may_begin(entry) {
            return Ok(Step::Blocked);
        }
        // Computed once for the train: neither the window nor what is acknowledged changes meanwhile.
        if self.next >= acks.window_end() {
            return Ok(self.at_window_end());
        }
        let step = match operation {
            SendOperation::Read { remote } => {
                self.write_read(entry, remote, qp, memory, acks, train)
            }
            _ if operation.is_atomic() => self.write_atomic(entry, qp, memory, acks, train),
            _ => self.write_data(entry, self.next, qp, memory, gather, acks, train),
        };
        match step {
            Ok(step) => Ok(step),
            // Earlier requests end first.
            Err(_) if !is_in_front => Ok(Step::Blocked),
            Err(_) => {
                cx.counters().local_protection_err += 1;
                Err(CompletionStatus::LocalProtectionError)
            }
        }
    }

    /// Returns what ends the train at the end of the window, or of the packets that pacing allows.
    #[cold]
    fn at_window_end(&mut self) -> Step {
        if self.next - self.unacked < u64::from(self.effective_window()) {
            return Step::NoRoom;
        }
        self.window.on_limit();
        Step::Blocked
    }

    /// Returns true if the next packet may be the first of this request.
    pub(crate) fn may_begin(&self, entry: SendEntry<'_>) -> bool {
        let operation = entry.work.operation;
        if entry.work.fence && self.reads.outstanding(self.next) > 0 {
            return false;
        }
        let was_sent_before = self.next < self.max_sent;
        // Without a credit one message at a time finds out whether a receive is posted.
        was_sent_before
            || !operation.takes_receive()
            || self.next == self.unacked
            || self.credit.has_room()
    }
}
