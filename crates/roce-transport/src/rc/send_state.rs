//! The send state of a queue pair: its requests, and the sequence numbers that they use.
//!
//! It knows neither timers nor windows nor losses: the requester sends, `loss_recovery` says where to go
//! back, and the completer acknowledges.

mod credit;
mod outstanding_reads;

use roce_wire::{Aeth, Psn, Syndrome};

use self::credit::Credit;
pub(crate) use self::outstanding_reads::{OutstandingReads, ReadRequest, ResponseKind};
use crate::context::Context;
use crate::qp::context::QpContext;
use crate::qp::send_queue::{SendEntry, SendQueue};
use crate::{AsyncEvent, CompletionStatus, Counters, InlineData, Observer, PostError, SendWr};

/// The requests of a queue pair, and how far they are sent and acknowledged.
///
/// ```text
///   unacked     next         max_sent        end of the queue
///     |  in flight |  to resend  |  to send first  |
/// ----+------------+-------------+-----------------+---->  sequence numbers
/// ```
/// Invariant: `unacked <= next <= max_sent`, and `max_sent - unacked` is below half the PSN
/// circle; otherwise "duplicate" and "never sent" could not be told apart.
#[derive(Debug)]
pub(crate) struct SendState {
    queue: SendQueue,
    /// The PSN of sequence number 0.
    first_psn: Psn,
    /// Oldest sequence number that is not acknowledged; part of the entry in front.
    unacked: u64,
    next: SendPosition,
    max_sent: u64,
    reads: OutstandingReads,
    credit: Credit,
    /// Packets sent since the last one that carried AckReq.
    since_ack_req: u32,
    /// Entries from this number on are not started: the queue is being drained.
    drain_before: Option<u64>,
    is_drained: bool,
}

/// Where in the send queue a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendPosition {
    /// Its sequence number.
    pub(crate) seq: u64,
    /// Number of the entry that it is part of.
    pub(crate) entry: u64,
}

/// Packets of one request that were written and are about to leave.
pub(crate) struct Sent {
    /// Sequence numbers used.
    pub(crate) seqs: u64,
    /// Packets: one for a READ request, whatever sequence numbers its responses use.
    pub(crate) packets: u64,
    /// The first packet begins a message that the peer counts, and was never sent before.
    pub(crate) begins: bool,
    /// The last packet ends the request.
    pub(crate) ends: bool,
    /// READ request or atomic that was sent for the first time.
    pub(crate) read: Option<ReadRequest>,
    /// Bytes that the packet requests.
    pub(crate) response_len: u64,
}

impl Sent {
    /// `packets` packets of a SEND or WRITE.
    pub(crate) const fn data(packets: u64, begins: bool, ends: bool) -> Self {
        Self { seqs: packets, packets, begins, ends, read: None, response_len: 0 }
    }
}

impl SendState {
    /// That of a new connection, whose first packet has this PSN.
    pub(crate) fn new(first_psn: Psn) -> Self {
        Self {
            queue: SendQueue::default(),
            first_psn,
            unacked: 0,
            next: SendPosition::default(),
            max_sent: 0,
            reads: OutstandingReads::default(),
            credit: Credit::default(),
            since_ack_req: 0,
            drain_before: None,
            is_drained: false,
        }
    }

    /// Oldest sequence number that is not acknowledged.
    #[inline]
    pub(crate) const fn unacked(&self) -> u64 {
        self.unacked
    }

    /// Sequence number that is sent next.
    #[inline]
    pub(crate) const fn next(&self) -> u64 {
        self.next.seq
    }

    /// Position of the packet that is sent next.
    #[inline]
    pub(crate) const fn position(&self) -> SendPosition {
        self.next
    }

    /// First sequence number that was never sent.
    #[inline]
    pub(crate) const fn max_sent(&self) -> u64 {
        self.max_sent
    }

    /// Sequence numbers in flight.
    #[inline]
    pub(crate) const fn in_flight(&self) -> u64 {
        self.next.seq - self.unacked
    }

    /// The PSN of a sequence number.
    #[inline]
    pub(crate) const fn psn(&self, seq: u64) -> Psn {
        self.first_psn.advanced_by((seq % Psn::MODULUS as u64) as u32)
    }

    /// Returns the sequence number of `psn` if its packet is sent and not acknowledged.
    pub(crate) fn outstanding(&self, psn: Psn) -> Option<u64> {
        let ahead = u64::try_from(psn.distance_from(self.psn(self.unacked))).ok()?;
        Some(self.unacked + ahead).filter(|seq| *seq < self.max_sent)
    }

    /// READ requests and atomics whose responses are outstanding.
    #[inline]
    pub(crate) const fn reads(&self) -> &OutstandingReads {
        &self.reads
    }

    /// Returns the oldest response that is missing, if one is.
    #[inline]
    pub(crate) fn first_missing_response(&self) -> Option<u64> {
        self.reads.first_missing(self.unacked)
    }

    /// Returns the number of READ requests and atomics in flight.
    #[inline]
    pub(crate) fn reads_in_flight(&self) -> usize {
        self.reads.outstanding(self.next.seq)
    }

    /// A part of the READ request with `seq` was requested again from there on.
    pub(crate) fn note_split(&mut self, seq: u64) {
        self.reads.note_split(seq);
    }

    /// Returns true if no packet behind that of `seq` was ever sent.
    pub(crate) fn is_last_sent(&self, seq: u64) -> bool {
        self.reads.find(seq).map_or(seq + 1, |it| it.end) >= self.max_sent
    }

    /// The request of which a packet is sent next; `None` if nothing is left.
    #[inline]
    pub(crate) fn current(&self) -> Option<SendEntry<'_>> {
        self.queue.get(self.next.entry)
    }

    /// As [`current`](Self::current), if it is the last of the queue.
    #[inline]
    pub(crate) fn current_if_last(&self) -> Option<SendEntry<'_>> {
        self.queue.last_if(self.next.entry)
    }

    /// Returns true if the next packet is of the oldest request.
    #[inline]
    pub(crate) const fn is_current_in_front(&self) -> bool {
        self.next.entry == self.queue.head()
    }

    /// The oldest request.
    #[inline]
    pub(crate) fn front(&self) -> Option<SendEntry<'_>> {
        self.queue.front()
    }

    /// The request with this number.
    pub(crate) fn get(&self, number: u64) -> Option<SendEntry<'_>> {
        self.queue.get(number)
    }

    /// The request with the packet `seq`.
    pub(crate) fn containing(&self, seq: u64) -> Option<SendEntry<'_>> {
        self.queue.containing(seq)
    }

    /// Requests posted and not complete.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Makes room for another request.
    ///
    /// # Errors
    /// [`PostError::OutOfMemory`].
    #[inline]
    pub(crate) fn reserve(&mut self) -> Result<(), PostError> {
        self.queue.reserve()
    }

    /// Puts a request at the end.
    #[inline]
    pub(crate) fn push(&mut self, work: SendWr, len: u64, packets: u32) {
        self.queue.push(work, len, packets);
    }

    /// Returns empty inline data, with the memory of a completed request if there is some.
    pub(crate) fn take_inline_buffer(&mut self) -> InlineData {
        self.queue.take_inline_buffer()
    }

    /// Returns true if the next packet may be the first of this request.
    #[inline]
    pub(crate) fn may_begin(&self, entry: SendEntry<'_>) -> bool {
        let operation = entry.work.operation;
        //= rule rc-fence: InfiniBand, clause not known; rxe_req.c: req_next_wqe
        //# A fenced request begins once the READs and atomics before it are complete.
        if entry.work.fence && self.reads_in_flight() > 0 {
            return false;
        }
        //= rule rc-credits: InfiniBand 9.7.7.2
        //# A message that takes a receive begins only if the peer has one for it. One such message at a
        //# time may begin without.
        let was_sent_before = self.next.seq < self.max_sent;
        // Without a credit one message at a time finds out whether a receive is posted.
        was_sent_before
            || !operation.takes_receive()
            || self.next.seq == self.unacked
            || self.credit.has_room()
    }

    /// A response says how many receives the peer has posted.
    #[inline]
    pub(crate) fn update_credits(&mut self, aeth: Aeth) {
        if let Syndrome::Ack { credits } = aeth.syndrome {
            self.credit.update(aeth.msn, credits.count());
        }
    }

    /// Returns the receives left behind the current message, or, if a message `begins` now, behind
    /// that one; `None` while the peer does not advertise credits.
    pub(crate) fn credits_left(&self, begins: bool) -> Option<u32> {
        self.credit.left(begins)
    }

    /// Packets sent since the last one that carried AckReq.
    #[inline]
    pub(crate) const fn since_ack_req(&self) -> u32 {
        self.since_ack_req
    }

    #[inline]
    pub(crate) fn set_since_ack_req(&mut self, packets: u32) {
        self.since_ack_req = packets;
    }

    /// Returns true if a packet in flight carried AckReq.
    #[inline]
    pub(crate) fn has_requested_ack(&self) -> bool {
        // Each packet since then has one sequence number: a READ request always carries AckReq.
        self.next.seq.saturating_sub(u64::from(self.since_ack_req)) > self.unacked
    }

    /// Returns true if the packet sent last ended a request that defers its ACK.
    pub(crate) fn defers_ack(&self) -> bool {
        let last = self.next.entry.checked_sub(1).and_then(|number| self.queue.get(number));
        last.is_some_and(|it| it.work.defer_ack && it.end() == self.next.seq)
    }

    /// The position of the last packet sent, if it can be a probe. It cannot while responses with data
    /// are outstanding: a probe would request them again.
    pub(crate) fn last_in_flight(&self) -> Option<SendPosition> {
        let last = self.next.seq.checked_sub(1).filter(|last| *last >= self.unacked)?;
        if self.reads_in_flight() > 0 {
            return None;
        }
        let holds = |entry: SendEntry<'_>| entry.first <= last && last < entry.end();
        let mut numbers = (self.queue.head()..=self.next.entry).rev();
        let number = numbers.find(|it| self.queue.get(*it).is_some_and(holds))?;
        Some(SendPosition { seq: last, entry: number })
    }

    /// The position of the oldest packet that is not acknowledged.
    pub(crate) const fn oldest(&self) -> SendPosition {
        SendPosition { seq: self.unacked, entry: self.queue.head() }
    }

    /// Advances over packets that were written.
    #[inline]
    pub(crate) fn commit(&mut self, sent: &Sent, counters: &mut Counters) {
        counters.resent_pkts += sent.packets.min(self.max_sent - self.next.seq);
        self.next.seq += sent.seqs;
        self.max_sent = self.max_sent.max(self.next.seq);
        self.next.entry += u64::from(sent.ends);
        if sent.begins {
            self.credit.on_begun();
        }
        if let Some(request) = sent.read {
            self.reads.push(request);
        }
    }

    /// Everything before `to` is acknowledged, and every response before it has arrived.
    #[inline]
    pub(crate) fn acknowledge(&mut self, to: u64) {
        self.unacked = to;
        self.reads.settle(to);
    }

    /// Completes the entries in front that are wholly acknowledged. Local operations complete where
    /// they are executed.
    #[inline]
    pub(crate) fn retire<O: Observer>(&mut self, qp: &QpContext, cx: &mut Context<'_, O>) {
        while self
            .queue
            .front()
            .is_some_and(|it| it.end() <= self.unacked && !it.work.operation.is_local())
        {
            self.queue.complete_front(CompletionStatus::Success, qp, cx);
        }
        self.note_drained(qp, cx);
        if self.next.seq <= self.unacked {
            // A response to what was sent before the retransmission.
            self.next = self.oldest();
        }
    }

    /// Returns true if the request in front is a local operation that may be executed.
    #[inline]
    pub(crate) fn is_local_due(&self) -> bool {
        self.is_current_in_front()
            && self.current().is_some_and(|it| it.work.operation.is_local())
            && !self.is_stopped()
    }

    /// Completes the request in front, a local operation whose turn it is.
    pub(crate) fn complete_local<O: Observer>(&mut self, qp: &QpContext, cx: &mut Context<'_, O>) {
        self.queue.complete_front(CompletionStatus::Success, qp, cx);
        self.next.entry += 1;
        self.note_drained(qp, cx);
    }

    /// Ends the request in front with `status`, if there is one.
    pub(crate) fn fail_front<O: Observer>(
        &mut self,
        status: CompletionStatus,
        qp: &QpContext,
        cx: &mut Context<'_, O>,
    ) {
        self.queue.complete_front(status, qp, cx);
    }

    /// Ends all requests without executing them.
    pub(crate) fn flush<O: Observer>(&mut self, qp: &QpContext, cx: &mut Context<'_, O>) {
        while self.queue.front().is_some() {
            self.queue.complete_front(CompletionStatus::WorkRequestFlushed, qp, cx);
        }
    }

    /// Sends from the oldest packet on again.
    //= rule rc-go-back-n: InfiniBand, clause not known; rxe_req.c: req_retry
    //# What is sent again begins with the oldest packet that is not acknowledged, with the PSNs of the
    //# first time.
    pub(crate) fn go_back(&mut self) {
        self.next = self.oldest();
        self.since_ack_req = 0;
    }

    /// Sends from `position` on, which was to be sent next before.
    pub(crate) fn resume(&mut self, position: SendPosition) {
        self.next = position;
    }

    /// Returns true if a request is queued that must end without another call by the application.
    /// In a queue that is being drained that is what was begun.
    #[inline]
    pub(crate) fn has_to_end(&self) -> bool {
        !self.queue.is_empty() && self.drain_before.is_none_or(|it| self.queue.head() < it)
    }

    /// Starts no further request.
    //= rule qp-drain: InfiniBand, clause not known; rxe_req.c: req_next_wqe; rxe_comp.c: complete_ack
    //# In SQD no request begins. An event tells when those that were begun are complete.
    pub(crate) fn drain(&mut self) {
        let begun = self.current().is_some_and(|it| self.next.seq > it.first);
        // What was started before a retransmission is finished too.
        let mut number = self.next.entry + u64::from(begun);
        while self.queue.get(number).is_some_and(|it| it.first < self.max_sent) {
            number += 1;
        }
        self.drain_before = Some(number);
        self.is_drained = false;
    }

    /// Starts requests again.
    pub(crate) fn stop_draining(&mut self) {
        self.drain_before = None;
        self.is_drained = false;
    }

    /// Returns true if draining does not let the current request start.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.drain_before.is_some_and(|it| self.next.entry >= it)
    }

    /// Returns true from [`drain`](Self::drain) to [`stop_draining`](Self::stop_draining).
    #[inline]
    pub(crate) const fn is_to_be_drained(&self) -> bool {
        self.drain_before.is_some()
    }

    /// Returns true if the queue is being drained and a started request is not complete.
    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.drain_before.is_some() && !self.is_drained
    }

    /// Raises the event once the queue is drained.
    //= also qp-drain
    #[inline]
    pub(crate) fn note_drained<O: Observer>(&mut self, qp: &QpContext, cx: &mut Context<'_, O>) {
        if self.is_draining() && self.drain_before.is_some_and(|it| self.queue.head() >= it) {
            self.is_drained = true;
            if qp.params.sqd_notify {
                cx.raise(AsyncEvent::SendQueueDrained { qpn: cx.qpn });
            }
        }
    }
}
