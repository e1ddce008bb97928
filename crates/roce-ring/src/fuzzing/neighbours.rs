//! The two neighbours of a rank: the messages that honest neighbours would send.

use std::collections::VecDeque;

use crate::{Geometry, Immediate, OpTag, Operation, Plan, Receives, Side, Target, WindowRecord};

/// A message to the rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) side: Side,
    pub(super) lane: u32,
    pub(super) immediate: u32,
    pub(super) len: u32,
}

/// The messages so far on each lane, and the next correct ones.
pub(super) struct Neighbours {
    pub(super) lanes: Vec<LaneState>,
    slots: u64,
    tag: OpTag,
    receives: Option<Receives>,
    next: Option<Message>,
    output_bytes: u64,
    is_synchronizing: bool,
}

/// One lane from the perspective of the neighbours.
#[derive(Debug, Default)]
pub(super) struct LaneState {
    /// The flows, by neighbour.
    pub(super) flows: [Flow; 2],
    /// True if the next rank will announce a window for the active operation.
    pub(super) wants_window: bool,
    /// The window announced last, until it is used; the active operation keeps the first one that
    /// it used.
    pub(super) announced: Option<WindowRecord>,
    pub(super) window: Option<WindowRecord>,
}

/// The messages between the rank and one neighbour on a lane.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Data delivered to the rank, and how much of it the neighbour knows to be consumed.
    pub(super) arrived: u64,
    pub(super) credited: u64,
    /// Data sent by the rank, and how much of it the rank knows to be consumed.
    pub(super) sent: u64,
    pub(super) reported: u64,
    /// The count of the last credit delivered.
    pub(super) said: u64,
    /// Messages delivered and sent before the active operation.
    before: (u64, u64),
    /// The ids of outstanding sends.
    pub(super) posted: VecDeque<u64>,
}

/// Sends that are searched for lanes that need a window: all lanes come early.
const LOOK_AHEAD: usize = 4096;

impl Neighbours {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Self {
            lanes: (0..geometry.lanes()).map(|_| LaneState::default()).collect(),
            slots: geometry.slots().into(),
            tag: OpTag { number: 0, signature: 0 },
            receives: None,
            next: None,
            output_bytes: 0,
            is_synchronizing: false,
        }
    }

    /// Starts operation `number` at the rank and its neighbours.
    pub(super) fn start(&mut self, geometry: &Geometry, operation: &Operation, number: u64) {
        let plan = Plan::new(operation, geometry).expect("it was started");
        self.tag = OpTag { number: (number & 0x3fff) as u16, signature: operation.signature() };
        self.receives = Some(plan.receives());
        self.output_bytes = operation.buffer_bytes(geometry).expect("it was started").1;
        for lane in &mut self.lanes {
            (lane.wants_window, lane.window) = (false, None);
            for flow in &mut lane.flows {
                if self.is_synchronizing {
                    // The operation has ended: all ranks know that earlier messages are consumed.
                    flow.credited = flow.credited.max(flow.before.0);
                    flow.reported = flow.reported.max(flow.before.1);
                }
                flow.before = (flow.arrived, flow.sent);
            }
        }
        self.is_synchronizing = plan.is_synchronizing();
        for send in plan.sends().take(LOOK_AHEAD) {
            if matches!(send.to, Target::Window { .. }) {
                self.lanes[send.lane as usize].wants_window = true;
            }
        }
        self.advance();
    }

    /// Returns the next message of an honest neighbour that has credit.
    pub(super) fn data(&self) -> Option<Message> {
        self.next.filter(|it| {
            let flow = &self.lanes[it.lane as usize].flows[it.side as usize];
            flow.arrived < flow.credited + self.slots
        })
    }

    /// Notes that the message of [`data`](Self::data) was delivered.
    pub(super) fn advance(&mut self) {
        let next = self.receives.as_mut().and_then(Iterator::next);
        self.next = next.map(|receive| Message {
            side: receive.side,
            lane: receive.lane,
            immediate: match receive.to {
                Target::Slot => Immediate::Slot(self.tag),
                Target::Window { .. } => Immediate::Window(self.tag),
            }
            .to_bits(),
            len: receive.len.try_into().expect("no longer than a slot"),
        });
    }

    /// Returns a true credit, for one message or for all.
    pub(super) fn credit(&mut self, side: Side, lane: u32, for_all: bool) -> Option<Message> {
        let flow = &mut self.lanes[lane as usize].flows[side as usize];
        if flow.said == flow.sent {
            return None;
        }
        flow.said = if for_all { flow.sent } else { flow.said + 1 };
        flow.reported = flow.reported.max(flow.said);
        let consumed = (flow.said & u64::from(Immediate::CREDIT_MASK)) as u32;
        Some(Message { side, lane, immediate: Immediate::Credit { consumed }.to_bits(), len: 0 })
    }

    /// Returns the window of the active operation, if it was not announced on this lane.
    pub(super) fn window(&mut self, lane: u32) -> Option<(Message, WindowRecord)> {
        let state = &mut self.lanes[lane as usize];
        if !core::mem::take(&mut state.wants_window) {
            return None;
        }
        let record = WindowRecord { addr: 0x1000, len: self.output_bytes, rkey: 7 };
        let immediate = Immediate::Announce(self.tag).to_bits();
        let (side, len) = (Side::Next, WindowRecord::LEN as u32);
        Some((Message { side, lane, immediate, len }, record))
    }
}
