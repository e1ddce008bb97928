//! The lanes that need a window.

use super::{Plan, Receives, Target};

/// Iterator over the lanes whose messages go to the output.
#[derive(Clone, Debug)]
pub struct WindowLanes {
    receives: Receives,
    /// Lanes not returned yet, one bit each.
    left: u64,
}

impl WindowLanes {
    pub(super) fn new(plan: &Plan) -> Self {
        let all = u64::MAX >> (64 - plan.geometry.lanes());
        Self { receives: plan.receives(), left: if plan.has_windows() { all } else { 0 } }
    }
}

impl Iterator for WindowLanes {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        while self.left != 0 {
            let Some(receive) = self.receives.next() else {
                self.left = 0;
                break;
            };
            if receive.to != Target::Slot && self.left >> receive.lane & 1 == 1 {
                self.left ^= 1 << receive.lane;
                return Some(receive.lane);
            }
        }
        None
    }
}
