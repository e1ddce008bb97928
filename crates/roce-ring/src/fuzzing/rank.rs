//! One rank between two neighbours that follow a script.

use allocation_counter::measure;

use super::buffers::Buffers;
use super::neighbours::{Message, Neighbours};
use crate::{
    Action, Collective, DataType, Geometry, Immediate, Machine, MachineError, Operation, ReduceOp,
    Remote, RingConfig, Side, UsageError, WindowRecord, Work, Workspace,
};
use roce_fuzz_support::Script;

/// The rank, and the expected state of its connections.
pub(super) struct Rank<'a> {
    script: Script<'a>,
    geometry: Geometry,
    machine: Machine,
    neighbours: Neighbours,
    buffers: Option<Buffers>,
    workspace: Workspace,
    /// True after an input that no honest neighbour or driver would give.
    is_hostile: bool,
    is_over: bool,
    /// Bytes of heap that the machine has allocated since its creation.
    held: i64,
}

const SIZES: [u32; 8] = [2, 3, 1, 4, 5, 8, 64, 65_536];
const COLLECTIVES: [Collective; 6] = [
    Collective::AllReduce,
    Collective::ReduceScatter,
    Collective::AllGather,
    Collective::Broadcast,
    Collective::Reduce,
    Collective::Barrier,
];
const OPS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::Avg];
const TYPES: [DataType; 10] = [
    DataType::F32,
    DataType::F64,
    DataType::F16,
    DataType::Bf16,
    DataType::I8,
    DataType::U8,
    DataType::I32,
    DataType::U32,
    DataType::I64,
    DataType::U64,
];

const MAX_STEPS: usize = 400;
/// The most actions per poll: a copy of 2^60 bytes has more.
const MAX_ACTIONS: usize = 512;
/// The most rounds in which honest neighbours finish a small operation.
const MAX_ROUNDS: usize = 20_000;
impl<'a> Rank<'a> {
    /// Returns `None` if the ring is impossible.
    pub(super) fn new(mut script: Script<'a>) -> Option<Self> {
        let size = script.pick(&SIZES);
        let flags = script.byte();
        let config = RingConfig {
            lanes: script.pick(&[1, 2, 3, 64, 0]),
            slots: script.pick(&[1, 2, 4, 8, 1024, 0]),
            slot_bytes: script.pick(&[8, 16, 64, 20, 4096, 16 << 20, 7]),
            small_message_max: script.pick(&[0, 16, 4096, u32::MAX]),
            split: flags & 1 != 0,
        };
        let geometry = Geometry::new(u32::from(flags >> 1) % size, size, config).ok()?;
        Some(Self {
            script,
            geometry,
            machine: Machine::new(geometry),
            neighbours: Neighbours::new(&geometry),
            buffers: None,
            workspace: Workspace::new(),
            is_hostile: false,
            is_over: false,
            held: 0,
        })
    }

    pub(super) fn run(mut self) {
        for _ in 0..MAX_STEPS {
            if self.script.is_over() {
                break;
            }
            let code = self.script.byte();
            self.step(code);
            if code & 0x80 == 0 {
                self.poll();
            }
        }
        self.finish();
    }

    fn step(&mut self, code: u8) {
        match code & 0xf {
            0..=3 => self.hand_in_data(),
            4 | 5 => self.hand_in_credit(code & 0x40 != 0),
            6 => self.hand_in_window(),
            7 | 8 => self.complete(code & 0x40 != 0),
            9 | 10 => self.start(),
            11 => {
                // The right message with one error.
                let Some(mut message) = self.neighbours.data() else { return };
                match self.script.byte() % 4 {
                    0 => message.lane = message.lane.wrapping_add(1),
                    1 => message.len = message.len.wrapping_add(1),
                    2 => message.immediate ^= 1 << (self.script.byte() % 32),
                    _ => message.len = self.script.number(),
                }
                self.is_hostile = true;
                self.hand_in(message, NO_RECORD);
            }
            12 | 13 => {
                let message = self.any_message();
                self.is_hostile = true;
                let record = WindowRecord {
                    addr: self.script.number(),
                    len: self.script.number(),
                    rkey: self.script.number(),
                };
                self.hand_in(message, record);
            }
            14 => {
                let id = self.script.number();
                let is_ours = self
                    .neighbours
                    .lanes
                    .iter()
                    .flat_map(|lane| &lane.flows)
                    .any(|flow| flow.posted.contains(&id));
                if !is_ours {
                    let done = self.call(|machine| machine.handle_sent(id));
                    assert_eq!(done, Err(UsageError::UnknownId(id)));
                }
            }
            _ => {}
        }
    }

    fn any_message(&mut self) -> Message {
        let lane = u32::from(self.script.byte()) % (self.geometry.lanes() + 1);
        let len = match self.script.byte() % 4 {
            0 => 0,
            1 => WindowRecord::LEN as u32,
            2 => self.script.byte().into(),
            _ => self.script.number(),
        };
        let side = self.script.pick(&SIDES);
        Message { side, lane, immediate: self.script.number(), len }
    }

    /// Calls the machine and checks that its memory stays bounded.
    fn call<T>(&mut self, call: impl FnOnce(&mut Machine) -> T) -> T {
        let mut result = None;
        let used = measure(|| result = Some(call(&mut self.machine)));
        self.held += used.bytes_current;
        assert!(self.held <= self.max_held(), "{} bytes more than at first", self.held);
        result.expect("it was called")
    }

    /// Returns the most bytes that a machine may allocate: a queue entry for each credit or window
    /// that it receives between two polls, of which there are as many as receives.
    fn max_held(&self) -> i64 {
        let answers = 2 * self.geometry.lanes() * self.geometry.receives();
        let places = (answers as usize + 16).next_power_of_two();
        (places * size_of::<Action>()) as i64
    }

    fn start(&mut self) {
        let collective = self.script.pick(&COLLECTIVES);
        let data_type = self.script.pick(&TYPES);
        let op = self.script.pick(&OPS);
        let code = self.script.byte();
        let count = match code >> 5 {
            0..5 => u64::from(code & 0x1f),
            5 => self.script.number::<u16>().into(),
            6 => u64::from(code & 0x1f) * 64,
            _ => self.script.number(),
        };
        let root = match code & 0x1f {
            0x1f => self.script.number(),
            root => u32::from(root) % self.geometry.size(),
        };
        let operation = Operation { collective, data_type, op, root, count };
        let in_place = self.script.byte() & 1 != 0;
        let was_busy = !self.machine.is_done();
        match self.call(|machine| machine.start(&operation, in_place)) {
            Ok(number) => {
                assert!(!was_busy && !self.is_over);
                self.buffers = Some(Buffers::new(&self.geometry, &operation, in_place));
                self.neighbours.start(&self.geometry, &operation, number);
            }
            Err(UsageError::Busy) => assert!(was_busy),
            Err(UsageError::Over(_)) => assert!(self.is_over),
            Err(UsageError::Operation(_)) => assert!(!was_busy),
            Err(other) => panic!("{other}"),
        }
    }

    fn hand_in_data(&mut self) {
        // The crate's tests cover neighbours that run ahead.
        let Some(message) = self.neighbours.data().filter(|_| !self.machine.is_done()) else {
            return;
        };
        let lane = &mut self.neighbours.lanes[message.lane as usize];
        lane.flows[message.side as usize].arrived += 1;
        self.neighbours.advance();
        self.hand_in(message, NO_RECORD);
    }

    fn hand_in_credit(&mut self, for_all: bool) {
        let code = self.script.byte();
        let (side, lane) = (SIDES[usize::from(code >> 7)], u32::from(code) % self.geometry.lanes());
        if let Some(message) = self.neighbours.credit(side, lane, for_all) {
            self.hand_in(message, NO_RECORD);
        }
    }

    fn hand_in_window(&mut self) {
        let lane = u32::from(self.script.byte()) % self.geometry.lanes();
        if let Some((message, record)) = self.neighbours.window(lane) {
            self.hand_in(message, record);
        }
    }

    fn hand_in(&mut self, message: Message, record: WindowRecord) {
        let Message { side, lane, immediate, len } = message;
        let done =
            self.call(|machine| machine.handle_message(side, lane, immediate, len, || record));
        let is_window = matches!(Immediate::from_bits(immediate), Immediate::Announce(_));
        if is_window && done.is_ok() {
            self.neighbours.lanes[lane as usize].announced = Some(record);
        }
        self.check_result(done);
    }

    fn check_result(&mut self, done: Result<(), MachineError>) {
        match done {
            Ok(()) => assert!(!self.is_over),
            Err(MachineError::Peer(violation)) => {
                assert!(self.is_hostile, "an honest neighbour is blamed: {violation}");
                assert!(!violation.to_string().is_empty());
                self.is_over = true;
            }
            Err(MachineError::Caller(error)) => {
                assert!(matches!(error, UsageError::UnknownLane(_)) && self.is_hostile, "{error}");
            }
        }
    }

    /// Completes the first send, or all sends, of some queue pair.
    fn complete(&mut self, all: bool) {
        let code = self.script.byte();
        let lanes = self.neighbours.lanes.len();
        let lane = &mut self.neighbours.lanes[usize::from(code >> 1) % lanes];
        let queue = &mut lane.flows[usize::from(code & 1)].posted;
        let id = if all { queue.drain(..).next_back() } else { queue.pop_front() };
        if let Some(id) = id {
            assert_eq!(self.call(|machine| machine.handle_sent(id)), Ok(()));
        }
    }

    fn poll(&mut self) {
        for _ in 0..MAX_ACTIONS {
            match self.call(Machine::poll_action) {
                Ok(Some(action)) => self.perform(&action),
                Ok(None) => return,
                Err(violation) => {
                    assert!(self.is_hostile, "an honest neighbour is blamed: {violation}");
                    self.is_over = true;
                    return;
                }
            }
        }
    }

    fn perform(&mut self, action: &Action) {
        let geometry = self.geometry;
        let config = geometry.config();
        match *action {
            Action::Write { side, lane, id, from, to, .. } => {
                self.buffers.as_ref().expect("an operation").assert_inside(from);
                assert!(from.len <= config.slot_bytes.into());
                let state = &mut self.neighbours.lanes[lane as usize];
                let flow = &mut state.flows[side as usize];
                match to {
                    Remote::Slot { index, offset } => {
                        assert_eq!(u64::from(index), flow.sent % u64::from(config.slots));
                        let pitch = geometry.slot_pitch(side.opposite());
                        assert_eq!(offset, u64::from(index) * pitch);
                        assert!(from.len <= pitch);
                    }
                    Remote::Window { address, key, offset } => {
                        let announced = || state.announced.take().expect("one was announced");
                        let record = *state.window.get_or_insert_with(announced);
                        assert_eq!((address, key), (record.addr + offset, record.rkey));
                        assert!(offset + from.len <= record.len, "{from:?} leaves {record:?}");
                    }
                }
                flow.sent += 1;
                let beyond = flow.sent - flow.reported;
                assert!(self.is_hostile || beyond <= config.slots.into(), "beyond its credit");
                flow.posted.push_back(id);
                assert!(flow.posted.len() <= geometry.sends() as usize);
            }
            Action::Credit { side, lane, id, immediate } => {
                let state = &mut self.neighbours.lanes[lane as usize].flows[side as usize];
                let Immediate::Credit { consumed } = Immediate::from_bits(immediate) else {
                    panic!("{action:?}")
                };
                let before = state.credited;
                state.credited = before + u64::from(consumed).wrapping_sub(before) % (1 << 30);
                assert!(self.is_hostile || (before..=state.arrived).contains(&state.credited));
                state.posted.push_back(id);
                assert!(state.posted.len() <= geometry.sends() as usize);
            }
            Action::Announce { lane, id, .. } => {
                let lane = &mut self.neighbours.lanes[lane as usize];
                let state = &mut lane.flows[Side::Previous as usize];
                state.posted.push_back(id);
                assert!(state.posted.len() <= geometry.sends() as usize);
            }
            Action::Rearm { lane, .. } | Action::Received { lane, .. } => {
                assert!(lane < config.lanes)
            }
            Action::Compute(compute) => {
                let buffers = self.buffers.as_mut().expect("an operation");
                let spans = match compute.work {
                    Work::Copy { from, into } => [from, into, into],
                    Work::Reduce { left, right, into, .. } => [left, right, into],
                };
                spans.into_iter().for_each(|span| buffers.assert_inside(span));
                if let Some(kept) = &mut buffers.kept {
                    self.workspace.execute(&compute, kept);
                }
            }
        }
    }

    /// Checks that with honest neighbours each operation ends.
    fn finish(mut self) {
        let is_small = self.buffers.as_ref().is_some_and(|it| it.kept.is_some());
        if self.is_hostile || !is_small || self.geometry.size() > 8 {
            return;
        }
        for _ in 0..MAX_ROUNDS {
            self.poll();
            if self.machine.is_done() {
                return;
            }
            self.hand_in_data();
            for lane in 0..self.geometry.lanes() {
                for side in SIDES {
                    if let Some(message) = self.neighbours.credit(side, lane, true) {
                        self.hand_in(message, NO_RECORD);
                    }
                }
                if let Some((message, record)) = self.neighbours.window(lane) {
                    self.hand_in(message, record);
                }
                let flows = &mut self.neighbours.lanes[lane as usize].flows;
                let last = flows.each_mut().map(|flow| flow.posted.drain(..).next_back());
                for id in last.into_iter().flatten() {
                    assert_eq!(self.call(|machine| machine.handle_sent(id)), Ok(()));
                }
            }
        }
        panic!("it never ends: {:?}", self.machine);
    }
}

/// In the order of their numbers.
const SIDES: [Side; 2] = [Side::Previous, Side::Next];
const NO_RECORD: WindowRecord = WindowRecord { addr: 0, len: 0, rkey: 0 };
