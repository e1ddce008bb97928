//! The receives of a plan.

use super::algorithm::Algorithm;
use super::cursor::{Cursor, Part};
use super::{OnReceive, Plan, Receive, Target};
use crate::{MemoryKind, MemorySpan, Side};

/// Iterator over the messages from the neighbours, in order.
#[derive(Clone, Debug)]
pub struct Receives {
    plan: Plan,
    cursor: Cursor,
    /// Messages returned so far in the small-message algorithm.
    received: u64,
    /// Messages returned so far whose results go to the scratch memory.
    kept: u64,
}

impl Receives {
    pub(super) fn new(plan: Plan) -> Self {
        Self { plan, cursor: Cursor::default(), received: 0, kept: 0 }
    }

    /// Returns the next span of the scratch rotation, and the send that used it last.
    fn keep(&mut self, count: u64) -> (MemorySpan, Option<(Side, u64)>) {
        let turn = self.kept;
        self.kept += 1;
        let last = turn.checked_sub(u64::from(self.plan.geometry.slots()));
        (
            self.plan.rotated(turn, count),
            last.map(|turn| (Side::Next, self.plan.forwarding_send(turn))),
        )
    }

    fn then(&mut self, part: &Part) -> (OnReceive, Option<(Side, u64)>) {
        let plan = self.plan;
        let (first, count) = (part.extent.first, part.extent.count);
        let own = plan.span(MemoryKind::Input, first, count);
        let in_place = plan.span(MemoryKind::Output, first, count);
        let reduce =
            |into, divide_by| OnReceive::Reduce { own, own_is_left: false, into, divide_by };
        let last = plan.geometry.size() - 2;
        match plan.algorithm {
            Algorithm::Nothing | Algorithm::Barrier | Algorithm::Small => {
                (OnReceive::Nothing, None)
            }
            Algorithm::Large if part.step > last => (OnReceive::Nothing, None),
            Algorithm::Large => {
                // This rank completes the chunk, so it divides.
                let divide_by = if part.step == last { plan.divide_by() } else { None };
                (reduce(in_place, divide_by), None)
            }
            Algorithm::Scatter if part.step == last => {
                let start = u64::from(plan.geometry.rank()) * plan.operation.count;
                let into = plan.span(MemoryKind::Output, first - start, count);
                (reduce(into, plan.divide_by()), None)
            }
            Algorithm::Gather { window: true } | Algorithm::Broadcast { window: true } => {
                (OnReceive::Nothing, None)
            }
            Algorithm::Gather { window: false } | Algorithm::Broadcast { window: false } => {
                (OnReceive::Copy { into: in_place }, None)
            }
            Algorithm::Reduce if plan.geometry.rank() == plan.operation.root => {
                (reduce(in_place, plan.divide_by()), None)
            }
            Algorithm::Scatter | Algorithm::Reduce => {
                let (into, after_sent) = self.keep(count);
                (reduce(into, None), after_sent)
            }
        }
    }
}

impl Iterator for Receives {
    type Item = Receive;

    fn next(&mut self) -> Option<Receive> {
        let plan = self.plan;
        if plan.is_chain() {
            let receive = plan.chain_receive(self.received);
            self.received += u64::from(receive.is_some());
            return receive;
        }
        let part = self.cursor.next(&plan, plan.steps_received(), Plan::received)?;
        let in_place = plan.span(MemoryKind::Output, part.extent.first, part.extent.count);
        let (then, after_sent) = self.then(&part);
        let window = match plan.algorithm {
            Algorithm::Large => part.step >= plan.geometry.size() - 1,
            _ => plan.has_windows(),
        };
        let step = match plan.algorithm {
            Algorithm::Broadcast { .. } | Algorithm::Reduce => plan.distance_from_start() - 1,
            _ => part.step,
        };
        Some(Receive {
            index: part.index,
            side: Side::Previous,
            step,
            piece: part.piece,
            lane: part.lane,
            len: in_place.len,
            to: if window { Target::Window { offset: in_place.offset } } else { Target::Slot },
            then,
            after_sent,
        })
    }
}

impl Plan {
    /// Returns the index of the send that forwards the `turn`-th result in the scratch memory.
    fn forwarding_send(&self, turn: u64) -> u64 {
        if self.algorithm != Algorithm::Scatter {
            return turn;
        }
        // Each pass sends its first step from the input and the others from the scratch memory.
        let around = u64::from(self.geometry.size() - 1);
        let full = self.pieces_per_pass();
        let (pass, within) = (turn / ((around - 1) * full), turn % ((around - 1) * full));
        let pieces = self.pieces(self.operation.count - pass * full * self.max_piece()).min(full);
        pass * around * full + pieces + within
    }
}
