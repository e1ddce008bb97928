//! Decides which packets of which requests leave next.

use super::Requester;
use super::ack_request::AckPolicy;
use super::packets::{ReadLimit, RequestWriter, Written};
use crate::context::Context;
use crate::peer_window::PeerWindow;
use crate::qp::context::QpContext;
use crate::qp::local_operation::execute_local;
use crate::timers::Timers;
use crate::train::TrainWriter;
use crate::transfer::GatherCopy;
use crate::{CompletionStatus, Memory, Observer, SendOperation};

/// Result of an attempt to send the next packet.
enum Step {
    /// It was written.
    Done,
    /// Nothing more can be sent now.
    Blocked,
    /// The packet does not fit into this train.
    NoRoom,
}

impl Requester {
    /// Writes one train of requests, which the peer window counts.
    ///
    /// # Errors
    /// The request in front cannot be sent and ends with this status.
    #[inline]
    pub(crate) fn transmit<M: Memory, O: Observer>(
        &mut self,
        qp: &QpContext,
        timers: &mut Timers,
        window: &mut PeerWindow,
        memory: &mut M,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        let start = self.send.next();
        let sent = self.write_train(qp, timers, memory, window.must_request_ack(), train, cx);
        if !train.is_empty() {
            let responses = self.frames.take_response_frames();
            // A probe does not count: its ACK cannot be told from that to the packet that it
            // repeats, which does not show that the frames between the two have left the ring.
            if self.send.next() > start {
                let packets = train.packets() as u32; // at most what fits into a frame
                let requests_ack = self.send.since_ack_req() == 0;
                let number = window.on_sent(packets, requests_ack, responses);
                self.note_frame(number, start);
            }
        }
        sent
    }

    /// Frame `number` leaves, with the sequence numbers from `start` on.
    #[inline]
    fn note_frame(&mut self, number: u64, start: u64) {
        let end = self.send.next();
        if !self.recovery.is_repairing() {
            return self.frames.on_sent(number, start, end);
        }
        self.frames.on_repair_sent(number, end);
        // Back to new packets once the repair is sent.
        if let Some(position) = self.recovery.end_repair(end) {
            self.send.resume(position);
        }
    }

    /// Returns true if the packets sent last, of requests, carried no AckReq, and there are more of
    /// them: if they waited for their next turn, they would wait for an ACK that no packet
    /// requested.
    pub(crate) fn must_continue(&self) -> bool {
        self.send.since_ack_req() != 0 && self.has_unsent() && !self.send.defers_ack()
    }

    /// Writes what may leave now and fits into one train.
    ///
    /// # Errors
    /// The request in front cannot be sent and ends with this status.
    fn write_train<M: Memory, O: Observer>(
        &mut self,
        qp: &QpContext,
        timers: &mut Timers,
        memory: &mut M,
        peer_wants_ack: bool,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        if self.recovery.has_to_repeat(self.send.reads()) {
            self.repeat(qp, timers, memory, train, cx);
            if !train.is_empty() {
                return Ok(());
            }
        }
        let start = self.send.next();
        if self.limit.is_paced(start, cx.time) {
            self.keep_timed(qp, timers, cx.time);
            return Ok(());
        }
        if self.send.is_local_due() {
            self.execute_local_operations(qp, memory, cx)?;
        }
        let mut gather = GatherCopy::new();
        let mut acks = self.ack_policy(peer_wants_ack);
        let (before, had_requested_ack) = (self.send.max_sent(), self.send.has_requested_ack());
        let result = loop {
            // A message that has begun is finished even while the queue is being drained.
            if !self.recovery.is_in_rnr_wait() {
                let writer = RequestWriter { send: &self.send, qp, memory: &*memory };
                if let Some(sent) = writer.middle_packets(&gather, &mut acks, train) {
                    self.commit(&sent, cx);
                }
            }
            match self.step(qp, memory, &mut gather, &mut acks, train, cx) {
                Ok(Step::Done) => {}
                Ok(Step::NoRoom) => break Ok(true),
                Ok(Step::Blocked) => break Ok(false),
                Err(status) => break Err(status),
            }
        };
        let continues = cx.is_alone && matches!(result, Ok(true));
        let (packets, window) = (train.packets(), self.window());
        if acks.requests_at_train_end(packets, continues, window, &self.send) {
            train.request_ack();
        }
        let Self { send, recovery, limit, .. } = self;
        send.set_since_ack_req(acks.since_ack_req());
        if send.max_sent() > before {
            if send.since_ack_req() == 0 {
                // Of a READ the first response is timed.
                let last = send.max_sent() - 1;
                let seq = send.reads().find(last).map_or(last, |request| request.start);
                recovery.on_sent(seq, cx.time);
            }
            if !had_requested_ack {
                recovery.rebase_probe_timer(cx.time);
            }
        }
        limit.on_sent(send.next().saturating_sub(start), qp, cx.time);
        self.keep_timed(qp, timers, cx.time);
        result.map(|_| ())
    }

    /// Executes the local operations in front. Apart, since trains begin with none.
    ///
    /// # Errors
    /// The request in front cannot be executed and ends with this status.
    #[cold]
    #[inline(never)]
    fn execute_local_operations<O: Observer>(
        &mut self,
        qp: &QpContext,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        while self.send.is_local_due()
            && let Some(entry) = self.send.current()
        {
            execute_local(&entry.work.operation, qp.accessor(), memory)?;
            self.send.complete_local(qp, cx);
        }
        Ok(())
    }

    fn step<M: Memory, O: Observer>(
        &mut self,
        qp: &QpContext,
        memory: &M,
        gather: &mut GatherCopy<M::Grant>,
        acks: &mut AckPolicy,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) -> Result<Step, CompletionStatus> {
        let Self { send, recovery, limit, .. } = self;
        if recovery.is_in_rnr_wait() || send.is_stopped() {
            return Ok(Step::Blocked);
        }
        let Some(entry) = send.current() else { return Ok(Step::Blocked) };
        let is_in_front = send.is_current_in_front();
        let operation = entry.work.operation;
        // In front it was executed before the train.
        if operation.is_local() {
            return Ok(Step::Blocked);
        }
        if send.next() == entry.first && !send.may_begin(entry) {
            return Ok(Step::Blocked);
        }
        // Computed once for the train: neither the window nor what is acknowledged changes meanwhile.
        if send.next() >= acks.window_end() {
            return Ok(self.at_window_end());
        }
        let writer = RequestWriter { send, qp, memory };
        let written = match operation {
            SendOperation::Read { remote } => {
                let limit = ReadLimit { window: limit.size(), train_end: limit.train_end() };
                writer.next_read(entry, remote, limit, acks, train)
            }
            _ if operation.is_single_request() => writer.single_request(entry, acks, train),
            _ => writer.data(entry, send.next(), gather, acks, train),
        };
        match written {
            Ok(Written::Sent(sent)) => {
                self.commit(&sent, cx);
                Ok(Step::Done)
            }
            Ok(Written::NoRoom) => Ok(Step::NoRoom),
            Ok(Written::Blocked) => Ok(Step::Blocked),
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
        if self.send.in_flight() < u64::from(self.window()) {
            return Step::NoRoom;
        }
        self.limit.on_window_limit();
        Step::Blocked
    }
}
