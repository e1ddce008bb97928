//! The sends of a plan.

use super::algorithm::Algorithm;
use super::cursor::{Cursor, Part};
use super::{Plan, Send, Target};
use crate::{MemoryKind, MemorySpan, Side};

/// Iterator over the messages to the neighbours, in order.
#[derive(Clone, Debug)]
pub struct Sends {
    plan: Plan,
    cursor: Cursor,
    /// Position of the receive that was forwarded last.
    passed_on: Cursor,
    /// Messages returned so far in the small-message algorithm.
    sent: u64,
    /// The side that the middle rank sends the result to first.
    first: Side,
    /// Messages returned so far that are sent from the scratch memory.
    forwarded: u64,
}

impl Sends {
    pub(super) fn new(plan: Plan) -> Self {
        let (cursor, passed_on) = (Cursor::default(), Cursor::default());
        Self { plan, cursor, passed_on, sent: 0, first: Side::Next, forwarded: 0 }
    }

    /// Chooses the side that gets the result first, before anything was sent. Returns the first
    /// message; `None` unless this is the small-message algorithm.
    pub(crate) fn start_with(&mut self, first: Side) -> Option<Send> {
        if !self.plan.is_chain() {
            return None;
        }
        (self.first, self.sent) = (first, 0);
        self.next()
    }

    /// Returns the index of the receive that `part` forwards: the same piece in the previous step.
    /// Pieces are forwarded in the order in which they arrive.
    fn before(&mut self, part: &Part) -> Option<u64> {
        let step = part.step.checked_sub(1)?;
        let plan = self.plan;
        loop {
            let found = self.passed_on.next(&plan, plan.steps_received(), Plan::received)?;
            if (found.pass, found.step, found.piece) == (part.pass, step, part.piece) {
                return Some(found.index);
            }
        }
    }

    /// Returns the scratch span of the next partial result to forward.
    fn forward(&mut self, count: u64) -> MemorySpan {
        let span = self.plan.rotated(self.forwarded, count);
        self.forwarded += 1;
        span
    }
}

impl Iterator for Sends {
    type Item = Send;

    fn next(&mut self) -> Option<Send> {
        let plan = self.plan;
        if plan.is_chain() {
            let send = plan.chain_send(self.sent, self.first);
            self.sent += u64::from(send.is_some());
            return send;
        }
        let part = self.cursor.next(&plan, plan.steps_sent(), Plan::sent)?;
        let (first, count) = (part.extent.first, part.extent.count);
        let memory = if part.step == 0 { MemoryKind::Input } else { MemoryKind::Output };
        let in_place = plan.span(MemoryKind::Output, first, count);
        let window = Target::Window { offset: in_place.offset };

        let mut send = Send {
            index: part.index,
            side: Side::Next,
            step: part.step,
            piece: part.piece,
            lane: part.lane,
            from: MemorySpan { memory, ..in_place },
            to: Target::Slot,
            after: self.before(&part),
        };
        match plan.algorithm {
            Algorithm::Nothing | Algorithm::Barrier | Algorithm::Small => {}
            Algorithm::Large => {
                if part.step >= plan.geometry.size() - 1 {
                    send.to = window;
                }
            }
            Algorithm::Scatter => {
                if part.step > 0 {
                    send.from = self.forward(count);
                }
            }
            Algorithm::Gather { window: large } => {
                if part.step == 0 {
                    let done = part.piece * plan.max_piece();
                    send.from = plan.span(MemoryKind::Input, done, count);
                }
                if large {
                    send.to = window;
                }
            }
            Algorithm::Broadcast { window: large } => {
                send.step = plan.distance_from_start();
                if send.step > 0 {
                    send.from.memory = MemoryKind::Output;
                    send.after = Some(part.index);
                }
                if large {
                    send.to = window;
                }
            }
            Algorithm::Reduce => {
                send.step = plan.distance_from_start();
                if send.step > 0 {
                    send.from = self.forward(count);
                    send.after = Some(part.index);
                }
            }
        }
        Some(send)
    }
}
