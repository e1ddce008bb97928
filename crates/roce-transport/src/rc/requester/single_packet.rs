//! Fast path for a message of one packet, when it is all that there is to send.

use roce_wire::{BTH_LEN, Bth, ICRC_LEN, Pad, RETH_LEN, Reth};

use crate::context::Context;
use crate::endpoint::peer_window::PeerWindow;
use crate::qp::context::QpContext;
use crate::qp::outgoing_message::data_opcode;
use crate::rc::RcQueuePair;
use crate::rc::requester::Requester;
use crate::rc::requester::ack_request::AckPolicy;
use crate::rc::requester::transmit::Sent;
use crate::timers::Timer;
use crate::{Access, Memory, Observer, QpState, SendOperation, WrData};

impl RcQueuePair {
    /// Writes the packet of a SEND or WRITE that fits into one packet, has never been sent, and is all
    /// that waits to be sent, as most messages are whose latency matters. Returns the length of the
    /// packet with room for its ICRC.
    ///
    /// Returns `None`, with no effect, in all other cases: [`transmit`](Self::transmit) handles them,
    /// and would write this packet too, in twice as many instructions.
    pub(crate) fn transmit_single<O: Observer>(
        &mut self,
        delay_acks: bool,
        window: &mut PeerWindow,
        memory: &impl Memory,
        buf: &mut [u8],
        cx: &mut Context<'_, O>,
    ) -> Option<usize> {
        let Self { qp, requester, responder, timers, .. } = self;
        let responses = &responder.responses;
        let is_held = delay_acks && responses.is_only_an_ack();
        let has_responses = !responses.is_empty() && !is_held;
        if qp.state != QpState::ReadyToSend || has_responses {
            return None;
        }
        let mut acks = AckPolicy::new(requester, window.must_request_ack());
        let len = requester.write_single(qp, &mut acks, memory, buf)?;
        if !requester.has_requested_ack() {
            requester.recovery.rebase_probe_timer(cx.time);
        }
        let (seq, has_requested) = (requester.next, acks.since_ack_req() == 0);
        if has_requested {
            requester.recovery.on_sent(seq, cx.time);
        }
        requester.since_ack_req = acks.since_ack_req();
        requester.commit(&Sent::data(1, true, true), cx.counters());
        requester.keep_timed(qp, timers, cx.time);
        let number = window.on_sent(1, has_requested, 0);
        requester.frames.on_sent(number, seq, requester.next);
        self.requests_first = false;
        Some(len)
    }

    /// Returns false if what is sent next is one packet behind others that are in flight and timed.
    pub(crate) fn needs_fresh_now(&self) -> bool {
        let Self { requester, timers, .. } = self;
        let is_one_packet =
            requester.queue.last_if(requester.current_wqe).is_some_and(|it| it.packets == 1);
        let is_timed = timers.is_armed(Timer::AckTimeout)
            && timers.is_armed(Timer::Probe)
            && requester.recovery.is_timing();
        !is_one_packet || !is_timed
    }
}

impl Requester {
    /// Writes the packet and returns its length.
    fn write_single(
        &self,
        qp: &QpContext,
        acks: &mut AckPolicy,
        memory: &impl Memory,
        buf: &mut [u8],
    ) -> Option<usize> {
        let entry = self.queue.last_if(self.current_wqe)?;
        let work = &entry.work;
        let (reth, trailer) = match work.operation {
            SendOperation::Send { immediate, invalidate } => {
                (None, immediate.or(invalidate.map(u32::to_be_bytes)))
            }
            SendOperation::Write { remote, immediate } => {
                let len = entry.len as u32; // at most a packet
                (Some(Reth { address: remote.addr, key: remote.rkey, len }), immediate)
            }
            _ => return None,
        };
        let is_whole_and_new =
            entry.packets == 1 && self.next == entry.first && self.next == self.max_sent;
        let may_leave = self.recovery.is_open()
            && !self.in_rnr_wait
            && self.drain_before.is_none()
            && !work.fence
            && self.reaction.is_none()
            && self.next - self.unacked < u64::from(self.window.size());
        if !is_whole_and_new || !may_leave || !self.may_begin(entry) {
            return None;
        }
        let opcode = data_opcode(&work.operation, true, true);
        let (headers_len, payload_len) = (opcode.headers_len(), entry.len as usize);
        let pad = Pad::for_payload(payload_len);
        let len = headers_len + payload_len + pad.bytes() + ICRC_LEN;
        let packet = buf.get_mut(..len)?;
        let (headers, rest) = packet.split_at_mut(headers_len);
        let (payload, rest) = rest.split_at_mut(payload_len);
        match &work.data {
            WrData::Inline(bytes) => payload.copy_from_slice(bytes.as_slice()),
            WrData::Sges(list) if payload_len > 0 => {
                let [piece] = list.as_slice() else { return None };
                let (by, len) = (qp.accessor(), u64::from(piece.len));
                let grant = memory.check(by, piece.lkey, piece.addr, len, Access::LocalRead);
                // A page that is not present is left to `transmit`, which fails the request.
                memory.read(grant.ok()?, 0, payload).ok()?;
            }
            WrData::Sges(_) => {}
        }
        let mut bth = Bth::new(opcode, qp.params.dest_qpn, self.psn(self.next));
        bth.pad = pad;
        bth.solicited_event = work.solicited && work.operation.takes_receive();
        bth.ack_request = acks.requests_single(self.next, &entry, self, qp);
        headers[..BTH_LEN].copy_from_slice(&bth.to_bytes());
        let mut at = BTH_LEN;
        if let Some(reth) = reth {
            headers[at..at + RETH_LEN].copy_from_slice(&reth.to_bytes());
            at += RETH_LEN;
        }
        if let Some(trailer) = trailer {
            headers[at..].copy_from_slice(&trailer);
        }
        rest[..pad.bytes()].fill(0);
        Some(len)
    }
}
