//! The messages to the neighbours.

use super::shape::Shape;
use super::walk::{Part, Walk};
use super::{Plan, Send, Target};
use crate::{MemoryKind, MemorySpan, Side};

/// The messages to the neighbours, in their order.
#[derive(Clone, Debug)]
pub struct Sends {
    plan: Plan,
    walk: Walk,
    /// The receive that was passed on last.
    passed_on: Walk,
    /// How many were sent in the small way.
    sent: u64,
    /// Where the small way has two sides to answer: which of them first.
    first: Side,
    /// How many of them came from the scratch.
    forwarded: u64,
}

impl Sends {
    pub(super) fn new(plan: Plan) -> Self {
        let (walk, passed_on) = (Walk::default(), Walk::default());
        Self { plan, walk, passed_on, sent: 0, first: Side::Next, forwarded: 0 }
    }

    /// As long as nothing was sent in the small way: who is answered first, where both sides get
    /// the same. Returns what the first message is then; `None` in any other way.
    pub(crate) fn begin_with(&mut self, first: Side) -> Option<Send> {
        if !self.plan.is_line() {
            return None;
        }
        (self.first, self.sent) = (first, 0);
        self.next()
    }

    /// The receive that brought what `part` passes on: the same piece in the step before. What
    /// is sent first was received first.
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

    /// What was reduced here before goes on from the scratch's rotation.
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
        if plan.is_line() {
            let send = plan.line_send(self.sent, self.first);
            self.sent += u64::from(send.is_some());
            return send;
        }
        let part = self.walk.next(&plan, plan.steps_sent(), Plan::sent)?;
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
        match plan.shape {
            Shape::Nothing | Shape::Barrier | Shape::Small => {}
            Shape::Large => {
                if part.step >= plan.geometry.size() - 1 {
                    send.to = window;
                }
            }
            Shape::Scatter => {
                if part.step > 0 {
                    send.from = self.forward(count);
                }
            }
            Shape::Gather { window: large } => {
                if part.step == 0 {
                    let done = part.piece * plan.max_piece();
                    send.from = plan.span(MemoryKind::Input, done, count);
                }
                if large {
                    send.to = window;
                }
            }
            Shape::Broadcast { window: large } => {
                send.step = plan.chain_distance();
                if send.step > 0 {
                    send.from.memory = MemoryKind::Output;
                    send.after = Some(part.index);
                }
                if large {
                    send.to = window;
                }
            }
            Shape::Reduce => {
                send.step = plan.chain_distance();
                if send.step > 0 {
                    send.from = self.forward(count);
                    send.after = Some(part.index);
                }
            }
        }
        Some(send)
    }
}
