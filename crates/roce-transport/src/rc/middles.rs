//! The long runs of equal packets that long messages are made of.

use roce_wire::{BTH_LEN, Bth};

use crate::context::Context;
use crate::rc::common::Common;
use crate::rc::requests::data_opcode;
use crate::rc::sender::Sender;
use crate::train::TrainWriter;
use crate::transfer::Gather;
use crate::{Memory, Observer, SendOperation};

impl Sender {
    /// The packets of a SEND or WRITE between its first and its last, as many as may leave and fit:
    /// what [`step`](Self::step) would write one by one, without asking anew what is the same for
    /// all. Long messages are made of them. Leaves to `step` whatever is not as usual.
    pub(super) fn write_middles<M: Memory, O: Observer>(
        &mut self,
        common: &Common,
        memory: &M,
        gather: &Gather<M::Grant>,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) {
        let Some(entry) = self.queue.get(self.cursor) else { return };
        let operation = &entry.work.operation;
        let has_middles =
            matches!(operation, SendOperation::Send { .. } | SendOperation::Write { .. })
                && self.next > entry.first;
        // A message that has begun is finished even while the queue is being drained.
        if !has_middles || self.is_waiting_for_receiver {
            return;
        }
        let (mtu, last) = (common.settings.mtu, entry.end() - 1);
        let mut offset = entry.offset_of(self.next, mtu);
        let opcode = data_opcode(operation, false, false);
        let mut bth = Bth::new(opcode, common.settings.dest_qpn, self.psn(self.next));
        let window_end = self.oldest + u64::from(self.most_in_flight());
        let from = self.next;
        while self.next < last.min(window_end) {
            let Some(room) = train.room_for(BTH_LEN, mtu.bytes()) else { break };
            let Some((grant, at)) = gather.granted(self.cursor, offset, mtu.bytes()) else { break };
            let payload = &mut room[BTH_LEN..BTH_LEN + mtu.bytes()];
            let crc = memory.read_summed(grant, at, payload);
            bth.ack_request = self.must_ask();
            train.push_middle(bth.to_bytes(), mtu.bytes(), crc);
            self.unasked = if bth.ack_request { 0 } else { self.unasked + 1 };
            bth.psn = bth.psn.advanced_by(1);
            offset += mtu.bytes() as u64;
            self.next += 1;
        }
        let resent = self.next.min(self.sent_end).saturating_sub(from);
        cx.counters().resent_pkts += resent;
        self.sent_end = self.sent_end.max(self.next);
    }
}
