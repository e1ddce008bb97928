//! The responder: executes the peer's new requests and responds to repeated ones.
//!
//! A request that cannot be executed is a [`RequestFault`], found in `qp/incoming_message.rs` for
//! SENDs and WRITEs and in `execute` for READs and atomics. [`RequestFault::nak_code`] has the NAK
//! code of each fault, and the queue pair sends the NAK and flushes (`rc/flush.rs`). NAKs for a PSN
//! sequence error and for a receiver that is not ready are made here.

mod execute;
mod resources;
pub(crate) mod response_queue;
mod response_writer;

use roce_wire::{NakCode, Operation, Packet, PacketView, Psn, Verified};

use self::execute::{change_of, check_atomic, check_atomic_write, check_flush, check_read};
use crate::context::{Context, DropReason};
use crate::qp::context::QpContext;
use crate::qp::incoming_message::{IncomingMessage, Placed};
use crate::qp::receive_queue::ReceiveQueue;
use crate::qp::segmentation::packets_for;
use crate::rc::reorder_buffer::{Arrival, MAX_AHEAD, ReorderBuffer};
use crate::rc::responder::resources::{Replay, Resource, Resources};
use crate::rc::responder::response_queue::{ReadResponse, Response, ResponseQueue};
use crate::reorder_budget::ReorderBudget;
use crate::{Completion, CompletionStatus, Instant, Memory, Observer, RequestFault};

/// The receiving half of a queue pair.
#[derive(Debug)]
pub(crate) struct Responder {
    /// The PSN of the next new request.
    pub(crate) expected: Psn,
    /// Messages executed, modulo 2^24.
    pub(crate) msn: u32,
    /// Last packet executed that was not a READ request: the PSN of the ACK to a repeated SEND or
    /// WRITE.
    pub(crate) last_executed: Psn,
    /// A NAK was sent, or is about to be, for the expected packet.
    sent_seq_nak: bool,
    /// Newest packet that arrived before a missing one.
    newest_out_of_order: Psn,
    pub(crate) message: IncomingMessage,
    pub(crate) resources: Resources,
    pub(crate) responses: ResponseQueue,
    /// Requests behind a missing packet.
    pub(crate) reorder: ReorderBuffer,
    /// The packet that was expected when one arrived that no sender sends so far ahead, and the
    /// time of the first of these in microseconds, which wrap.
    too_far: (Psn, u32),
}

/// Time without progress after which packets too far ahead draw a NAK. A peer that sends on beyond a gap
/// waits for one; packets of no peer come between those of one that makes progress.
const TOO_FAR_NAK_MICROS: u32 = 100;

/// What becomes of the NAK for a missing packet when that packet arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingNak {
    /// No NAK was due, or it was sent.
    None,
    /// It was not sent, and no packet is missing any more.
    Cancelled,
    /// It was not sent, and a later packet is missing.
    Due,
}

/// Why the execution of a request failed.
#[derive(Debug)]
pub(crate) enum ResponderError {
    /// A NAK is sent, and the queue pair goes to ERROR.
    Fault(RequestFault),
    /// The message was received, but its key cannot be invalidated: the queue pair goes to ERROR
    /// behind an ordinary ACK, as rxe does it.
    CannotInvalidate,
}

impl From<RequestFault> for ResponderError {
    fn from(fault: RequestFault) -> Self {
        Self::Fault(fault)
    }
}

impl Responder {
    pub(crate) fn new(first_psn: Psn, max_dest_rd_atomic: u8) -> Self {
        Self {
            expected: first_psn,
            msn: 0,
            last_executed: first_psn.previous(),
            sent_seq_nak: false,
            newest_out_of_order: first_psn,
            message: IncomingMessage::None,
            resources: Resources::new(max_dest_rd_atomic),
            responses: ResponseQueue::default(),
            reorder: ReorderBuffer::default(),
            too_far: (first_psn.previous(), 0),
        }
    }

    pub(crate) const fn msn(&self) -> u32 {
        self.msn
    }

    /// Receives for messages that the MSN does not count yet.
    pub(crate) fn receives(&self, receives: &ReceiveQueue) -> u32 {
        receives.len() + u32::from(self.message.holds_receive())
    }

    /// Sets the number of READs and atomics that the peer may have outstanding.
    pub(crate) fn set_max_dest_rd_atomic(&mut self, max: u8) {
        self.resources.set_capacity(max);
    }

    /// Handles a request of the peer.
    ///
    /// # Errors
    /// [`ResponderError`]: the queue pair goes to ERROR.
    pub(crate) fn handle_request<O: Observer>(
        &mut self,
        qp: &QpContext,
        packet: &Packet<'_, Verified>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ResponderError> {
        let psn = packet.bth().psn();
        //= rule rc-psn-order: InfiniBand 9.7.4; rxe_resp.c: check_psn
        //# Requests are executed in the order of their PSNs: only the expected one is. One behind
        //# it is behind a gap, one before it was executed.
        match psn.distance_from(self.expected) {
            0 => {
                self.execute(qp, packet.view(), receives, memory, cx)?;
                if self.reorder.is_empty() {
                    return Ok(());
                }
                self.execute_kept(qp, receives, memory, cx)
            }
            1.. => {
                self.on_out_of_order(qp, packet, cx);
                Ok(())
            }
            _ => {
                //= rule rc-duplicate-region: InfiniBand 9.7.4; rxe_verbs.h: psn_compare
                //# The 2^23 PSNs before the expected one are those of duplicates.
                cx.counters().duplicate_request += 1;
                self.handle_duplicate(qp, packet, cx);
                Ok(())
            }
        }
    }

    /// Keeps a request that arrived before a missing one, and reports the gap once.
    #[cold]
    #[inline(never)]
    fn on_out_of_order<O: Observer>(
        &mut self,
        qp: &QpContext,
        packet: &Packet<'_, Verified>,
        cx: &mut Context<'_, O>,
    ) {
        let psn = packet.bth().psn();
        let kept = self.reorder.keep(packet, self.expected, &mut cx.out.reorder_budget, cx.time);
        cx.counters().out_of_seq_request += u64::from(kept != Arrival::NoRoom);
        match kept {
            Arrival::Kept => cx.counters().reorder_kept += 1,
            Arrival::Duplicate => cx.dropped(psn, DropReason::ReorderDuplicate),
            Arrival::Differs => cx.dropped(psn, DropReason::ReorderDiffers),
            Arrival::NoRoom => {
                cx.counters().reorder_full += 1;
                cx.dropped(psn, DropReason::OutOfSequence);
            }
            Arrival::TooFar => {
                cx.dropped(psn, DropReason::ReorderTooFar);
                if !self.has_stopped_before_too_far(cx.time) {
                    return;
                }
            }
        }
        let ahead = psn.distance_from(self.newest_out_of_order);
        if kept != Arrival::TooFar && (!self.sent_seq_nak || ahead > 0) {
            self.newest_out_of_order = psn;
        }
        let is_news = ahead > 1 || packet.bth().ack_request();
        let is_first = !core::mem::replace(&mut self.sent_seq_nak, true);
        //= rule rc-gap-nak: InfiniBand 9.7.5; rxe_resp.c: check_psn
        //# A gap draws one NAK (PSN sequence error) for the missing packet, until that packet
        //# arrives.
        if is_first {
            cx.counters().send_seq_err += 1;
            self.push_nak(NakCode::PsnSequence);
        }
        if qp.params.gap_reports && (is_first || is_news) {
            self.report_gaps();
        }
    }

    /// A packet arrived from further ahead than any sender goes. Returns true if others have for a while,
    /// without one in order.
    fn has_stopped_before_too_far(&mut self, now: Instant) -> bool {
        let micros = (now.as_nanos() / 1000) as u32;
        if self.too_far.0 != self.expected {
            self.too_far = (self.expected, micros);
        }
        micros.wrapping_sub(self.too_far.1) >= TOO_FAR_NAK_MICROS
    }

    /// Executes the kept packets that a gap held back, up to the next gap, and acknowledges them at
    /// once: the peer waits for that since it knows of the gap. A NAK for the next gap is not sent
    /// before another packet arrives behind it: a peer that goes back fills that gap too.
    // Apart, with a copy of `execute` of its own, so that packets in order cost no more.
    #[cold]
    #[inline(never)]
    fn execute_kept<O: Observer>(
        &mut self,
        qp: &QpContext,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ResponderError> {
        let mut has_executed = false;
        while let Some(packet) = self.reorder.take(self.expected, &mut cx.out.reorder_budget) {
            let psn = self.expected;
            self.execute(qp, &packet.view(), receives, memory, cx)?;
            if self.expected == psn {
                // No receive is posted: an RNR NAK is sent, and the peer sends it again.
                return Ok(());
            }
            has_executed = true;
        }
        if has_executed {
            self.schedule_ack(cx);
            if qp.params.gap_reports {
                self.report_gaps();
            }
        }
        Ok(())
    }

    /// Reports the gaps to a peer that takes reports, if there are some.
    fn report_gaps(&mut self) {
        if !self.reorder.is_empty() {
            self.responses.report_gaps(self.expected.previous());
        }
    }

    /// Returns true if a sender may be at `psn`, or repeat it.
    pub(crate) fn is_plausible(&self, psn: Psn) -> bool {
        psn.distance_from(self.expected).unsigned_abs() <= MAX_AHEAD
    }

    /// Drops the requests that are kept if they have been for long.
    pub(crate) fn drop_idle(&mut self, budget: &mut ReorderBudget) {
        self.reorder.drop_idle(self.expected, budget);
    }

    /// Drops the requests that are kept.
    pub(crate) fn drop_kept(&mut self, budget: &mut ReorderBudget) {
        self.reorder.clear(budget);
    }

    /// Executes the expected packet.
    // Also where it is called twice: a call costs 30 to 60 instructions.
    #[inline(always)]
    fn execute<O: Observer>(
        &mut self,
        qp: &QpContext,
        packet: &PacketView<'_>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ResponderError> {
        //= rule rc-opcode-order: InfiniBand 9.7.4; rxe_resp.c: check_op_seq
        //# A packet that does not continue the open message, or continues none, is an invalid
        //# request.
        if !self.message.admits(packet.operation(), packet.position()) {
            return Err(RequestFault::OpcodeOutOfSequence.into());
        }
        match packet.operation() {
            Operation::Send | Operation::Write => {
                match self.message.place(packet, qp, receives, memory)? {
                    Placed::NoReceive => self.push_rnr(qp, cx),
                    Placed::Part => self.on_placed(packet.bth().ack_request(), cx),
                    Placed::Whole(completion) => {
                        self.on_placed(packet.bth().ack_request(), cx);
                        //= rule rc-msn: InfiniBand C9-148; rxe_resp.c: execute
                        //# The MSN of a response counts the messages that were executed; a READ and
                        //# an atomic count, too.
                        self.msn = self.msn.wrapping_add(1);
                        return complete_message(completion, qp, memory, cx);
                    }
                }
                Ok(())
            }
            Operation::Flush => self.execute_flush(qp, packet, memory, cx),
            //= rule rc-no-responder-resources: rxe_resp.c: check_resource
            //# Without responder resources a READ or atomic is an invalid request.
            _ if !self.resources.are_allowed() => Err(RequestFault::NotAllowed.into()),
            Operation::ReadRequest => {
                let reth = packet.reth().ok_or(RequestFault::OpcodeOutOfSequence)?;
                //= also rc-read-psns
                let packets = check_read(reth, qp, memory)?;
                self.evict_resource()?;
                let first = self.expected;
                let resource = Resource { first, packets, replay: Replay::Read(reth) };
                let (sent, is_replay) = (0, false);
                let read = ReadResponse { resource: first, first, packets, sent, reth, is_replay };
                self.respond(packets, Some(resource), Response::Read(read), cx);
                Ok(())
            }
            Operation::AtomicWrite => self.execute_atomic_write(qp, packet, memory, cx),
            operation => {
                let atomic = packet.atomic_eth().ok_or(RequestFault::OpcodeOutOfSequence)?;
                let grant = check_atomic(atomic, qp, memory)?;
                self.evict_resource()?;
                let original = memory
                    .atomic(grant, change_of(operation, atomic))
                    .map_err(RequestFault::RemoteMemory)?;
                let psn = self.expected;
                let replay = Replay::Atomic { operation, original };
                let response = Response::Atomic { psn, original, is_replay: false };
                self.last_executed = psn;
                let resource = Resource { first: psn, packets: 1, replay };
                self.respond(1, Some(resource), response, cx);
                Ok(())
            }
        }
    }

    /// Executes a FLUSH. It uses no responder resource: the response to a repeated one is the same.
    //= rule rc-flush-no-resource: rxe_req.c: check_init_depth; rxe_resp.c: check_resource
    //# A peer may have more FLUSHes on their way than READs and atomics were agreed upon, also if none
    //# were.
    #[cold]
    #[inline(never)]
    fn execute_flush<O: Observer>(
        &mut self,
        qp: &QpContext,
        packet: &PacketView<'_>,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ResponderError> {
        let (Some(feth), Some(reth)) = (packet.feth(), packet.reth()) else {
            return Err(RequestFault::OpcodeOutOfSequence.into());
        };
        check_flush(feth, reth, qp, memory)?;
        if !self.responses.has_room_for_flush() {
            return Err(RequestFault::TooManyReads.into());
        }
        self.respond_empty(None, cx);
        Ok(())
    }

    /// Executes an ATOMIC WRITE.
    #[cold]
    #[inline(never)]
    fn execute_atomic_write<O: Observer>(
        &mut self,
        qp: &QpContext,
        packet: &PacketView<'_>,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ResponderError> {
        let reth = packet.reth().ok_or(RequestFault::OpcodeOutOfSequence)?;
        let (grant, store) = check_atomic_write(reth, packet.payload(), qp, memory)?;
        self.evict_resource()?;
        memory.atomic(grant, store).map_err(RequestFault::RemoteMemory)?;
        self.respond_empty(Some(Replay::AtomicWrite), cx);
        Ok(())
    }

    /// A FLUSH or ATOMIC WRITE was executed, which uses a resource if it has a `replay`.
    fn respond_empty<O: Observer>(&mut self, replay: Option<Replay>, cx: &mut Context<'_, O>) {
        let psn = self.expected;
        self.last_executed = psn;
        let resource = replay.map(|replay| Resource { first: psn, packets: 1, replay });
        let response = Response::Empty { psn, is_replay: false };
        self.respond(1, resource, response, cx);
    }

    /// Responds to a request that was executed before, without executing it again.
    fn handle_duplicate<O: Observer>(
        &mut self,
        qp: &QpContext,
        packet: &Packet<'_, Verified>,
        cx: &mut Context<'_, O>,
    ) {
        let packet = packet.view();
        let psn = packet.bth().psn();
        let operation = packet.operation();
        match (operation, packet.reth()) {
            //= rule rc-duplicate-read: InfiniBand 9.7.5; rxe_resp.c: duplicate_request
            //# A repeated READ, or the rest of one, is executed again with the bytes of now; one of
            //# other bytes is dropped.
            (Operation::ReadRequest, Some(reth)) => {
                let mtu = qp.params.mtu;
                let Some(resource) = self.resources.find_read(psn, reth, mtu) else {
                    //= also rc-duplicate-unknown
                    return cx.dropped(psn, DropReason::UnknownDuplicate);
                };
                self.responses.insert_replay(Response::Read(ReadResponse {
                    resource: resource.first,
                    first: psn,
                    packets: packets_for(u64::from(reth.len), mtu),
                    sent: 0,
                    reth,
                    is_replay: true,
                }));
            }
            //= rule rc-duplicate-atomic: InfiniBand 9.7.5; rxe_resp.c: duplicate_request
            //# A repeated atomic is not executed again: its response carries the value of the first
            //# time.
            (Operation::CompareSwap | Operation::FetchAdd, _) => {
                let Some(original) = self.resources.find_atomic(psn, operation) else {
                    //= rule rc-duplicate-unknown: rxe_resp.c: duplicate_request
                    //# A repeated READ or atomic whose responder resource is gone is dropped.
                    return cx.dropped(psn, DropReason::UnknownDuplicate);
                };
                self.responses.insert_replay(Response::Atomic { psn, original, is_replay: true });
            }
            //= rule rc-duplicate-atomic-write: rxe_resp.c: duplicate_request
            //# A repeated ATOMIC WRITE is not executed again and gets the same response.
            (Operation::AtomicWrite, _) => {
                if !self.resources.has_atomic_write(psn) {
                    //= also rc-duplicate-unknown
                    return cx.dropped(psn, DropReason::UnknownDuplicate);
                }
                self.responses.insert_replay(Response::Empty { psn, is_replay: true });
            }
            //= rule rc-duplicate-flush: InfiniBand oA19-14; rxe_resp.c: duplicate_request
            //# A repeated FLUSH gets the same response. What it covers was placed before.
            (Operation::Flush, _) => {
                if !self.responses.has_room_for_flush() {
                    return cx.dropped(psn, DropReason::UnknownDuplicate);
                }
                self.responses.insert_replay(Response::Empty { psn, is_replay: true });
            }
            //= rule rc-duplicate-write: InfiniBand C9-105; rxe_resp.c: duplicate_request
            //# A repeated SEND or WRITE is acknowledged again and not executed.
            _ => self.schedule_ack(cx),
        }
    }

    /// Evicts responder resources until there is room for one more.
    fn evict_resource(&mut self) -> Result<(), RequestFault> {
        while let Some(oldest) = self.resources.oldest_if_full().map(|it| it.first) {
            if self.responses.is_pending(oldest) {
                //= rule rc-too-many-reads: InfiniBand, clause not known
                //# A READ or atomic more than the responder resources hold is an invalid request.
                return Err(RequestFault::TooManyReads);
            }
            // The peer has this response, or it would not have sent another request: a repetition
            // of it that still waits is not needed.
            self.responses.remove(oldest);
            self.resources.evict_oldest();
        }
        Ok(())
    }

    /// A packet of a SEND or WRITE was placed.
    #[inline(always)]
    fn on_placed<O: Observer>(&mut self, requests_ack: bool, cx: &mut Context<'_, O>) {
        self.last_executed = self.expected;
        let pending = self.advance(1);
        //= rule rc-ack-requested: InfiniBand 9.7.5; rxe_resp.c: acknowledge
        //# A packet with AckReq is acknowledged. One without need not be.
        if pending == PendingNak::Cancelled || requests_ack {
            self.schedule_ack(cx);
        }
        self.resend_seq_nak(pending);
    }

    /// A request of `packets` PSNs was executed: it uses `resource`, and `response` is sent.
    fn respond<O: Observer>(
        &mut self,
        packets: u32,
        resource: Option<Resource>,
        response: Response,
        cx: &mut Context<'_, O>,
    ) {
        let pending = self.advance(packets);
        if let Some(resource) = resource {
            self.resources.insert(resource);
        }
        //= also rc-msn
        self.msn = self.msn.wrapping_add(1);
        if self.responses.push(response) {
            cx.counters().ack_deferred += 1;
        }
        self.resend_seq_nak(pending);
    }

    /// Expects the packet `packets` further on. Cancels a NAK that has not been sent: the packets
    /// were reordered.
    #[inline(always)]
    fn advance(&mut self, packets: u32) -> PendingNak {
        self.expected = self.expected.advanced_by(packets);
        let sent_seq_nak = core::mem::take(&mut self.sent_seq_nak);
        if !sent_seq_nak || !self.responses.cancel_nak() {
            return PendingNak::None;
        }
        match self.newest_out_of_order.distance_from(self.expected) {
            0.. => PendingNak::Due,
            _ => PendingNak::Cancelled,
        }
    }

    /// Sends a NAK for what was dropped meanwhile and is still missing, behind the response to what
    /// was executed.
    #[inline(always)]
    fn resend_seq_nak(&mut self, pending: PendingNak) {
        if pending == PendingNak::Due {
            self.sent_seq_nak = true;
            let code = NakCode::PsnSequence;
            self.responses.push(Response::Nak { psn: self.expected, code });
        }
    }

    /// Cancels a sequence or RNR NAK that has not been sent, and acknowledges what was executed
    /// instead.
    pub(crate) fn cancel_pending_nak(&mut self) {
        if self.responses.cancel_nak() {
            self.responses.acknowledge(self.last_executed);
        }
    }

    /// Acknowledges what was executed.
    pub(crate) fn schedule_ack<O: Observer>(&mut self, cx: &mut Context<'_, O>) {
        cx.out.acks_scheduled += 1;
        if self.responses.acknowledge(self.last_executed) {
            cx.counters().ack_deferred += 1;
        }
    }

    //= rule rc-rnr-nak: InfiniBand 9.7.5.2.8; rxe_resp.c: check_resource
    //# A request that needs a receive while none is posted is not executed and draws an RNR NAK
    //# with the queue pair's timer.
    fn push_rnr<O: Observer>(&mut self, qp: &QpContext, cx: &mut Context<'_, O>) {
        // Packets behind it are out of sequence: a NAK for them would add nothing.
        self.sent_seq_nak = true;
        if self.responses.has_rnr_nak() {
            return;
        }
        cx.counters().send_rnr_err += 1;
        let timer = qp.params.min_rnr_timer;
        self.responses.push(Response::Rnr { psn: self.expected, timer });
    }

    /// Sends a NAK for the expected packet.
    pub(crate) fn push_nak(&mut self, code: NakCode) {
        self.responses.push(Response::Nak { psn: self.expected, code });
    }
}

/// Completes the receive that a whole message took, if it took one, and invalidates the key that a
/// SEND names.
#[inline]
fn complete_message<O: Observer>(
    completion: Option<Completion>,
    qp: &QpContext,
    memory: &mut impl Memory,
    cx: &mut Context<'_, O>,
) -> Result<(), ResponderError> {
    let Some(completion) = completion else { return Ok(()) };
    let key = completion.invalidated_key;
    if key.is_some_and(|key| memory.invalidate(qp.accessor(), key).is_err()) {
        let status = CompletionStatus::RemoteInvalidRequest;
        let failed = qp.completion(completion.wr_id, completion.operation, status, 0);
        qp.complete_received(failed, cx);
        //= rule rc-invalidate-failed: rxe_resp.c: invalidate_rkey
        //# A SEND whose key cannot be invalidated is acknowledged; its receive fails, and the queue
        //# pair goes to ERROR.
        return Err(ResponderError::CannotInvalidate);
    }
    cx.counters().rdma_recvs += 1;
    qp.complete_received(completion, cx);
    Ok(())
}
