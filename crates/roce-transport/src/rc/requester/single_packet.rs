//! Fast path for a message of one packet, when it is all that there is to send.

use roce_wire::{BTH_LEN, Bth, ICRC_LEN, Pad, RETH_LEN, Reth};

use super::Requester;
use super::ack_request::AckPolicy;
use crate::context::Context;
use crate::peer_window::PeerWindow;
use crate::qp::context::QpContext;
use crate::qp::outgoing_message::data_opcode;
use crate::rc::send_state::Sent;
use crate::timers::{Timer, Timers};
use crate::{Access, Memory, Observer, SendOperation, WrData};

impl Requester {
    /// Writes the packet of a SEND or WRITE that fits into one packet, has never been sent, and is all
    /// that waits to be sent, as most messages are whose latency matters. Returns the length of the
    /// packet with room for its ICRC.
    ///
    /// Returns `None`, with no effect, in all other cases: [`transmit`](Self::transmit) handles them,
    /// and would write this packet too, in twice as many instructions.
    #[inline]
    pub(crate) fn transmit_single<O: Observer>(
        &mut self,
        qp: &QpContext,
        timers: &mut Timers,
        window: &mut PeerWindow,
        memory: &impl Memory,
        buf: &mut [u8],
        cx: &mut Context<'_, O>,
    ) -> Option<usize> {
        let mut acks = self.ack_policy(window.must_request_ack());
        let len = self.write_single(qp, &mut acks, memory, buf)?;
        if !self.send.has_requested_ack() {
            self.recovery.rebase_probe_timer(cx.time);
        }
        let (seq, has_requested) = (self.send.next(), acks.since_ack_req() == 0);
        if has_requested {
            self.recovery.on_sent(seq, cx.time);
        }
        self.send.set_since_ack_req(acks.since_ack_req());
        self.send.commit(&Sent::data(1, true, true), cx.counters());
        self.keep_timed(qp, timers, cx.time);
        let number = window.on_sent(1, has_requested, 0);
        self.frames.on_sent(number, seq, self.send.next());
        Some(len)
    }

    /// Returns false if what is sent next is one packet behind others that are in flight and timed.
    pub(crate) fn needs_fresh_now(&self, timers: &Timers) -> bool {
        let is_one_packet = self.send.current_if_last().is_some_and(|it| it.packets == 1);
        let is_timed = timers.is_armed(Timer::AckTimeout)
            && timers.is_armed(Timer::Probe)
            && self.recovery.is_timing();
        !is_one_packet || !is_timed
    }

    /// Writes the packet and returns its length.
    fn write_single(
        &self,
        qp: &QpContext,
        acks: &mut AckPolicy,
        memory: &impl Memory,
        buf: &mut [u8],
    ) -> Option<usize> {
        let send = &self.send;
        let entry = send.current_if_last()?;
        let work = &entry.work;
        let (reth, trailer) = match work.operation {
            SendOperation::Send { immediate, invalidate } => {
                (None, immediate.or(invalidate.map(u32::to_be_bytes)))
            }
            SendOperation::Write { remote, immediate } => {
                let len = entry.len as u32; // at most a packet
                (Some(Reth { addr: remote.addr, rkey: remote.rkey, len }), immediate)
            }
            _ => return None,
        };
        let is_whole_and_new =
            entry.packets == 1 && send.next() == entry.first && send.next() == send.max_sent();
        let may_leave = self.recovery.is_open()
            && !self.recovery.is_in_rnr_wait()
            && !send.is_to_be_drained()
            && !work.fence
            && !self.limit.has_reaction()
            && send.in_flight() < u64::from(self.limit.size());
        if !is_whole_and_new || !may_leave || !send.may_begin(entry) {
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
        let mut bth = Bth::new(opcode, qp.params.dest_qpn, send.psn(send.next()));
        bth.pad = pad;
        //= also rc-solicited
        bth.solicited_event = work.solicited && work.operation.takes_receive();
        bth.ack_request = acks.requests_single(send.next(), &entry, send, qp);
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
