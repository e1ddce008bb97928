//! The requester: turns posted requests into packets.

use crate::context::Context;
use crate::rc::common::Common;
use crate::rc::reads::ReadRequest;
use crate::rc::send_queue::SendEntry;
use crate::rc::sender::Sender;
use crate::timers::Timers;
use crate::train::TrainWriter;
use crate::transfer::Gather;
use crate::{CompletionStatus, Memory, Observer, SendOperation};

/// The most packets in a row of which none asks for an acknowledgement.
const MAX_UNASKED: u32 = 128;

/// How often the window's worth of packets asks for an acknowledgement, while one queue pair's
/// trains follow each other. With one for each train WRITEs of 1 MiB go 4 % slower at path MTU
/// 4096; with 8 as fast, but then a message of 128 KiB asks in its middle, which takes 3 % off an
/// allreduce of 256 KiB. Where queue pairs take turns each train asks, for its answer tells
/// when the peer has room for the next one's.
const ASKED: u32 = 4;

/// What became of an attempt to write the next packet.
pub(super) enum Step {
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
pub(super) struct Sent {
    /// Sequence numbers used.
    pub(super) packets: u32,
    pub(super) asks_for_ack: bool,
    /// It begins a message that the peer counts, and was never sent before.
    pub(super) begins: bool,
    /// It asks for answers, for the first time.
    pub(super) read: Option<ReadRequest>,
    /// So many bytes of them.
    pub(super) answer_len: u64,
}

impl Sender {
    /// Writes what may leave now and fits into one train.
    ///
    /// # Errors
    /// The request in front cannot be sent and ends with this.
    pub(crate) fn transmit<M: Memory, O: Observer>(
        &mut self,
        common: &Common,
        timers: &mut Timers,
        memory: &mut M,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        let mut gather = Gather::new();
        let (before, was_asked) = (self.sent_end, self.is_asked());
        if self.recovery.takes_probe() && self.write_probe(common, memory, train, cx) {
            self.keep_timed(common, timers, cx.time);
            return Ok(());
        }
        let result = loop {
            self.write_middles(common, memory, &gather, train, cx);
            match self.step(common, memory, &mut gather, train, cx) {
                Ok(Step::Sent(sent)) => self.note_sent(sent, cx),
                Ok(Step::Local) => {}
                Ok(Step::NoRoom) => break Ok(true),
                Ok(Step::Blocked) => break Ok(false),
                Err(status) => break Err(status),
            }
        };
        let goes_on = cx.is_alone && matches!(result, Ok(true));
        let may_wait =
            (goes_on && self.unasked < self.most_in_flight() / ASKED) || self.is_lazy_so_far();
        if train.packets() > 1 && !may_wait {
            train.request_ack();
            self.unasked = 0;
        }
        if self.sent_end > before && self.unasked == 0 {
            // Of a READ the first answer is what is timed.
            let last = self.sent_end - 1;
            let seq = self.reads.find(last).map_or(last, |request| request.start);
            self.recovery.on_sent(seq, cx.time);
        }
        if self.sent_end > before && !was_asked {
            self.recovery.on_unasked(cx.time);
        }
        self.keep_timed(common, timers, cx.time);
        result.map(|_| ())
    }

    fn step<M: Memory, O: Observer>(
        &mut self,
        common: &Common,
        memory: &mut M,
        gather: &mut Gather<M::Grant>,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) -> Result<Step, CompletionStatus> {
        if self.is_waiting_for_receiver || self.drain_before.is_some_and(|it| self.cursor >= it) {
            return Ok(Step::Blocked);
        }
        let Some(entry) = self.queue.get(self.cursor) else { return Ok(Step::Blocked) };
        let is_in_front = self.cursor == self.queue.head();
        let operation = entry.work.operation;
        if let SendOperation::LocalInvalidate { key } = operation {
            if !is_in_front {
                return Ok(Step::Blocked);
            }
            let done = memory.invalidate(common.init.pd, key);
            done.map_err(|_| CompletionStatus::LocalQpOperationError)?;
            self.complete_front(CompletionStatus::Success, common, cx);
            self.cursor += 1;
            self.note_drained(common, cx);
            return Ok(Step::Local);
        }
        if self.next == entry.first && !self.may_begin(entry) {
            return Ok(Step::Blocked);
        }
        if self.next - self.oldest >= u64::from(self.most_in_flight()) {
            self.window.on_limit();
            return Ok(Step::Blocked);
        }
        let step = match operation {
            SendOperation::Read { remote } => self.write_read(entry, remote, common, memory, train),
            _ if operation.is_atomic() => self.write_atomic(entry, common, memory, train),
            _ => self.write_data(entry, common, memory, gather, train),
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

    fn note_sent<O: Observer>(&mut self, sent: Sent, cx: &mut Context<'_, O>) {
        if self.next < self.sent_end {
            cx.counters().resent_pkts += 1;
        }
        self.next += u64::from(sent.packets);
        self.sent_end = self.sent_end.max(self.next);
        self.unasked = if sent.asks_for_ack { 0 } else { self.unasked + 1 };
        if sent.begins {
            self.credit.on_begun();
        }
        if let Some(request) = sent.read {
            self.reads.push(request);
        }
        if sent.answer_len > 0 {
            self.freight.expect(sent.answer_len);
        }
        if self.queue.get(self.cursor).is_some_and(|it| it.end() <= self.next) {
            self.cursor += 1;
        }
    }

    /// May the next packet be the first of this request?
    pub(super) fn may_begin(&self, entry: SendEntry<'_>) -> bool {
        let operation = entry.work.operation;
        if entry.work.fence && self.reads.outstanding(self.next) > 0 {
            return false;
        }
        let was_sent_before = self.next < self.sent_end;
        // Without a receive to count on, one message at a time asks whether there is one.
        was_sent_before
            || !operation.takes_receive()
            || self.next == self.oldest
            || self.credit.has_room()
    }

    /// Must the peer acknowledge the packet that is about to be sent?
    pub(super) fn must_ask(&self) -> bool {
        let size = self.most_in_flight();
        let in_flight = self.next + 1 - self.oldest;
        // In the middle of the window, so that it moves on before it is used up; and at its
        // end, or everybody would wait.
        self.unasked + 1 >= (size / 2).min(MAX_UNASKED)
            || in_flight >= u64::from(size)
            || self.recovery.wants_answer(in_flight)
    }

    /// Does nobody wait for the acknowledgement of this request, and nothing run short without it?
    pub(super) fn may_be_lazy(&self, entry: SendEntry<'_>, common: &Common) -> bool {
        let unasked = self.unasked + 1;
        // Asked in the middle, the peer has answered before there is nothing left.
        entry.work.defer_ack
            && !entry.work.signaled
            // Without a timer nobody would ever ask again.
            && common.settings.ack_timeout.is_some()
            && !common.init.signal_all
            && unasked < common.init.cap.max_send_wr / 2
            && (!entry.work.operation.takes_receive()
                || self.credit.left(self.next == entry.first).is_none_or(|left| unasked < left))
    }

    /// Did the packet sent last end a request whose acknowledgement nobody waits for?
    pub(super) fn is_lazy_so_far(&self) -> bool {
        let last = self.cursor.checked_sub(1).and_then(|number| self.queue.get(number));
        last.is_some_and(|it| it.work.defer_ack && it.end() == self.next)
    }
}
