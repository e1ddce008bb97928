//! The long runs of equal packets that long messages are made of.

use roce_wire::{BTH_LEN, Bth};

use crate::context::Context;
use crate::rc::qp_context::QpContext;
use crate::rc::requester::Requester;
use crate::rc::requester::packets::data_opcode;
use crate::train::TrainWriter;
use crate::transfer::GatherCopy;
use crate::{Memory, Observer, SendOperation};

impl Requester {
    /// The packets of a SEND or WRITE between its first and its last, as many as may leave and fit:
    /// what [`step`](Self::step) would write one by one, without asking anew what is the same for
    /// all. Long messages are made of them. Leaves to `step` whatever is not as usual.
    pub(crate) fn write_middle_packets<M: Memory, O: Observer>(
        &mut self,
        qp: &QpContext,
        memory: &M,
        gather: &GatherCopy<M::Grant>,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) {
        let Some(entry) = self.queue.get(self.current_wqe) else { return };
        let operation = &entry.work.operation;
        let has_middle_packets =
            matches!(operation, SendOperation::Send { .. } | SendOperation::Write { .. })
                && self.next > entry.first;
        // A message that has begun is finished even while the queue is being drained.
        if !has_middle_packets || self.in_rnr_wait {
            return;
        }
        let (mtu, last) = (qp.params.mtu, entry.end() - 1);
        let mut offset = entry.offset_of(self.next, mtu);
        let opcode = data_opcode(operation, false, false);
        let mut bth = Bth::new(opcode, qp.params.dest_qpn, self.psn(self.next));
        let window_end = self.unacked + u64::from(self.effective_window());
        let from = self.next;
        while self.next < last.min(window_end) {
            let Some(room) = train.room_for(BTH_LEN, mtu.bytes()) else { break };
            let Some((grant, at)) = gather.cached_grant(self.current_wqe, offset, mtu.bytes())
            else {
                break;
            };
            let payload = &mut room[BTH_LEN..BTH_LEN + mtu.bytes()];
            let crc = memory.read_summed(grant, at, payload);
            bth.ack_request = self.must_request_ack();
            train.push_bth_only(bth.to_bytes(), mtu.bytes(), crc);
            self.since_ack_req = if bth.ack_request { 0 } else { self.since_ack_req + 1 };
            bth.psn = bth.psn.advanced_by(1);
            offset += mtu.bytes() as u64;
            self.next += 1;
        }
        let resent = self.next.min(self.max_sent).saturating_sub(from);
        cx.counters().resent_pkts += resent;
        self.max_sent = self.max_sent.max(self.next);
    }
}
