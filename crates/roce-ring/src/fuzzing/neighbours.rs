//! The two neighbours of a rank: what they would send if they were honest, and what they were
//! told.

use std::collections::VecDeque;

use crate::{Geometry, Immediate, OpTag, Operation, Plan, Receives, Side, Target, WindowRecord};

/// A message that arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) side: Side,
    pub(super) lane: u32,
    pub(super) immediate: u32,
    pub(super) len: u32,
}

/// What passed on each lane, and what would be right to come next.
pub(super) struct Neighbours {
    pub(super) lanes: Vec<LaneState>,
    slots: u64,
    tag: OpTag,
    receives: Option<Receives>,
    next: Option<Message>,
    output_bytes: u64,
    is_synchronizing: bool,
}

/// One lane, as its neighbours see it.
#[derive(Debug, Default)]
pub(super) struct LaneState {
    /// By the neighbour: see [`Flow`].
    pub(super) flows: [Flow; 2],
    /// Whether the next rank will announce a window for the operation under way.
    pub(super) wants_window: bool,
    /// The window announced last, until it is used; the first that was used for the operation
    /// under way goes on being used.
    pub(super) announced: Option<WindowRecord>,
    pub(super) window: Option<WindowRecord>,
}

/// What passes between the rank and one neighbour on a lane.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Data that was handed in, and how much of it is consumed as the neighbour knows.
    pub(super) arrived: u64,
    pub(super) credited: u64,
    /// Data that the rank has sent, and how much of it is consumed as the rank knows.
    pub(super) sent: u64,
    pub(super) reported: u64,
    /// What the last credit that was handed in said.
    pub(super) said: u64,
    /// What had arrived and was sent before the operation under way.
    before: (u64, u64),
    /// What is under way, by the names that it was posted under.
    pub(super) posted: VecDeque<u64>,
}

/// Sends that are looked at for the lanes that need a window: all lanes come early.
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

    /// The rank and its neighbours start operation `number`.
    pub(super) fn start(&mut self, geometry: &Geometry, operation: &Operation, number: u64) {
        let plan = Plan::new(operation, geometry).expect("it was started");
        self.tag = OpTag { number: (number & 0x3fff) as u16, signature: operation.signature() };
        self.receives = Some(plan.receives());
        self.output_bytes = operation.buffer_bytes(geometry).expect("it was started").1;
        for lane in &mut self.lanes {
            (lane.wants_window, lane.window) = (false, None);
            for flow in &mut lane.flows {
                if self.is_synchronizing {
                    // It is over: everybody knows that what was before it is consumed.
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

    /// The message that an honest neighbour sends next, if it may.
    pub(super) fn data(&self) -> Option<Message> {
        self.next.filter(|it| {
            let flow = &self.lanes[it.lane as usize].flows[it.side as usize];
            flow.arrived < flow.credited + self.slots
        })
    }

    /// What [`data`](Self::data) gave was handed in.
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

    /// A credit that is true, for one message or for all.
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

    /// The window of the operation under way, if it was not announced on this lane.
    pub(super) fn window(&mut self, lane: u32) -> Option<(Message, WindowRecord)> {
        let state = &mut self.lanes[lane as usize];
        if !core::mem::take(&mut state.wants_window) {
            return None;
        }
        let record = WindowRecord { address: 0x1000, length: self.output_bytes, key: 7 };
        let immediate = Immediate::Announce(self.tag).to_bits();
        let (side, len) = (Side::Next, WindowRecord::LEN as u32);
        Some((Message { side, lane, immediate, len }, record))
    }
}
