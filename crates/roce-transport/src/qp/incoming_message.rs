//! Places the packets of SENDs and WRITEs in memory.
//!
//! Everything is checked before a byte is touched, in this order: length, rights of the queue pair,
//! receive, memory key. Whether its pages are present is found when they are written.

use roce_wire::{Ext, Operation, PacketView, Position, Reth};

use crate::qp::context::QpContext;
use crate::qp::receive_queue::ReceiveQueue;
use crate::transfer::scatter;
use crate::{
    Access, AccessFlags, Completion, CompletionOperation, CompletionStatus, MAX_MESSAGE_LEN,
    Memory, RecvWr, RequestFault,
};

/// The message of which the first packet is placed and the last is not.
#[derive(Debug, Default)]
pub(crate) enum IncomingMessage {
    #[default]
    None,
    Send(SendInProgress),
    Write(WriteInProgress),
}

#[derive(Debug)]
pub(crate) struct SendInProgress {
    work: RecvWr,
    /// Length of the receive, in bytes.
    posted: u64,
    received: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteInProgress {
    reth: Reth,
    written: u64,
}

/// What became of a packet.
pub(crate) enum Placed {
    /// Its payload is in memory, and more of the message follows.
    Part,
    /// The message is whole; the completion of the receive that it took, if it took one.
    Whole(Option<Completion>),
    /// Nothing: the message needs a receive and none is posted.
    NoReceive,
}

impl IncomingMessage {
    /// Returns true if a packet of this kind may come next.
    //= also rc-opcode-order
    #[inline]
    pub(crate) fn admits(&self, operation: Operation, position: Position) -> bool {
        if position.is_first() {
            return matches!(self, Self::None);
        }
        match self {
            Self::None => false,
            Self::Send(_) => operation == Operation::Send,
            Self::Write(_) => operation == Operation::Write,
        }
    }

    /// Takes the receive of the message, which is given up.
    pub(crate) fn take_receive(&mut self) -> Option<RecvWr> {
        match core::mem::take(self) {
            Self::Send(it) => Some(it.work),
            _ => None,
        }
    }

    /// Returns true if the message holds a receive.
    pub(crate) const fn holds_receive(&self) -> bool {
        matches!(self, Self::Send(_))
    }

    /// Places a packet of a SEND or WRITE that [`admits`](Self::admits) has let in.
    ///
    /// # Errors
    /// [`RequestFault`]. A receive that the message uses is still there for
    /// [`take_receive`](Self::take_receive).
    // Without the calls a received packet costs 5 % fewer instructions.
    #[inline(always)]
    pub(crate) fn place(
        &mut self,
        packet: &PacketView<'_>,
        qp: &QpContext,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
    ) -> Result<Placed, RequestFault> {
        match packet.operation() {
            Operation::Write => self.place_write(packet, qp, receives, memory),
            _ => self.place_send(packet, qp, receives, memory),
        }
    }

    #[inline(always)]
    fn place_send(
        &mut self,
        packet: &PacketView<'_>,
        qp: &QpContext,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
    ) -> Result<Placed, RequestFault> {
        let position = packet.position();
        let payload = packet.payload();
        let len = payload.len();
        let mtu = qp.params.mtu.bytes();
        //= rule rc-payload-length: InfiniBand 9.7.4; rxe_resp.c: check_length
        //# First and Middle packets carry exactly one path MTU, Last packets 1 byte to one path
        //# MTU, Only packets at most one.
        let is_sound = if position.is_last() {
            len <= mtu && (len > 0 || position.is_first())
        } else {
            len == mtu
        };
        if !is_sound {
            return Err(RequestFault::PayloadLength { len });
        }
        if position.is_first() && position.is_last() {
            return self.place_send_only(packet, payload, qp, receives, memory);
        }
        if position.is_first() {
            let Some(work) = receives.take() else { return Ok(Placed::NoReceive) };
            let posted = work.sg_list.total_len();
            *self = Self::Send(SendInProgress { work, posted, received: 0 });
        }
        let Self::Send(current) = self else { return Err(RequestFault::OpcodeOutOfSequence) };
        //= rule rc-send-length: rxe_resp.c: send_data_in
        //# A SEND longer than the receive posted for it is an invalid request, and the receive
        //# fails with a length error.
        if current.received + len as u64 > current.posted.min(MAX_MESSAGE_LEN) {
            return Err(RequestFault::LongerThanReceive { posted: current.posted });
        }
        scatter(memory, qp.receive_accessor(), &current.work.sg_list, current.received, payload)
            .map_err(RequestFault::ReceiveMemory)?;
        current.received += len as u64;
        if !position.is_last() {
            return Ok(Placed::Part);
        }
        let (wr_id, received) = (current.work.wr_id, current.received);
        *self = Self::None;
        Ok(Placed::Whole(Some(received_send(packet, qp, wr_id, received))))
    }

    /// A SEND that is one packet: its receive stays where it is until it is used up.
    fn place_send_only(
        &mut self,
        packet: &PacketView<'_>,
        payload: &[u8],
        qp: &QpContext,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
    ) -> Result<Placed, RequestFault> {
        let Some(work) = receives.front() else { return Ok(Placed::NoReceive) };
        let (posted, received) = (work.sg_list.total_len(), payload.len() as u64);
        //= also rc-send-length
        let moved = if received > posted {
            Err(RequestFault::LongerThanReceive { posted })
        } else {
            scatter(memory, qp.receive_accessor(), &work.sg_list, 0, payload)
                .map_err(RequestFault::ReceiveMemory)
        };
        let wr_id = work.wr_id;
        let work = receives.take();
        if let Err(fault) = moved {
            if let Some(work) = work {
                *self = Self::Send(SendInProgress { work, posted, received: 0 });
            }
            return Err(fault);
        }
        Ok(Placed::Whole(Some(received_send(packet, qp, wr_id, received))))
    }

    #[inline(always)]
    fn place_write(
        &mut self,
        packet: &PacketView<'_>,
        qp: &QpContext,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
    ) -> Result<Placed, RequestFault> {
        let position = packet.position();
        let payload = packet.payload();
        let by = qp.accessor();
        let WriteInProgress { reth, written } = if position.is_first() {
            let reth = packet.reth().ok_or(RequestFault::OpcodeOutOfSequence)?;
            WriteInProgress { reth, written: 0 }
        } else {
            let Self::Write(current) = self else { return Err(RequestFault::OpcodeOutOfSequence) };
            *current
        };
        let whole = u64::from(reth.len);
        if position.is_first() {
            //= also rc-access-flags
            if !qp.params.access.contains(AccessFlags::REMOTE_WRITE) {
                return Err(RequestFault::NotAllowed);
            }
            //= also rc-message-length
            if whole > MAX_MESSAGE_LEN {
                return Err(RequestFault::MessageTooLong { len: whole });
            }
        }
        let left = whole - written;
        let mtu = qp.params.mtu.bytes() as u64;
        //= rule rc-write-length: rxe_resp.c: check_rkey
        //# The packets of a WRITE carry exactly as many bytes as its RETH says.
        // Middle packets are full and something is left behind them; the last takes the rest.
        let is_sound = if position.is_last() {
            payload.len() as u64 == left && left <= mtu
        } else {
            payload.len() as u64 == mtu && left > mtu
        };
        if !is_sound {
            return Err(RequestFault::PayloadLength { len: payload.len() });
        }
        //= also rc-empty-needs-no-key
        //= rule rc-remote-key: InfiniBand, clause not known; rxe_resp.c: check_rkey
        //# The key gives the right to all bytes of a WRITE, or not one is written and the request
        //# draws a NAK (remote access error).
        if position.is_first() && whole > 0 {
            memory
                .check(by, reth.rkey, reth.addr, whole, Access::RemoteWrite)
                .map_err(RequestFault::RemoteMemory)?;
        }
        // Before a byte is touched: the packet may come again, once a receive is posted.
        //= rule rc-write-takes-receive: InfiniBand, clause not known; rxe_resp.c: check_resource
        //# A WRITE with immediate data takes a receive with its last packet, and no WRITE without
        //# them does.
        if packet.has(Ext::Immediate) && receives.is_empty() {
            return Ok(Placed::NoReceive);
        }
        if !payload.is_empty() {
            let address = reth.addr.wrapping_add(written);
            let grant = memory
                .check(by, reth.rkey, address, payload.len() as u64, Access::RemoteWrite)
                .map_err(RequestFault::RemoteMemory)?;
            memory.write(grant, 0, payload).map_err(RequestFault::RemoteMemory)?;
        }
        if !position.is_last() {
            let written = written + payload.len() as u64;
            match self {
                Self::Write(current) => current.written = written,
                _ => *self = Self::Write(WriteInProgress { reth, written }),
            }
            return Ok(Placed::Part);
        }
        *self = Self::None;
        let Some(immediate) = packet.immediate() else { return Ok(Placed::Whole(None)) };
        let completion = receives.take().map(|work| {
            let operation = CompletionOperation::RecvWithImmediate;
            let success = CompletionStatus::Success;
            let mut completion = qp.completion(work.wr_id, operation, success, whole);
            completion.immediate = Some(immediate.0);
            completion.solicited = packet.bth().solicited_event();
            completion
        });
        Ok(Placed::Whole(completion))
    }
}

fn received_send(packet: &PacketView<'_>, qp: &QpContext, wr_id: u64, received: u64) -> Completion {
    let (operation, status) = (CompletionOperation::Recv, CompletionStatus::Success);
    let mut completion = qp.completion(wr_id, operation, status, received);
    completion.immediate = packet.immediate().map(|it| it.0);
    completion.invalidated_key = packet.invalidate().map(|it| it.0);
    completion.solicited = packet.bth().solicited_event();
    completion
}
