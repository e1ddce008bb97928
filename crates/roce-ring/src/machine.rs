//! The state machine of a rank, without I/O.

mod active;
mod flow;
mod id;
mod lane;

use std::collections::VecDeque;

use crate::{
    Action, Geometry, Immediate, MachineError, OpTag, Operation, Plan, Side, UsageError, Violation,
    ViolationKind, WindowRecord,
};
use active::ActiveOperation;
use lane::Lane;

/// The state machine of one rank of a ring.
///
/// After each input, perform the actions of [`poll_action`](Self::poll_action) until it returns
/// `None`; the operation is over once [`is_done`](Self::is_done) returns true. Running operations
/// allocates nothing. Whatever a neighbour sends, the worst result is a [`Violation`].
///
/// ```
/// use roce_ring::{Action, DataType, Geometry, Machine, Operation, ReduceOp, RingConfig, Side};
///
/// let mut rank = Machine::new(Geometry::new(0, 3, RingConfig::default()).unwrap());
/// let sum = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 1);
/// rank.start(&sum, true).unwrap();
///
/// // The rank sends its own contribution at once …
/// let Some(Action::Write { step: 0, immediate: 0x31f4, id, .. }) = rank.poll_action().unwrap()
/// else { panic!() };
/// assert_eq!(rank.poll_action().unwrap(), None);
/// rank.handle_sent(id).unwrap();
///
/// // … and detects a message of another operation.
/// rank.handle_message(Side::Next, 0, 0x31f5, 4, || unreachable!()).unwrap();
/// let violation = rank.poll_action().unwrap_err();
/// assert!(violation.to_string().contains("signature 0x31f5 there and 0x31f4 here"));
/// ```
#[derive(Debug)]
pub struct Machine {
    geometry: Geometry,
    lanes: Vec<Lane>,
    /// The number of the next operation.
    number: u64,
    active: Option<ActiveOperation>,
    /// The operation started last, in its initial state: programs repeat operations, and planning a
    /// short sum costs as much as consuming its message.
    last: Option<Start>,
    /// Actions not returned yet: at most one for the message consumed last, and one for each credit
    /// or window received since, of which there are no more than receives.
    queued: VecDeque<Action>,
    /// The neighbour whose message came last. If both wait for the same result, the other one gets
    /// it first: a rank that has just sent yields its core, likely to the one that waits longer.
    last_sender: Side,
    violation: Option<Violation>,
}

/// An operation in its initial state.
#[derive(Debug)]
struct Start {
    operation: Operation,
    in_place: bool,
    active: ActiveOperation,
}

impl Machine {
    /// Creates the machine of a rank.
    ///
    /// Post [`receives`](Geometry::receives) receives on each queue pair before the first
    /// operation.
    pub fn new(geometry: Geometry) -> Self {
        let answers = 2 * (geometry.lanes() * geometry.receives()) as usize;
        Self {
            geometry,
            lanes: (0..geometry.lanes()).map(|_| Lane::new(&geometry)).collect(),
            number: 0,
            active: None,
            last: None,
            queued: VecDeque::with_capacity(1 + answers),
            last_sender: Side::Previous,
            violation: None,
        }
    }

    /// Returns the geometry of the ring.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Starts the next operation; returns its number, counted from 0.
    ///
    /// In place, input and output overlap: for AllGather the input is the rank's block of the
    /// output, for ReduceScatter the output is the rank's chunk of the input, else they are equal.
    ///
    /// # Errors
    /// [`UsageError`] if an operation is active, or this one is impossible. It gets no number then.
    pub fn start(&mut self, operation: &Operation, in_place: bool) -> Result<u64, UsageError> {
        if let Some(violation) = &self.violation {
            return Err(UsageError::Over(violation.clone()));
        }
        if self.active.is_some() {
            return Err(UsageError::Busy);
        }
        let number = self.number;
        let counted = (number & u64::from(OpTag::NUMBER_MASK)) as u16;
        let active = match &self.last {
            Some(last) if last.operation == *operation && last.in_place == in_place => {
                last.active.restart(counted)
            }
            _ => {
                let plan = Plan::new(operation, &self.geometry)?;
                let tag = OpTag { number: counted, signature: operation.signature() };
                let active = ActiveOperation::new(plan, tag, in_place);
                self.last = Some(Start { operation: *operation, in_place, active: active.clone() });
                active
            }
        };
        self.active = Some(active);
        self.lanes.iter_mut().for_each(Lane::begin);
        self.number += 1;
        Ok(number)
    }

    /// Handles the completion of a receive with this immediate and length in bytes. `record` reads
    /// the lane's window record; it is called if the immediate announces one.
    ///
    /// # Errors
    /// [`Violation`] if the message had no credit, is false, or has the wrong kind.
    pub fn handle_message(
        &mut self,
        side: Side,
        lane: u32,
        immediate: u32,
        len: u32,
        record: impl FnOnce() -> WindowRecord,
    ) -> Result<(), MachineError> {
        let immediate = Immediate::from_bits(immediate);
        if immediate.is_data() {
            self.last_sender = side;
        }
        match self.lane(lane)?.take(side, immediate, len, record) {
            Ok(is_free) => {
                if is_free {
                    self.queued.push_back(Action::Rearm { side, lane });
                }
                Ok(())
            }
            Err(kind) => Err(self.fail(side, lane, kind).into()),
        }
    }

    /// Handles the successful completion of the send with `id` and of all earlier ones on the same
    /// queue pair. (After a failed completion the neighbour is gone: end the group.)
    ///
    /// # Errors
    /// [`UsageError::UnknownId`].
    pub fn handle_sent(&mut self, id: u64) -> Result<(), UsageError> {
        let (side, lane, number) = id::split(id);
        let unknown = UsageError::UnknownId(id);
        let Some(lane) = self.lanes.get_mut(lane as usize) else { return Err(unknown) };
        if lane.flow(side).complete(number) { Ok(()) } else { Err(unknown) }
    }

    /// Notes that the bytes of the latest write, `id`, were copied when it was posted: only the
    /// send queue's capacity depends on its completion.
    ///
    /// This lets operations with short messages end before each message is acknowledged.
    ///
    /// # Errors
    /// [`UsageError::UnknownId`] if another write on the same queue pair came later.
    pub fn handle_copied(&mut self, id: u64) -> Result<(), UsageError> {
        let (side, lane, number) = id::split(id);
        let lane = self.lanes.get_mut(lane as usize);
        if lane.is_some_and(|lane| lane.flow(side).copied(number)) {
            Ok(())
        } else {
            Err(UsageError::UnknownId(id))
        }
    }

    /// Returns the next action; `None` until the next input.
    ///
    /// # Errors
    /// [`Violation`] if a neighbour violated the protocol: the group has ended then, and each later
    /// call returns it again.
    pub fn poll_action(&mut self) -> Result<Option<Action>, Violation> {
        if let Some(violation) = &self.violation {
            return Err(violation.clone());
        }
        if let Some(action) = self.queued.pop_front() {
            return Ok(Some(action));
        }
        let action = match &mut self.active {
            Some(active) => {
                let first = self.last_sender.opposite();
                active.poll(&self.geometry, &mut self.lanes, first, &mut self.queued)
            }
            None => Ok(Lane::poll_credits(&mut self.lanes)),
        };
        match action {
            Ok(None) => {
                if let Some(active) = self.active.take_if(|active| active.is_done(&self.lanes))
                    && active.is_synchronizing()
                {
                    self.lanes.iter_mut().for_each(Lane::synchronize);
                }
                Ok(None)
            }
            Ok(action) => Ok(action),
            Err((side, lane, kind)) => Err(self.fail(side, lane, kind)),
        }
    }

    /// Returns true if no operation is active. An operation ends when `poll_action` returns `None`.
    pub fn is_done(&self) -> bool {
        self.active.is_none()
    }

    /// Returns how many operations were started: the number of the next one.
    pub fn started(&self) -> u64 {
        self.number
    }

    /// Returns the operation that was started last.
    pub fn latest(&self) -> Option<&Operation> {
        self.last.as_ref().map(|start| &start.operation)
    }

    /// Returns the number of messages consumed by the active operation, 0 without one.
    pub fn received(&self) -> u64 {
        self.active.as_ref().map_or(0, ActiveOperation::received)
    }

    /// Returns side, lane and number (mod 2^48) of the send with this id.
    pub fn send_of(id: u64) -> (Side, u32, u64) {
        id::split(id)
    }

    fn lane(&mut self, lane: u32) -> Result<&mut Lane, MachineError> {
        if let Some(violation) = &self.violation {
            return Err(violation.clone().into());
        }
        self.lanes.get_mut(lane as usize).ok_or(MachineError::Caller(UsageError::UnknownLane(lane)))
    }

    fn fail(&mut self, side: Side, lane: u32, kind: ViolationKind) -> Violation {
        let violation = Violation { side, lane, kind };
        self.violation = Some(violation.clone());
        violation
    }
}
