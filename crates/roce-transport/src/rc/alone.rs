//! A message that is one packet, when it is all that there is to send.

use roce_wire::{BTH_LEN, Bth, ICRC_LEN, Pad, RETH_LEN, Reth};

use crate::context::Context;
use crate::gate::Gate;
use crate::rc::RcQueuePair;
use crate::rc::common::Common;
use crate::rc::requests::data_opcode;
use crate::rc::sender::Sender;
use crate::timers::Timer;
use crate::{Access, Memory, Observer, QpState, SendOperation, WrData};

impl RcQueuePair {
    /// Writes the packet of a SEND or WRITE that fits into one, has never been sent, and has nothing
    /// before or behind it that waits to be sent: what most messages are that somebody waits for.
    /// Returns the length of the packet with room for its ICRC.
    ///
    /// `None`, and nothing is done, where that is not so, or where anything else is unusual:
    /// [`transmit`](Self::transmit) takes everything, and does the same with this in twice as many
    /// instructions.
    pub(crate) fn transmit_alone<O: Observer>(
        &mut self,
        delay_acks: bool,
        gate: &mut Gate,
        memory: &impl Memory,
        buf: &mut [u8],
        cx: &Context<'_, O>,
    ) -> Option<usize> {
        let Self { common, sender, responder, timers, .. } = self;
        let responses = &responder.responses;
        let is_held = delay_acks && responses.is_only_an_ack();
        let has_answers = !responses.is_empty() && !is_held;
        if common.state != QpState::ReadyToSend || has_answers {
            return None;
        }
        let (len, asks) = sender.write_alone(common, gate.must_ask(), memory, buf)?;
        if !sender.is_asked() {
            sender.recovery.on_unasked(cx.time);
        }
        sender.credit.on_begun();
        sender.unasked = if asks { 0 } else { sender.unasked + 1 };
        if asks {
            sender.recovery.on_sent(sender.next, cx.time);
        }
        sender.next += 1;
        sender.sent_end = sender.next;
        sender.cursor += 1;
        sender.keep_timed(common, timers, cx.time);
        let number = gate.on_sent(1, asks, 0);
        sender.freight.on_sent(number, sender.next - 1, sender.next);
        self.is_senders_turn = false;
        Some(len)
    }

    /// Whether the time matters to what it sends next: not to one packet behind others that are
    /// under way and timed already.
    pub(crate) fn needs_fresh_now(&self) -> bool {
        let Self { sender, timers, .. } = self;
        let is_one_packet = sender.queue.last_if(sender.cursor).is_some_and(|it| it.packets == 1);
        let is_timed = timers.is_armed(Timer::AckWait)
            && timers.is_armed(Timer::Quiet)
            && sender.recovery.is_timing();
        !is_one_packet || !is_timed
    }
}

impl Sender {
    /// The packet, and whether it asks for an acknowledgement.
    fn write_alone(
        &self,
        common: &Common,
        gate_wants_answer: bool,
        memory: &impl Memory,
        buf: &mut [u8],
    ) -> Option<(usize, bool)> {
        let entry = self.queue.last_if(self.cursor)?;
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
            entry.packets == 1 && self.next == entry.first && self.next == self.sent_end;
        let may_leave = self.recovery.is_calm()
            && !self.is_waiting_for_receiver
            && self.drain_before.is_none()
            && !work.fence
            && self.next - self.oldest < u64::from(self.window.size());
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
                let (pd, len) = (common.init.pd, u64::from(piece.len));
                let grant = memory.check(pd, piece.lkey, piece.addr, len, Access::LocalRead);
                memory.read(grant.ok()?, 0, payload);
            }
            WrData::Sges(_) => {}
        }
        let mut bth = Bth::new(opcode, common.settings.dest_qpn, self.psn(self.next));
        bth.pad = pad;
        bth.solicited_event = work.solicited && work.operation.takes_receive();
        bth.ack_request = !self.may_be_lazy(entry, common) || self.must_ask() || gate_wants_answer;
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
        Some((len, bth.ack_request))
    }
}
