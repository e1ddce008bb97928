//! A queue pair of datagrams.

use alloc::collections::VecDeque;

use roce_wire::{Bth, Deth, GRH_LEN, GSI_Q_KEY, Headers, Immediate, Packet, Qpn, Verified, opcode};

use super::Unreliable;
use crate::context::{Context, DropReason};
use crate::qp::context::QpContext;
use crate::qp::shared_receive_queue::SrqTable;
use crate::train::TrainWriter;
use crate::transfer::{GatherCopy, scatter};
use crate::unreliable::pacer::Pacer;
use crate::{
    CompletionOperation, CompletionStatus, Destination, Instant, Memory, ModifyError, Observer,
    PathHandle, PostError, QpAttributes, QpState, SendOperation, SendWr,
};

/// A queue pair of datagrams.
#[derive(Debug)]
pub(crate) struct UdQueuePair {
    pub(crate) base: Unreliable,
    /// Where the requests of the send queue go, one for each.
    destinations: VecDeque<Destination>,
}

/// A Q_Key with this bit is not sent: it stands for the queue pair's own.
//= rule ud-own-q-key: InfiniBand, clause not known
//# A Q_Key with its top bit stands for the queue pair's own.
const OWN_Q_KEY: u32 = 1 << 31;
/// Length of a management datagram.
const MAD_LEN: u64 = 256;

impl UdQueuePair {
    /// A queue pair in RESET.
    pub(crate) fn new(qp: QpContext) -> Self {
        Self { base: Unreliable::new(qp), destinations: VecDeque::new() }
    }

    pub(crate) fn modify<O: Observer>(
        &mut self,
        asked: &QpAttributes,
        cx: &mut Context<'_, O>,
    ) -> Result<(), ModifyError> {
        let (_, to) = self.base.modify(asked, cx)?;
        if matches!(to, QpState::Reset | QpState::Error) {
            self.destinations.clear();
        }
        Ok(())
    }

    /// Fails if the destination cannot take the request.
    fn check_destination(&self, work: &SendWr, to: &Destination) -> Result<(), PostError> {
        let (len, is_mad) = (work.data.len(), self.base.qp.qpn == Qpn::GSI);
        let mtu = to.mtu.bytes();
        //= rule ud-length: InfiniBand 9.8.3
        //# A datagram is one packet, of at most the path MTU; a management datagram has at most 256
        //# bytes.
        let limit = if is_mad { MAD_LEN } else { mtu as u64 };
        if len > limit {
            return Err(PostError::DatagramTooLong { len, mtu: limit as usize }); // at most 4096
        }
        if !to.path.is_sound() {
            return Err(PostError::NoDestination);
        }
        Ok(())
    }

    /// Fails if the request could not be posted behind `ahead` others.
    pub(crate) fn check_send(
        &self,
        work: &SendWr,
        to: &Destination,
        ahead: usize,
    ) -> Result<(), PostError> {
        self.check_destination(work, to)?;
        self.base.check_send(work, ahead)
    }

    pub(crate) fn post_send<O: Observer>(
        &mut self,
        work: SendWr,
        to: Destination,
        cx: &mut Context<'_, O>,
    ) -> Result<(), PostError> {
        self.check_destination(&work, &to)?;
        self.base.post_send(work, cx)?;
        if self.base.sender.queue.is_empty() {
            self.destinations.clear();
        } else {
            self.destinations.push_back(to);
        }
        Ok(())
    }

    /// Path and queue pair number of the next packet.
    pub(crate) fn path_and_dest(&self) -> Option<(PathHandle, Qpn)> {
        self.destinations.front().map(|to| (to.path.handle, to.qpn))
    }

    /// Writes one train of datagrams that go to one queue pair.
    pub(crate) fn transmit<M: Memory, O: Observer>(
        &mut self,
        memory: &M,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) {
        let Some(first) = self.destinations.front().copied() else { return };
        let max_rate = first.path.max_rate;
        let max_packets = Pacer::max_packets(max_rate, first.mtu);
        let mut gather = GatherCopy::new();
        while let Some(to) = self.destinations.front() {
            let is_same = to.path == first.path && to.qpn == first.qpn;
            if !is_same || train.packets() as u64 >= max_packets {
                break;
            }
            match self.write_datagram(*to, memory, &mut gather, train, cx) {
                Some(true) => {
                    self.destinations.pop_front();
                    //= rule ud-psn: InfiniBand 9.8.3
                    //# Each datagram takes one PSN, whatever its length.
                    self.base.sender.commit(1, &self.base.qp, cx);
                }
                Some(false) => break,
                None => {
                    self.base.fail_send(Some(CompletionStatus::LocalProtectionError), cx);
                    self.destinations.clear();
                }
            }
        }
        self.base.sender.on_train(train.len(), max_rate, &self.base.qp, cx);
    }

    /// Writes the datagram in front. Returns false if it has to wait; `None` if its bytes may not be
    /// read.
    fn write_datagram<M: Memory, O: Observer>(
        &self,
        to: Destination,
        memory: &M,
        gather: &mut GatherCopy<M::Grant>,
        train: &mut TrainWriter<'_>,
        cx: &Context<'_, O>,
    ) -> Option<bool> {
        let Unreliable { qp, sender, .. } = &self.base;
        let Some(entry) = sender.sendable(qp.state, cx.time) else { return Some(false) };
        let immediate = match entry.work.operation {
            SendOperation::Send { immediate, .. } => immediate,
            _ => None,
        };
        let opcode = match immediate {
            Some(_) => opcode::UD_SEND_ONLY_IMMEDIATE,
            None => opcode::UD_SEND_ONLY,
        };
        let (headers_len, len) = (opcode.headers_len(), entry.len as usize); // at most a path MTU
        let Some(room) = train.room_for(headers_len, len) else { return Some(false) };
        let payload = &mut room[headers_len..headers_len + len];
        let data = &entry.work.data;
        let crc = gather.copy(memory, qp.accessor(), entry.number, data, 0, payload).ok()?;
        let mut bth = Bth::new(opcode, to.qpn, sender.psn());
        bth.solicited_event = entry.work.solicited;
        let q_key = match cx.qpn {
            Qpn::GSI => GSI_Q_KEY,
            _ if to.q_key & OWN_Q_KEY != 0 => qp.params.q_key,
            _ => to.q_key,
        };
        let deth = Some(Deth { q_key, source_qp: cx.qpn });
        let immediate = immediate.map(Immediate);
        train.push(&Headers { deth, immediate, ..Headers::new(bth) }, len, crc);
        Some(true)
    }

    /// Handles a packet of any sender.
    pub(crate) fn handle_packet<O: Observer>(
        &mut self,
        packet: &Packet<'_, Verified>,
        srqs: &mut SrqTable,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) {
        let psn = packet.bth().psn();
        let Some(deth) = packet.view().deth() else {
            return cx.dropped(psn, DropReason::WrongService);
        };
        let Unreliable { qp, receives, .. } = &mut self.base;
        if let Err(cause) = qp.admit_from_any(packet) {
            return cx.dropped(psn, cause);
        }
        //= rule ud-q-key-gsi: rxe_recv.c: check_keys
        //# The Q_Key of queue pair 1 is 0x80010000.
        let q_key = if cx.qpn == Qpn::GSI { GSI_Q_KEY } else { qp.params.q_key };
        //= rule ud-q-key: InfiniBand 9.6; rxe_recv.c: check_keys
        //# A datagram with another Q_Key than the queue pair's is dropped.
        if deth.q_key != q_key {
            return cx.dropped(psn, DropReason::BadQkey);
        }
        let Some(work) = receives.queue_mut(srqs).and_then(|receives| receives.take()) else {
            //= rule ud-no-receive: rxe_resp.c: check_resource
            //# A datagram without a receive is dropped.
            return cx.dropped(psn, DropReason::OutOfBuffer);
        };
        cx.counters().rcvd_pkts += 1;
        cx.out.observer.packet_accepted(cx.now, cx.qpn, psn);
        let payload = packet.payload();
        let whole = (GRH_LEN + payload.len()) as u64;
        //= rule ud-receive-length: rxe_resp.c: send_data_in
        //# A datagram longer than its receive fails that receive with a length error, and nothing
        //# else.
        if whole > work.sg_list.total_len() {
            return qp.complete_receive(&work, CompletionStatus::LocalLengthError, cx);
        }
        let (by, list) = (qp.receive_accessor(), &work.sg_list);
        //= also wire-network-header
        let grh = packet.network_header();
        let placed = scatter(memory, by, list, 0, &grh)
            .and_then(|()| scatter(memory, by, list, GRH_LEN as u64, payload));
        if placed.is_err() {
            cx.counters().local_protection_err += 1;
            qp.complete_receive(&work, CompletionStatus::LocalProtectionError, cx);
            return self.handle_failure(cx);
        }
        let (operation, status) = (CompletionOperation::Recv, CompletionStatus::Success);
        let mut completion = qp.completion(work.wr_id, operation, status, whole);
        completion.immediate = packet.view().immediate().map(|it| it.0);
        completion.source_qpn = Some(deth.source_qp);
        // In front of an IPv4 header the GRH is zero.
        completion.is_over_ipv6 = grh[0] >> 4 == 6;
        completion.solicited = packet.bth().solicited_event();
        cx.counters().rdma_recvs += 1;
        qp.complete_received(completion, cx);
    }

    /// The queue pair failed for an external reason, or names memory that may not be used.
    pub(crate) fn handle_failure<O: Observer>(&mut self, cx: &mut Context<'_, O>) {
        self.base.fail(cx);
        self.destinations.clear();
    }

    /// Sending failed for an external reason; receiving goes on.
    pub(crate) fn handle_send_failure<O: Observer>(&mut self, cx: &mut Context<'_, O>) {
        self.base.fail_send(None, cx);
        self.destinations.clear();
    }

    pub(crate) fn handle_timeout<O: Observer>(
        &mut self,
        taken_at: Instant,
        cx: &mut Context<'_, O>,
    ) {
        self.base.handle_timeout(taken_at, cx);
        if self.base.sender.queue.is_empty() {
            self.destinations.clear();
        }
    }
}
