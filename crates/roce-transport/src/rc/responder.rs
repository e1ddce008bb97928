//! The responder: executes the peer's requests.

use roce_wire::{AtomicEth, NakCode, Operation, Packet, Psn, Reth, Verified};

use crate::context::{Context, DropReason};
use crate::rc::common::Common;
use crate::rc::receive_queue::ReceiveQueue;
use crate::rc::resources::{Remembered, Resource, Resources};
use crate::rc::responses::{ReadReply, Response, Responses};
use crate::rc::send_queue::packets_for;
use crate::transfer::scatter;
use crate::{
    Access, AccessFlags, AtomicChange, CompletionOperation, CompletionStatus, MAX_MESSAGE_LEN,
    MAX_READ_PACKETS, Memory, Observer, RecvWork, RequestFault,
};

/// The receiving half of a queue pair.
#[derive(Debug)]
pub(crate) struct Responder {
    /// The PSN of the next new request.
    pub(crate) expected: Psn,
    /// Messages executed, modulo 2^24.
    msn: u32,
    /// The last packet executed that was not a READ request: what is repeated in answer to
    /// a repeated SEND or WRITE. A READ speaks for itself.
    last_executed: Psn,
    /// A NAK was sent for the expected packet: until it comes, there is nothing to add.
    has_complained: bool,
    open: Open,
    resources: Resources,
    pub(crate) responses: Responses,
}

/// The message that has begun and not ended.
#[derive(Debug, Default)]
enum Open {
    #[default]
    None,
    Send(SendInProgress),
    Write(WriteInProgress),
}

#[derive(Debug)]
struct SendInProgress {
    work: RecvWork,
    /// Bytes of the receive.
    posted: u64,
    received: u64,
}

#[derive(Clone, Copy, Debug)]
struct WriteInProgress {
    reth: Reth,
    written: u64,
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
        self.resources = Resources::new(max);
    }

    /// The receive that the open message uses, if any; the message is given up.
    pub(crate) fn take_open_receive(&mut self) -> Option<RecvWork> {
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
                if !self.has_complained {
                    self.has_complained = true;
                    cx.counters().send_seq_err += 1;
                    self.push_nak(NakCode::PsnSequence, cx);
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
        let operation = headers.bth.opcode.shape().operation;
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

    fn execute<O: Observer>(
        &mut self,
        common: &Common,
        packet: &Packet<'_, Verified>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), Refusal> {
        let headers = packet.headers();
        let shape = headers.bth.opcode.shape();
        let may_follow = match &self.open {
            Open::None => shape.position.is_first(),
            Open::Send(_) => !shape.position.is_first() && shape.operation == Operation::Send,
            Open::Write(_) => !shape.position.is_first() && shape.operation == Operation::Write,
        };
        if !may_follow {
            return Err(RequestFault::OpcodeOutOfSequence.into());
        }
        match shape.operation {
            Operation::Send => self.execute_send(common, packet, receives, memory, cx),
            Operation::Write => self.execute_write(common, packet, receives, memory, cx),
            Operation::ReadRequest => {
                let reth = headers.reth.ok_or(RequestFault::OpcodeOutOfSequence)?;
                Ok(self.execute_read(reth, common, memory, cx)?)
            }
            operation => {
                let atomic = headers.atomic_eth.ok_or(RequestFault::OpcodeOutOfSequence)?;
                Ok(self.execute_atomic(operation, atomic, common, memory, cx)?)
            }
        }
    }

    fn execute_send<O: Observer>(
        &mut self,
        common: &Common,
        packet: &Packet<'_, Verified>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), Refusal> {
        let headers = packet.headers();
        let position = headers.bth.opcode.shape().position;
        let payload = packet.payload();
        let len = payload.len();
        let mtu = common.settings.mtu.bytes();
        let is_sound = if position.is_last() {
            len <= mtu && (len > 0 || position.is_first())
        } else {
            len == mtu
        };
        if !is_sound {
            return Err(RequestFault::PayloadLength { len }.into());
        }
        if position.is_first() {
            let Some(work) = receives.take() else {
                self.push_rnr(common, cx);
                return Ok(());
            };
            let posted = work.scatter.total_len();
            self.open = Open::Send(SendInProgress { work, posted, received: 0 });
        }
        let Open::Send(open) = &mut self.open else {
            return Err(RequestFault::OpcodeOutOfSequence.into());
        };
        if open.received + len as u64 > open.posted.min(MAX_MESSAGE_LEN) {
            return Err(RequestFault::LongerThanReceive { posted: open.posted }.into());
        }
        scatter(memory, common.init.pd, &open.work.scatter, open.received, payload)
            .map_err(RequestFault::ReceiveMemory)?;
        open.received += len as u64;
        let (work_id, received) = (open.work.work_id, open.received);
        self.on_executed(packet, cx);
        if !position.is_last() {
            return Ok(());
        }
        self.msn = self.msn.wrapping_add(1);
        let mut completion = common.completion(
            work_id,
            CompletionOperation::Recv,
            CompletionStatus::Success,
            received,
        );
        if let Some(key) = headers.invalidate {
            if memory.invalidate(common.init.pd, key.0).is_err() {
                return Err(Refusal::CannotInvalidate);
            }
            completion.invalidated_key = Some(key.0);
        }
        self.open = Open::None;
        cx.counters().rdma_recvs += 1;
        completion.immediate = headers.immediate.map(|it| it.0);
        completion.solicited = headers.bth.solicited_event;
        cx.complete(common.init.recv_cq, completion);
        Ok(())
    }

    fn execute_write<O: Observer>(
        &mut self,
        common: &Common,
        packet: &Packet<'_, Verified>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), Refusal> {
        let headers = packet.headers();
        let position = headers.bth.opcode.shape().position;
        let payload = packet.payload();
        let pd = common.init.pd;
        let mut open = match (&self.open, headers.reth) {
            (Open::Write(open), _) => *open,
            (_, Some(reth)) => WriteInProgress { reth, written: 0 },
            _ => return Err(RequestFault::OpcodeOutOfSequence.into()),
        };
        let whole = u64::from(open.reth.len);
        if position.is_first() {
            if !common.settings.access.contains(AccessFlags::REMOTE_WRITE) {
                return Err(RequestFault::NotAllowed.into());
            }
            if whole > MAX_MESSAGE_LEN {
                return Err(RequestFault::MessageTooLong { len: whole }.into());
            }
        }
        let left = whole - open.written;
        let mtu = common.settings.mtu.bytes() as u64;
        // Middle packets are full and something is left behind them; the last takes the rest.
        let is_sound = if position.is_last() {
            payload.len() as u64 == left && left <= mtu
        } else {
            payload.len() as u64 == mtu && left > mtu
        };
        if !is_sound {
            return Err(RequestFault::PayloadLength { len: payload.len() }.into());
        }
        if position.is_first() && whole > 0 {
            memory
                .check(pd, open.reth.key, open.reth.address, whole, Access::RemoteWrite)
                .map_err(RequestFault::RemoteMemory)?;
        }
        // Before a byte is touched: the packet will come again, once a receive is posted.
        if headers.immediate.is_some() && receives.is_empty() {
            self.push_rnr(common, cx);
            return Ok(());
        }
        if !payload.is_empty() {
            let address = open.reth.address.wrapping_add(open.written);
            let grant = memory
                .check(pd, open.reth.key, address, payload.len() as u64, Access::RemoteWrite)
                .map_err(RequestFault::RemoteMemory)?;
            memory.write(grant, 0, payload);
        }
        open.written += payload.len() as u64;
        self.on_executed(packet, cx);
        if !position.is_last() {
            self.open = Open::Write(open);
            return Ok(());
        }
        self.open = Open::None;
        self.msn = self.msn.wrapping_add(1);
        if let Some(immediate) = headers.immediate
            && let Some(work) = receives.take()
        {
            let mut completion = common.completion(
                work.work_id,
                CompletionOperation::RecvWithImmediate,
                CompletionStatus::Success,
                whole,
            );
            completion.immediate = Some(immediate.0);
            completion.solicited = headers.bth.solicited_event;
            cx.counters().rdma_recvs += 1;
            cx.complete(common.init.recv_cq, completion);
        }
        Ok(())
    }

    fn execute_read<O: Observer>(
        &mut self,
        reth: Reth,
        common: &Common,
        memory: &impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), RequestFault> {
        let len = u64::from(reth.len);
        if !common.settings.access.contains(AccessFlags::REMOTE_READ)
            || !self.resources.are_allowed()
        {
            return Err(RequestFault::NotAllowed);
        }
        let packets = packets_for(len, common.settings.mtu);
        if len > MAX_MESSAGE_LEN || packets > MAX_READ_PACKETS {
            return Err(RequestFault::MessageTooLong { len });
        }
        if len > 0 {
            memory
                .check(common.init.pd, reth.key, reth.address, len, Access::RemoteRead)
                .map_err(RequestFault::RemoteMemory)?;
        }
        self.make_room()?;
        let first = self.expected;
        self.resources.remember(Resource { first, packets, what: Remembered::Read(reth) });
        self.expected = first.advanced_by(packets);
        self.has_complained = false;
        self.msn = self.msn.wrapping_add(1);
        let reply = ReadReply { resource: first, first, packets, sent: 0, reth, is_replay: false };
        if self.responses.push(Response::Read(reply)) {
            cx.counters().ack_deferred += 1;
        }
        Ok(())
    }

    fn execute_atomic<O: Observer>(
        &mut self,
        operation: Operation,
        atomic: AtomicEth,
        common: &Common,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), RequestFault> {
        if !common.settings.access.contains(AccessFlags::REMOTE_ATOMIC)
            || !self.resources.are_allowed()
        {
            return Err(RequestFault::NotAllowed);
        }
        if !atomic.address.is_multiple_of(8) {
            return Err(RequestFault::Misaligned);
        }
        let grant = memory
            .check(common.init.pd, atomic.key, atomic.address, 8, Access::RemoteAtomic)
            .map_err(RequestFault::RemoteMemory)?;
        self.make_room()?;
        let change = match operation {
            Operation::CompareSwap => {
                AtomicChange::SwapIf { expected: atomic.compare, new: atomic.swap_or_add }
            }
            _ => AtomicChange::Add(atomic.swap_or_add),
        };
        let original = memory.atomic(grant, change);
        let psn = self.expected;
        let what = Remembered::Atomic { operation, original };
        self.resources.remember(Resource { first: psn, packets: 1, what });
        self.expected = psn.advanced_by(1);
        self.last_executed = psn;
        self.has_complained = false;
        self.msn = self.msn.wrapping_add(1);
        if self.responses.push(Response::Atomic { psn, original, is_replay: false }) {
            cx.counters().ack_deferred += 1;
        }
        Ok(())
    }

    /// Sees to it that one more READ or atomic can be remembered.
    fn make_room(&mut self) -> Result<(), RequestFault> {
        let Some(oldest) = self.resources.to_forget().map(|it| it.first) else { return Ok(()) };
        if self.responses.owes(oldest) {
            return Err(RequestFault::TooManyReads);
        }
        // The peer would not go on if it had not got this answer; a repetition of it that
        // still waits is for nobody.
        self.responses.forget(oldest);
        Ok(())
    }

    /// A packet of a SEND or WRITE was executed.
    fn on_executed<O: Observer>(&mut self, packet: &Packet<'_, Verified>, cx: &mut Context<'_, O>) {
        self.last_executed = self.expected;
        self.expected = self.expected.advanced_by(1);
        self.has_complained = false;
        if packet.headers().bth.ack_request {
            self.owe_ack(cx);
        }
    }

    fn owe_ack<O: Observer>(&mut self, cx: &mut Context<'_, O>) {
        if self.responses.acknowledge(self.last_executed) {
            cx.counters().ack_deferred += 1;
        }
    }

    fn push_rnr<O: Observer>(&mut self, common: &Common, cx: &mut Context<'_, O>) {
        // What follows is out of sequence and would draw a NAK that adds nothing.
        self.has_complained = true;
        cx.counters().send_rnr_err += 1;
        cx.out.observer.rnr_sent(cx.now, cx.qpn, self.expected);
        let timer = common.settings.min_rnr_timer;
        self.responses.push(Response::Rnr { psn: self.expected, timer });
    }

    /// Refuses the expected packet.
    pub(crate) fn push_nak<O: Observer>(&mut self, code: NakCode, cx: &mut Context<'_, O>) {
        cx.out.observer.nak_sent(cx.now, cx.qpn, self.expected, code);
        self.responses.push(Response::Nak { psn: self.expected, code });
    }
}
