//! Executes the peer's requests, one operation at a time.
//!
//! Everything is checked before a byte is touched, in this order: opcode sequence, length, rights of
//! the queue pair, receive or responder resource, memory key.

use roce_wire::{AtomicEth, Operation, Packet, Reth, Verified};

use crate::context::Context;
use crate::qp::context::QpContext;
use crate::qp::receive_queue::ReceiveQueue;
use crate::qp::send_queue::packets_for;
use crate::rc::responder::resources::{Replay, Resource};
use crate::rc::responder::response_queue::{ReadResponse, Response};
use crate::rc::responder::{
    CurrentMessage, Responder, ResponderError, SendInProgress, WriteInProgress,
};
use crate::transfer::scatter;
use crate::{
    Access, AccessFlags, AtomicChange, CompletionOperation, CompletionStatus, MAX_MESSAGE_LEN,
    MAX_READ_PACKETS, Memory, MemoryFault, Observer, RequestFault,
};

impl Responder {
    /// Executes the expected packet.
    ///
    /// # Errors
    /// [`ResponderError`]: the queue pair goes to ERROR.
    pub(crate) fn execute<O: Observer>(
        &mut self,
        qp: &QpContext,
        packet: &Packet<'_, Verified>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ResponderError> {
        let headers = packet.headers();
        let info = headers.bth.opcode.info();
        let may_follow = match &self.current {
            CurrentMessage::None => info.position.is_first(),
            CurrentMessage::Send(_) => {
                !info.position.is_first() && info.operation == Operation::Send
            }
            CurrentMessage::Write(_) => {
                !info.position.is_first() && info.operation == Operation::Write
            }
        };
        if !may_follow {
            return Err(RequestFault::OpcodeOutOfSequence.into());
        }
        match info.operation {
            Operation::Send => self.execute_send(qp, packet, receives, memory, cx),
            Operation::Write => self.execute_write(qp, packet, receives, memory, cx),
            Operation::ReadRequest => {
                let reth = headers.reth.ok_or(RequestFault::OpcodeOutOfSequence)?;
                Ok(self.execute_read(reth, qp, memory, cx)?)
            }
            operation => {
                let atomic = headers.atomic_eth.ok_or(RequestFault::OpcodeOutOfSequence)?;
                Ok(self.execute_atomic(operation, atomic, qp, memory, cx)?)
            }
        }
    }

    fn execute_send<O: Observer>(
        &mut self,
        qp: &QpContext,
        packet: &Packet<'_, Verified>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ResponderError> {
        let headers = packet.headers();
        let position = headers.bth.opcode.info().position;
        let payload = packet.payload();
        let len = payload.len();
        let mtu = qp.params.mtu.bytes();
        let is_sound = if position.is_last() {
            len <= mtu && (len > 0 || position.is_first())
        } else {
            len == mtu
        };
        if !is_sound {
            return Err(RequestFault::PayloadLength { len }.into());
        }
        if position.is_first() && position.is_last() {
            return self.execute_send_only(qp, packet, receives, memory, cx);
        }
        if position.is_first() {
            let Some(work) = receives.take() else {
                self.push_rnr(qp, cx);
                return Ok(());
            };
            let posted = work.sg_list.total_len();
            self.current = CurrentMessage::Send(SendInProgress { work, posted, received: 0 });
        }
        let CurrentMessage::Send(current) = &mut self.current else {
            return Err(RequestFault::OpcodeOutOfSequence.into());
        };
        if current.received + len as u64 > current.posted.min(MAX_MESSAGE_LEN) {
            return Err(RequestFault::LongerThanReceive { posted: current.posted }.into());
        }
        scatter(memory, qp.accessor(), &current.work.sg_list, current.received, payload)
            .map_err(RequestFault::ReceiveMemory)?;
        current.received += len as u64;
        let (wr_id, received) = (current.work.wr_id, current.received);
        self.on_executed(packet, cx);
        if !position.is_last() {
            return Ok(());
        }
        self.end_send(qp, packet, (wr_id, received), memory, cx)
    }

    /// A SEND that is one packet: its receive stays where it is until it is used up.
    fn execute_send_only<O: Observer>(
        &mut self,
        qp: &QpContext,
        packet: &Packet<'_, Verified>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ResponderError> {
        let Some(work) = receives.front() else {
            self.push_rnr(qp, cx);
            return Ok(());
        };
        let (posted, received) = (work.sg_list.total_len(), packet.payload().len() as u64);
        let moved = if received > posted {
            Err(RequestFault::LongerThanReceive { posted })
        } else {
            scatter(memory, qp.accessor(), &work.sg_list, 0, packet.payload())
                .map_err(RequestFault::ReceiveMemory)
        };
        let wr_id = work.wr_id;
        let ended = moved.map_err(ResponderError::from).and_then(|()| {
            self.on_executed(packet, cx);
            self.end_send(qp, packet, (wr_id, received), memory, cx)
        });
        if let (Some(work), true) = (receives.take(), ended.is_err()) {
            // It ends with the queue pair.
            self.current = CurrentMessage::Send(SendInProgress { work, posted, received: 0 });
        }
        ended
    }

    /// All of a SEND was executed, into the receive of this number and so many bytes of it.
    fn end_send<O: Observer>(
        &mut self,
        qp: &QpContext,
        packet: &Packet<'_, Verified>,
        (wr_id, received): (u64, u64),
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ResponderError> {
        let headers = packet.headers();
        self.msn = self.msn.wrapping_add(1);
        let mut completion =
            qp.completion(wr_id, CompletionOperation::Recv, CompletionStatus::Success, received);
        if let Some(key) = headers.invalidate {
            if memory.invalidate(qp.accessor(), key.0).is_err() {
                return Err(ResponderError::CannotInvalidate);
            }
            completion.invalidated_key = Some(key.0);
        }
        self.current = CurrentMessage::None;
        cx.counters().rdma_recvs += 1;
        completion.immediate = headers.immediate.map(|it| it.0);
        completion.solicited = headers.bth.solicited_event;
        cx.complete(qp.init.recv_cq, completion);
        Ok(())
    }

    fn execute_write<O: Observer>(
        &mut self,
        qp: &QpContext,
        packet: &Packet<'_, Verified>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ResponderError> {
        let headers = packet.headers();
        let position = headers.bth.opcode.info().position;
        let payload = packet.payload();
        let by = qp.accessor();
        let mut current = match (&self.current, headers.reth) {
            (CurrentMessage::Write(current), _) => *current,
            (_, Some(reth)) => WriteInProgress { reth, written: 0 },
            _ => return Err(RequestFault::OpcodeOutOfSequence.into()),
        };
        let whole = u64::from(current.reth.len);
        if position.is_first() {
            if !qp.params.access.contains(AccessFlags::REMOTE_WRITE) {
                return Err(RequestFault::NotAllowed.into());
            }
            if whole > MAX_MESSAGE_LEN {
                return Err(RequestFault::MessageTooLong { len: whole }.into());
            }
        }
        let left = whole - current.written;
        let mtu = qp.params.mtu.bytes() as u64;
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
                .check(by, current.reth.key, current.reth.address, whole, Access::RemoteWrite)
                .map_err(RequestFault::RemoteMemory)?;
        }
        // Before a byte is touched: the packet will come again, once a receive is posted.
        if headers.immediate.is_some() && receives.is_empty() {
            self.push_rnr(qp, cx);
            return Ok(());
        }
        if !payload.is_empty() {
            let address = current.reth.address.wrapping_add(current.written);
            let grant = memory
                .check(by, current.reth.key, address, payload.len() as u64, Access::RemoteWrite)
                .map_err(RequestFault::RemoteMemory)?;
            memory.write(grant, 0, payload);
        }
        current.written += payload.len() as u64;
        self.on_executed(packet, cx);
        if !position.is_last() {
            self.current = CurrentMessage::Write(current);
            return Ok(());
        }
        self.current = CurrentMessage::None;
        self.msn = self.msn.wrapping_add(1);
        if let Some(immediate) = headers.immediate
            && let Some(work) = receives.take()
        {
            let mut completion = qp.completion(
                work.wr_id,
                CompletionOperation::RecvWithImmediate,
                CompletionStatus::Success,
                whole,
            );
            completion.immediate = Some(immediate.0);
            completion.solicited = headers.bth.solicited_event;
            cx.counters().rdma_recvs += 1;
            cx.complete(qp.init.recv_cq, completion);
        }
        Ok(())
    }

    fn execute_read<O: Observer>(
        &mut self,
        reth: Reth,
        qp: &QpContext,
        memory: &impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), RequestFault> {
        let len = u64::from(reth.len);
        if !qp.params.access.contains(AccessFlags::REMOTE_READ) || !self.resources.are_allowed() {
            return Err(RequestFault::NotAllowed);
        }
        let packets = packets_for(len, qp.params.mtu);
        if len > MAX_MESSAGE_LEN || packets > MAX_READ_PACKETS {
            return Err(RequestFault::MessageTooLong { len });
        }
        if len > 0 {
            memory
                .check(qp.accessor(), reth.key, reth.address, len, Access::RemoteRead)
                .map_err(RequestFault::RemoteMemory)?;
        }
        self.evict_resource()?;
        let first = self.expected;
        self.resources.insert(Resource { first, packets, replay: Replay::Read(reth) });
        let pending = self.advance(packets);
        self.msn = self.msn.wrapping_add(1);
        let read =
            ReadResponse { resource: first, first, packets, sent: 0, reth, is_replay: false };
        if self.responses.push(Response::Read(read)) {
            cx.counters().ack_deferred += 1;
        }
        self.resend_seq_nak(pending);
        Ok(())
    }

    fn execute_atomic<O: Observer>(
        &mut self,
        operation: Operation,
        atomic: AtomicEth,
        qp: &QpContext,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), RequestFault> {
        if !qp.params.access.contains(AccessFlags::REMOTE_ATOMIC) || !self.resources.are_allowed() {
            return Err(RequestFault::NotAllowed);
        }
        if !atomic.address.is_multiple_of(8) {
            return Err(RequestFault::Misaligned);
        }
        let grant = memory
            .check(qp.accessor(), atomic.key, atomic.address, 8, Access::RemoteAtomic)
            .map_err(|fault| match fault {
                // The key does give the right to the bytes, so it is no fault of access.
                MemoryFault::Misaligned => RequestFault::Misaligned,
                fault => RequestFault::RemoteMemory(fault),
            })?;
        self.evict_resource()?;
        let change = match operation {
            Operation::CompareSwap => {
                AtomicChange::SwapIf { expected: atomic.compare, new: atomic.swap_or_add }
            }
            _ => AtomicChange::Add(atomic.swap_or_add),
        };
        let original = memory.atomic(grant, change);
        let psn = self.expected;
        let replay = Replay::Atomic { operation, original };
        self.resources.insert(Resource { first: psn, packets: 1, replay });
        let pending = self.advance(1);
        self.last_executed = psn;
        self.msn = self.msn.wrapping_add(1);
        if self.responses.push(Response::Atomic { psn, original, is_replay: false }) {
            cx.counters().ack_deferred += 1;
        }
        self.resend_seq_nak(pending);
        Ok(())
    }
}
