//! Going through passes, steps and pieces.

use super::Plan;
use super::shape::{Extent, Shape};

/// A message's place in a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) index: u64,
    pub(super) step: u32,
    pub(super) piece: u64,
    /// The lane it travels on.
    pub(super) lane: u32,
    /// The elements of this piece.
    pub(super) extent: Extent,
    /// The message of the same piece in the step before: what is sent in a step was received
    /// in the step before, so both counts of messages agree.
    pub(super) before: Option<u64>,
}

/// Where in a plan we are: constant in size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Walk {
    index: u64,
    pass: u64,
    step: u32,
    piece: u64,
    /// The index of the first message of the step before, as it was received.
    base: u64,
}

impl Walk {
    /// The next message; `steps` and `extent` say what moves in this direction.
    pub(super) fn next(
        &mut self,
        plan: &Plan,
        steps: u32,
        extent: impl Fn(&Plan, u64, u32) -> Extent,
    ) -> Option<Part> {
        while self.pass < plan.passes() {
            if self.step == steps {
                *self = Self {
                    index: self.index,
                    pass: self.pass + 1,
                    base: self.index,
                    ..Self::default()
                };
                continue;
            }
            let whole = extent(plan, self.pass, self.step);
            // A barrier's messages are empty, and sent all the same.
            let pieces = if plan.shape == Shape::Barrier { 1 } else { plan.pieces(whole.count) };
            if self.piece == pieces {
                self.base += if self.step > 0 { pieces } else { 0 };
                self.step += 1;
                self.piece = 0;
                continue;
            }
            let done = self.piece * plan.max_piece();
            let part = Part {
                index: self.index,
                step: self.step,
                piece: self.piece,
                lane: (self.index % u64::from(plan.geometry.lanes())) as u32,
                extent: Extent {
                    first: whole.first + done,
                    count: (whole.count - done).min(plan.max_piece()),
                    ..whole
                },
                before: (self.step > 0).then_some(self.base + self.piece),
            };
            self.index += 1;
            self.piece += 1;
            return Some(part);
        }
        None
    }
}
