//! Execution of the peer's requests, one operation at a time.
//!
//! Everything is judged before a byte is touched, in this order: does the packet follow the
//! one before it, is its length right, does the queue pair allow it, is there a receive or
//! room to remember, does the key open the bytes.

use roce_wire::{AtomicEth, Operation, Packet, Reth, Verified};

use crate::context::Context;
use crate::rc::common::Common;
use crate::rc::receive_queue::ReceiveQueue;
use crate::rc::resources::{Remembered, Resource};
use crate::rc::responder::{Open, Refusal, Responder, SendInProgress, WriteInProgress};
use crate::rc::responses::{ReadReply, Response};
use crate::rc::send_queue::packets_for;
use crate::transfer::scatter;
use crate::{
    Access, AccessFlags, AtomicChange, CompletionOperation, CompletionStatus, MAX_MESSAGE_LEN,
    MAX_READ_PACKETS, Memory, MemoryFault, Observer, RequestFault,
};

impl Responder {
    /// Executes the expected packet.
    ///
    /// # Errors
    /// [`Refusal`]: the queue pair cannot go on.
    pub(super) fn execute<O: Observer>(
        &mut self,
        common: &Common,
        packet: &Packet<'_, Verified>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), Refusal> {
        let headers = packet.headers();
        let info = headers.bth.opcode.info();
        let may_follow = match &self.open {
            Open::None => info.position.is_first(),
            Open::Send(_) => !info.position.is_first() && info.operation == Operation::Send,
            Open::Write(_) => !info.position.is_first() && info.operation == Operation::Write,
        };
        if !may_follow {
            return Err(RequestFault::OpcodeOutOfSequence.into());
        }
        match info.operation {
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
        let position = headers.bth.opcode.info().position;
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
        if position.is_first() && position.is_last() {
            return self.execute_whole_send(common, packet, receives, memory, cx);
        }
        if position.is_first() {
            let Some(work) = receives.take() else {
                self.push_rnr(common, cx);
                return Ok(());
            };
            let posted = work.sg_list.total_len();
            self.open = Open::Send(SendInProgress { work, posted, received: 0 });
        }
        let Open::Send(open) = &mut self.open else {
            return Err(RequestFault::OpcodeOutOfSequence.into());
        };
        if open.received + len as u64 > open.posted.min(MAX_MESSAGE_LEN) {
            return Err(RequestFault::LongerThanReceive { posted: open.posted }.into());
        }
        scatter(memory, common.init.pd, &open.work.sg_list, open.received, payload)
            .map_err(RequestFault::ReceiveMemory)?;
        open.received += len as u64;
        let (wr_id, received) = (open.work.wr_id, open.received);
        self.on_executed(packet, cx);
        if !position.is_last() {
            return Ok(());
        }
        self.end_send(common, packet, (wr_id, received), memory, cx)
    }

    /// A SEND that is one packet: its receive stays where it is until it is used up.
    fn execute_whole_send<O: Observer>(
        &mut self,
        common: &Common,
        packet: &Packet<'_, Verified>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), Refusal> {
        let Some(work) = receives.front() else {
            self.push_rnr(common, cx);
            return Ok(());
        };
        let (posted, received) = (work.sg_list.total_len(), packet.payload().len() as u64);
        let moved = if received > posted {
            Err(RequestFault::LongerThanReceive { posted })
        } else {
            scatter(memory, common.init.pd, &work.sg_list, 0, packet.payload())
                .map_err(RequestFault::ReceiveMemory)
        };
        let wr_id = work.wr_id;
        let ended = moved.map_err(Refusal::from).and_then(|()| {
            self.on_executed(packet, cx);
            self.end_send(common, packet, (wr_id, received), memory, cx)
        });
        if let (Some(work), true) = (receives.take(), ended.is_err()) {
            // It ends with the queue pair.
            self.open = Open::Send(SendInProgress { work, posted, received: 0 });
        }
        ended
    }

    /// All of a SEND was executed, into the receive of this number and so many bytes of it.
    fn end_send<O: Observer>(
        &mut self,
        common: &Common,
        packet: &Packet<'_, Verified>,
        (wr_id, received): (u64, u64),
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), Refusal> {
        let headers = packet.headers();
        self.msn = self.msn.wrapping_add(1);
        let mut completion = common.completion(
            wr_id,
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
        let position = headers.bth.opcode.info().position;
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
                work.wr_id,
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
        let complaint = self.advance(packets);
        self.msn = self.msn.wrapping_add(1);
        let reply = ReadReply { resource: first, first, packets, sent: 0, reth, is_replay: false };
        if self.responses.push(Response::Read(reply)) {
            cx.counters().ack_deferred += 1;
        }
        self.complain_again(complaint);
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
            .map_err(|fault| match fault {
                // The key does give the right to the bytes, so it is no fault of access.
                MemoryFault::Misaligned => RequestFault::Misaligned,
                fault => RequestFault::RemoteMemory(fault),
            })?;
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
        let complaint = self.advance(1);
        self.last_executed = psn;
        self.msn = self.msn.wrapping_add(1);
        if self.responses.push(Response::Atomic { psn, original, is_replay: false }) {
            cx.counters().ack_deferred += 1;
        }
        self.complain_again(complaint);
        Ok(())
    }
}
