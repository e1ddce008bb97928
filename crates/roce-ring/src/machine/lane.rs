//! The state of one lane.

use super::flow::QpFlow;
use super::id;
use crate::{Action, Geometry, Immediate, OpTag, Side, ViolationKind, WindowRecord};

/// One lane: a queue pair to the next rank and one to the previous rank.
#[derive(Debug)]
pub(super) struct Lane {
    next: QpFlow,
    previous: QpFlow,
    /// The window announced last, until its operation uses it.
    announced: Option<(OpTag, WindowRecord)>,
    /// The window of the active operation.
    window: Option<WindowRecord>,
}

impl Lane {
    pub(super) fn new(geometry: &Geometry) -> Self {
        let flow = || QpFlow::new(geometry);
        Self { next: flow(), previous: flow(), announced: None, window: None }
    }

    pub(super) fn flow(&mut self, side: Side) -> &mut QpFlow {
        match side {
            Side::Next => &mut self.next,
            Side::Previous => &mut self.previous,
        }
    }

    /// Begins an operation.
    pub(super) fn begin(&mut self) {
        self.flows().for_each(QpFlow::begin);
        self.window = None;
    }

    /// Ends an operation that all ranks have started.
    pub(super) fn synchronize(&mut self) {
        self.flows().for_each(QpFlow::synchronize);
    }

    fn flows(&mut self) -> impl Iterator<Item = &mut QpFlow> {
        [&mut self.next, &mut self.previous].into_iter()
    }

    /// Handles a message. Returns true if its receive can be posted again: data keeps it until it
    /// is consumed.
    pub(super) fn take(
        &mut self,
        side: Side,
        immediate: Immediate,
        len: u32,
        record: impl FnOnce() -> WindowRecord,
    ) -> Result<bool, ViolationKind> {
        let expected = match immediate {
            Immediate::Slot(_) => return self.flow(side).on_data(immediate, len).map(|()| false),
            Immediate::Window(_) if side == Side::Previous => {
                return self.previous.on_data(immediate, len).map(|()| false);
            }
            Immediate::Credit { .. } => 0,
            Immediate::Announce(_) if side == Side::Next => WindowRecord::LEN as u64,
            found => return Err(ViolationKind::WrongKind { found }),
        };
        if u64::from(len) != expected {
            return Err(ViolationKind::WrongLength { expected, found: u64::from(len) });
        }
        match immediate {
            Immediate::Credit { consumed } => self.flow(side).on_credit(consumed)?,
            Immediate::Announce(_) if self.announced.is_some() => {
                return Err(ViolationKind::WindowTwice);
            }
            Immediate::Announce(tag) => self.announced = Some((tag, record())),
            found => return Err(ViolationKind::WrongKind { found }),
        }
        Ok(true)
    }

    /// Returns true if the bytes of all sends may be overwritten.
    pub(super) fn may_overwrite_all(&self) -> bool {
        self.next.may_overwrite_all() && self.previous.may_overwrite_all()
    }

    /// Returns the window of the active operation, if it was announced.
    pub(super) fn window(
        &mut self,
        tag: OpTag,
        output_bytes: u64,
    ) -> Result<Option<WindowRecord>, ViolationKind> {
        if self.window.is_none()
            && let Some((found, record)) = self.announced.take()
        {
            if let Some(kind) = ViolationKind::of_tag(tag, found) {
                return Err(kind);
            }
            let WindowRecord { addr: address, len: length, .. } = record;
            if length < output_bytes || address.checked_add(length).is_none() {
                let (expected, found) = (output_bytes, length);
                return Err(ViolationKind::WindowTooShort { address, expected, found });
            }
            self.window = Some(record);
        }
        Ok(self.window)
    }

    /// Returns a credit that is due on any lane.
    pub(super) fn poll_credits(lanes: &mut [Self]) -> Option<Action> {
        for (number, lane) in (0..).zip(lanes) {
            for side in [Side::Previous, Side::Next] {
                let flow = lane.flow(side);
                if let Some(credit) = flow.take_credit() {
                    let id = id::join(side, number, flow.post_control());
                    return Some(Action::Credit {
                        side,
                        lane: number,
                        id,
                        immediate: credit.to_bits(),
                    });
                }
            }
        }
        None
    }
}
