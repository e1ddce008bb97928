//! Iteration over passes, waves and steps.

use super::Plan;
use super::algorithm::Extent;

/// A message's position in a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) index: u64,
    pub(super) pass: u64,
    pub(super) step: u32,
    pub(super) piece: u64,
    /// The lane.
    pub(super) lane: u32,
    /// The elements of the piece.
    pub(super) extent: Extent,
}

/// A position in a plan, of constant size.
///
/// Piece p of step s belongs to wave p + depth × s. Messages are ordered by wave, and by step
/// within a wave. With a depth of all pieces of a step, the steps follow each other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    index: u64,
    pass: u64,
    wave: u64,
    step: u32,
}

impl Cursor {
    /// Returns the next message; `steps` and `extent` describe the direction.
    pub(super) fn next(
        &mut self,
        plan: &Plan,
        steps: u32,
        extent: impl Fn(&Plan, u64, u32) -> Extent,
    ) -> Option<Part> {
        let last = u64::from(steps.checked_sub(1)?);
        while self.pass < plan.passes() {
            let max_pieces = plan.max_pieces(self.pass);
            let depth = plan.depth().min(max_pieces);
            if u64::from(self.step) > last.min(self.wave / depth) {
                self.wave += 1;
                // The first step that has a piece for this wave.
                self.step = (self.wave + 1).saturating_sub(max_pieces).div_ceil(depth) as u32;
                if u64::from(self.step) > last {
                    *self = Self { index: self.index, pass: self.pass + 1, ..Self::default() };
                }
                continue;
            }
            let (step, piece) = (self.step, self.wave - depth * u64::from(self.step));
            self.step += 1;
            let whole = extent(plan, self.pass, step);
            if piece >= plan.pieces(whole.count) {
                continue;
            }
            let done = piece * plan.max_piece();
            let part = Part {
                index: self.index,
                pass: self.pass,
                step,
                piece,
                lane: (self.index % u64::from(plan.geometry.lanes())) as u32,
                extent: Extent {
                    first: whole.first + done,
                    count: (whole.count - done).min(plan.max_piece()),
                },
            };
            self.index += 1;
            return Some(part);
        }
        None
    }
}
