//! The responder: takes the peer's requests, executes new ones and answers repeated ones.

use roce_wire::{NakCode, Operation, Packet, Psn, Reth, Verified};

use crate::context::{Context, DropReason};
use crate::rc::common::Common;
use crate::rc::receive_queue::ReceiveQueue;
use crate::rc::resources::Resources;
use crate::rc::responses::{ReadReply, Response, Responses};
use crate::rc::send_queue::packets_for;
use crate::{Memory, Observer, RecvWr, RequestFault};

/// The receiving half of a queue pair.
#[derive(Debug)]
pub(crate) struct Responder {
    /// The PSN of the next new request.
    pub(crate) expected: Psn,
    /// Messages executed, modulo 2^24.
    pub(super) msn: u32,
    /// The last packet executed that was not a READ request: what is repeated in answer to
    /// a repeated SEND or WRITE. A READ speaks for itself.
    pub(super) last_executed: Psn,
    /// A NAK was sent for the expected packet: until it comes, there is nothing to add.
    has_complained: bool,
    /// The last packet that was dropped because one before it is missing.
    last_ahead: Psn,
    pub(super) open: Open,
    pub(super) resources: Resources,
    pub(crate) responses: Responses,
}

/// The message that has begun and not ended.
#[derive(Debug, Default)]
pub(super) enum Open {
    #[default]
    None,
    Send(SendInProgress),
    Write(WriteInProgress),
}

#[derive(Debug)]
pub(super) struct SendInProgress {
    pub(super) work: RecvWr,
    /// Bytes of the receive.
    pub(super) posted: u64,
    pub(super) received: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WriteInProgress {
    pub(super) reth: Reth,
    pub(super) written: u64,
}

/// What became of a complaint about a missing packet when that packet came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Complaint {
    /// There was none, or the peer has it.
    None,
    /// It never left, and there is nothing to complain about any more.
    TakenBack,
    /// It never left, and a later packet is missing.
    Due,
}

/// How the execution of a request ended otherwise than well.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The peer is told, and the queue pair goes to ERROR.
    Fault(RequestFault),
    /// The message was received, but the key that it named cannot be invalidated: the queue
    /// pair goes to ERROR behind an ordinary acknowledgement, as rxe does it.
    CannotInvalidate,
}

impl From<RequestFault> for Refusal {
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
            has_complained: false,
            last_ahead: first_psn,
            open: Open::None,
            resources: Resources::new(max_dest_rd_atomic),
            responses: Responses::default(),
        }
    }

    pub(crate) const fn msn(&self) -> u32 {
        self.msn
    }

    /// Receives that messages not yet counted in the MSN can use.
    pub(crate) fn receives(&self, receives: &ReceiveQueue) -> u32 {
        receives.len() + u32::from(matches!(self.open, Open::Send(_)))
    }

    /// Another number of READs and atomics is allowed from now on.
    pub(crate) fn set_max_dest_rd_atomic(&mut self, max: u8) {
        self.resources.set_capacity(max);
    }

    /// The receive that the open message uses, if any; the message is given up.
    pub(crate) fn take_open_receive(&mut self) -> Option<RecvWr> {
        match core::mem::take(&mut self.open) {
            Open::Send(it) => Some(it.work),
            _ => None,
        }
    }

    /// Executes a request of the peer's.
    ///
    /// # Errors
    /// [`Refusal`]: the queue pair cannot go on.
    pub(crate) fn handle_request<O: Observer>(
        &mut self,
        common: &Common,
        packet: &Packet<'_, Verified>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), Refusal> {
        let psn = packet.headers().bth.psn;
        match psn.distance_from(self.expected) {
            0 => self.execute(common, packet, receives, memory, cx),
            1.. => {
                cx.dropped(psn, DropReason::OutOfSequence);
                if !self.has_complained || psn.distance_from(self.last_ahead) > 0 {
                    self.last_ahead = psn;
                }
                if !self.has_complained {
                    self.has_complained = true;
                    cx.counters().send_seq_err += 1;
                    self.push_nak(NakCode::PsnSequence);
                }
                Ok(())
            }
            _ => {
                cx.counters().duplicate_request += 1;
                self.repeat(common, packet, cx);
                Ok(())
            }
        }
    }

    /// Answers a request that was executed before, without executing it again.
    fn repeat<O: Observer>(
        &mut self,
        common: &Common,
        packet: &Packet<'_, Verified>,
        cx: &mut Context<'_, O>,
    ) {
        let headers = packet.headers();
        let psn = headers.bth.psn;
        let operation = headers.bth.opcode.info().operation;
        match (operation, headers.reth) {
            (Operation::ReadRequest, Some(reth)) => {
                let mtu = common.settings.mtu;
                let Some(resource) = self.resources.find_read(psn, reth, mtu) else {
                    return cx.dropped(psn, DropReason::UnknownDuplicate);
                };
                self.responses.replay(Response::Read(ReadReply {
                    resource: resource.first,
                    first: psn,
                    packets: packets_for(u64::from(reth.len), mtu),
                    sent: 0,
                    reth,
                    is_replay: true,
                }));
            }
            (Operation::CompareSwap | Operation::FetchAdd, _) => {
                let Some(original) = self.resources.find_atomic(psn, operation) else {
                    return cx.dropped(psn, DropReason::UnknownDuplicate);
                };
                self.responses.replay(Response::Atomic { psn, original, is_replay: true });
            }
            _ => self.owe_ack(cx),
        }
    }

    /// Sees to it that one more READ or atomic can be remembered.
    pub(super) fn make_room(&mut self) -> Result<(), RequestFault> {
        while let Some(oldest) = self.resources.to_forget().map(|it| it.first) {
            if self.responses.owes(oldest) {
                return Err(RequestFault::TooManyReads);
            }
            // The peer would not go on if it had not got this answer; a repetition of it that
            // still waits is for nobody.
            self.responses.forget(oldest);
            self.resources.forget_oldest();
        }
        Ok(())
    }

    /// A packet of a SEND or WRITE was executed.
    pub(super) fn on_executed<O: Observer>(
        &mut self,
        packet: &Packet<'_, Verified>,
        cx: &mut Context<'_, O>,
    ) {
        self.last_executed = self.expected;
        let complaint = self.advance(1);
        if complaint == Complaint::TakenBack || packet.headers().bth.ack_request {
            self.owe_ack(cx);
        }
        self.complain_again(complaint);
    }

    /// Expects the packet `packets` further on. A complaint that has not left yet is taken
    /// back: packets have overtaken each other on their way.
    pub(super) fn advance(&mut self, packets: u32) -> Complaint {
        self.expected = self.expected.advanced_by(packets);
        let has_complained = core::mem::take(&mut self.has_complained);
        if !has_complained || !self.responses.take_complaint() {
            return Complaint::None;
        }
        match self.last_ahead.distance_from(self.expected) {
            0.. => Complaint::Due,
            _ => Complaint::TakenBack,
        }
    }

    /// Asks for what was dropped meanwhile and is still missing, behind the answer to what
    /// was executed.
    pub(super) fn complain_again(&mut self, complaint: Complaint) {
        if complaint == Complaint::Due {
            self.has_complained = true;
            let code = NakCode::PsnSequence;
            self.responses.push(Response::Nak { psn: self.expected, code });
        }
    }

    /// Asks for nothing any more, neither what is missing nor patience. What was executed is
    /// acknowledged, for which a NAK would have stood.
    pub(crate) fn take_complaint_back(&mut self) {
        if self.responses.take_complaint() {
            self.responses.acknowledge(self.last_executed);
        }
    }

    fn owe_ack<O: Observer>(&mut self, cx: &mut Context<'_, O>) {
        cx.out.acks_scheduled += 1;
        if self.responses.acknowledge(self.last_executed) {
            cx.counters().ack_deferred += 1;
        }
    }

    pub(super) fn push_rnr<O: Observer>(&mut self, common: &Common, cx: &mut Context<'_, O>) {
        // What follows is out of sequence and would draw a NAK that adds nothing.
        self.has_complained = true;
        if self.responses.say_not_ready() {
            return;
        }
        cx.counters().send_rnr_err += 1;
        let timer = common.settings.min_rnr_timer;
        self.responses.push(Response::Rnr { psn: self.expected, timer });
    }

    /// Refuses the expected packet.
    pub(crate) fn push_nak(&mut self, code: NakCode) {
        self.responses.push(Response::Nak { psn: self.expected, code });
    }
}
