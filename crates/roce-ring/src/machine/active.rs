//! The active operation.

use std::collections::VecDeque;

use super::id;
use super::lane::Lane;
use crate::plan::{Receives, Sends, WindowLanes};
use crate::{
    Action, Compute, Geometry, Immediate, MemoryKind, MemorySpan, OnReceive, OpTag, Plan, Receive,
    Remote, Send, Side, Target, ViolationKind, Work,
};

/// The progress of one operation.
#[derive(Clone, Debug)]
pub(super) struct ActiveOperation {
    plan: Plan,
    tag: OpTag,
    output_bytes: u64,
    sends: Sends,
    send: Option<Send>,
    receives: Receives,
    receive: Option<Receive>,
    received: u64,
    /// The lanes to announce this rank's window on.
    windows: WindowLanes,
    /// The next lane to announce it on.
    announce: Option<u32>,
    /// The remaining local copy from input to output.
    copy: Option<(MemorySpan, MemorySpan)>,
    in_place: bool,
}

/// A violation with its neighbour and lane.
pub(super) type LaneViolation = (Side, u32, ViolationKind);

impl ActiveOperation {
    pub(super) fn new(plan: Plan, tag: OpTag, in_place: bool) -> Self {
        let (mut sends, mut receives) = (plan.sends(), plan.receives());
        let mut windows = plan.window_lanes();
        let copy = match plan.local_copy() {
            Some(Work::Copy { from, into }) if !in_place => Some((from, into)),
            _ => None,
        };
        Self {
            tag,
            output_bytes: plan.output_bytes(),
            send: sends.next(),
            sends,
            receive: receives.next(),
            receives,
            received: 0,
            announce: windows.next(),
            windows,
            copy,
            in_place,
            plan,
        }
    }

    /// Returns a copy of this operation with another number.
    pub(super) fn restart(&self, number: u16) -> Self {
        let tag = OpTag { number, ..self.tag };
        Self { tag, ..self.clone() }
    }

    /// Returns the next action. Actions that unblock a neighbour come before long computations.
    pub(super) fn poll(
        &mut self,
        geometry: &Geometry,
        lanes: &mut [Lane],
        reply_first: Side,
        queued: &mut VecDeque<Action>,
    ) -> Result<Option<Action>, LaneViolation> {
        if let Some(announce) = self.poll_announce(lanes) {
            return Ok(Some(announce));
        }
        if let Some(write) = self.poll_send(geometry, lanes, reply_first)? {
            return Ok(Some(write));
        }
        if let Some(credit) = Lane::poll_credits(lanes) {
            return Ok(Some(credit));
        }
        if let Some(action) = self.consume_next(lanes, queued)? {
            return Ok(Some(action));
        }
        Ok(self.poll_copy())
    }

    pub(super) fn is_done(&self, lanes: &[Lane]) -> bool {
        self.send.is_none()
            && self.receive.is_none()
            && self.copy.is_none()
            && lanes.iter().all(Lane::may_overwrite_all)
    }

    pub(super) const fn is_synchronizing(&self) -> bool {
        self.plan.is_synchronizing()
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }

    fn poll_announce(&mut self, lanes: &mut [Lane]) -> Option<Action> {
        let number = self.announce?;
        let flow = lanes.get_mut(number as usize)?.flow(Side::Previous);
        if !flow.may_post_control() {
            return None;
        }
        self.announce = self.windows.next();
        Some(Action::Announce {
            lane: number,
            id: id::join(Side::Previous, number, flow.post_control()),
            immediate: Immediate::Announce(self.tag).to_bits(),
            length: self.output_bytes,
        })
    }

    fn poll_send(
        &mut self,
        geometry: &Geometry,
        lanes: &mut [Lane],
        reply_first: Side,
    ) -> Result<Option<Action>, LaneViolation> {
        let Some(mut send) = self.send else { return Ok(None) };
        if send.after.is_some_and(|receive| receive >= self.received) {
            return Ok(None);
        }
        if send.index == 0
            && send.side != reply_first
            && let Some(first) = self.sends.start_with(reply_first)
        {
            send = first;
            self.send = Some(first);
        }
        let lane = &mut lanes[send.lane as usize];
        let flow = lane.flow(send.side);
        if !flow.may_send() {
            return Ok(None);
        }
        let (to, immediate) = match send.to {
            Target::Slot => {
                let index = flow.slot_sent();
                // This rank is at the opposite side of the neighbour.
                let offset = u64::from(index) * geometry.slot_pitch(send.side.opposite());
                (Remote::Slot { index, offset }, Immediate::Slot(self.tag))
            }
            Target::Window { offset } => {
                // In collectives that write to windows, all ranks have outputs of one length.
                let window = lane
                    .window(self.tag, self.output_bytes)
                    .map_err(|kind| (Side::Next, send.lane, kind))?;
                let Some(window) = window else { return Ok(None) };
                // The window holds the whole result and does not wrap around.
                let address = window.addr + offset;
                (Remote::Window { address, key: window.rkey, offset }, Immediate::Window(self.tag))
            }
        };
        let id = id::join(send.side, send.lane, lane.flow(send.side).post_data());
        self.send = self.sends.next();
        Ok(Some(Action::Write {
            side: send.side,
            lane: send.lane,
            id,
            step: send.step,
            piece: send.piece,
            from: send.from,
            to,
            immediate: immediate.to_bits(),
        }))
    }

    /// Consumes the next message, if it has arrived, and returns the first action for it.
    fn consume_next(
        &mut self,
        lanes: &mut [Lane],
        queued: &mut VecDeque<Action>,
    ) -> Result<Option<Action>, LaneViolation> {
        let Some(receive) = self.receive else { return Ok(None) };
        let (side, number) = (receive.side, receive.lane);
        let oldest_arrival = lanes[number as usize].flow(side).oldest_arrival();
        let Some((immediate, len)) = oldest_arrival else { return Ok(None) };
        if let Some(kind) = self.check(&receive, immediate, len) {
            return Err((side, number, kind));
        }
        if let Some((side, send)) = receive.after_sent
            && self.overwrites(&receive)
        {
            let all = lanes.len() as u64;
            if !lanes[(send % all) as usize].flow(side).has_sent(send / all) {
                return Ok(None);
            }
        }
        let index = lanes[number as usize].flow(side).consume();
        let slot = MemorySpan::new(MemoryKind::Slot { side, lane: number, index }, 0, len);
        let work = match receive.then {
            OnReceive::Nothing => None,
            OnReceive::Copy { into } => Some(Work::Copy { from: slot, into }),
            OnReceive::Reduce { own, own_is_left, into, divide_by } => {
                let (left, right) = if own_is_left { (own, slot) } else { (slot, own) };
                Some(Work::Reduce { left, right, into, divide_by })
            }
        };
        let (step, piece) = (receive.step, receive.piece);
        self.received += 1;
        self.receive = self.receives.next();
        let received = Action::Received { side, lane: number, step, piece, bytes: len };
        let Some(work) = work else { return Ok(Some(received)) };
        queued.push_back(received);
        Ok(Some(self.compute(step, piece, work)))
    }

    /// Returns true if the message overwrites bytes that an earlier send may still read.
    fn overwrites(&self, receive: &Receive) -> bool {
        let (OnReceive::Copy { into } | OnReceive::Reduce { into, .. }) = receive.then else {
            return false;
        };
        // Output and input overlap in place only.
        into.memory == MemoryKind::Scratch || self.in_place
    }

    fn check(&self, receive: &Receive, immediate: Immediate, len: u64) -> Option<ViolationKind> {
        let (kind_fits, tag) = match (immediate, receive.to) {
            (Immediate::Slot(tag), to) => (to == Target::Slot, tag),
            (Immediate::Window(tag), to) => (to != Target::Slot, tag),
            (found, _) => return Some(ViolationKind::WrongKind { found }),
        };
        if let Some(kind) = ViolationKind::of_tag(self.tag, tag) {
            Some(kind)
        } else if !kind_fits {
            Some(ViolationKind::WrongKind { found: immediate })
        } else if len != receive.len {
            Some(ViolationKind::WrongLength { expected: receive.len, found: len })
        } else {
            None
        }
    }

    /// Returns the next part of the local copy, no longer than a slot: messages do not wait for it.
    fn poll_copy(&mut self) -> Option<Action> {
        let (from, into) = self.copy?;
        let slot = u64::from(self.plan.geometry().config().slot_bytes);
        let len = from.len.min(slot & !7); // whole elements of any type
        let rest = |span: MemorySpan| MemorySpan {
            offset: span.offset + len,
            len: span.len - len,
            ..span
        };
        self.copy = (from.len > len).then(|| (rest(from), rest(into)));
        let work =
            Work::Copy { from: MemorySpan { len, ..from }, into: MemorySpan { len, ..into } };
        Some(self.compute(0, 0, work))
    }

    fn compute(&self, step: u32, piece: u64, work: Work) -> Action {
        let operation = self.plan.operation();
        let (data_type, op) = (operation.data_type, operation.op);
        Action::Compute(Compute { step, piece, data_type, op, work })
    }
}
