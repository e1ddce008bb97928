//! A rank's part in the ring, without any I/O.

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

/// A rank of a ring: it is told what arrived, and tells what to do.
///
/// After everything that is handed in, do what [`poll_action`](Self::poll_action) asks until it
/// gives `None`; then, when [`is_done`](Self::is_done), the operation is over. Nothing is
/// allocated while operations run. Whatever a neighbour sends, the worst is a [`Violation`].
///
/// ```
/// use roce_ring::{Action, DataType, Geometry, Machine, Operation, ReduceOp, RingConfig, Side};
///
/// let mut rank = Machine::new(Geometry::new(0, 3, RingConfig::default()).unwrap());
/// let sum = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 1);
/// rank.start(&sum, true).unwrap();
///
/// // It sends its own contribution at once …
/// let Some(Action::Write { step: 0, immediate: 0x31f4, id, .. }) = rank.poll_action().unwrap()
/// else { panic!() };
/// assert_eq!(rank.poll_action().unwrap(), None);
/// rank.handle_sent(id).unwrap();
///
/// // … and a message of something else is found out.
/// rank.handle_message(Side::Next, 0, 0x31f5, 4, || unreachable!()).unwrap();
/// let violation = rank.poll_action().unwrap_err();
/// assert!(violation.to_string().contains("signature 0x31f5 there and 0x31f4 here"));
/// ```
#[derive(Debug)]
pub struct Machine {
    geometry: Geometry,
    lanes: Vec<Lane>,
    /// The next operation's number.
    number: u64,
    active: Option<ActiveOperation>,
    /// The operation started last, as it was when it began: programs call the same one over and
    /// over, and planning a short sum takes as long as taking in its message.
    last: Option<Start>,
    /// What was decided and not yet asked for: at most one for the message taken in last, and
    /// one for each credit or window that came since, of which there are no more than receives.
    queued: VecDeque<Action>,
    /// Whose message came last. Where two wait for the same result the other one gets it first: who
    /// has sent something gives its core away, most likely to the one that waits for longer.
    last_sender: Side,
    violation: Option<Violation>,
}

/// An operation that has just begun.
#[derive(Debug)]
struct Start {
    operation: Operation,
    in_place: bool,
    active: ActiveOperation,
}

impl Machine {
    /// A rank that has sent and received nothing yet.
    ///
    /// Before it starts, arm [`receives`](Geometry::receives) receives on each queue pair.
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

    /// Where the rank is.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Starts the next operation; returns its number, counted from 0.
    ///
    /// In place means that input and output overlap: for AllGather, the input is the rank's
    /// block of the output; for ReduceScatter, the output is the rank's chunk of the input; for
    /// the others they are the same.
    ///
    /// # Errors
    /// [`UsageError`] when one is under way, or there can be no such operation. It does not count
    /// then.
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

    /// A receive on the queue pair to a neighbour has completed, with this immediate and this many
    /// bytes. `record` reads the lane's window record; it is called when the immediate says that
    /// it was written.
    ///
    /// # Errors
    /// [`Violation`] when the message had no credit, is not true, or is of a wrong kind.
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

    /// What was posted under `id`, and everything before it on the same queue pair, has
    /// completed with success. (When it has not, the neighbour is gone: give the group up.)
    ///
    /// # Errors
    /// [`UsageError::UnknownId`].
    pub fn handle_sent(&mut self, id: u64) -> Result<(), UsageError> {
        let (side, lane, number) = id::split(id);
        let unknown = UsageError::UnknownId(id);
        let Some(lane) = self.lanes.get_mut(lane as usize) else { return Err(unknown) };
        if lane.flow(side).complete(number) { Ok(()) } else { Err(unknown) }
    }

    /// The bytes of the write just asked for, `id`, were copied when it was posted: nothing
    /// waits for its completion any more, but for a place in the send queue.
    ///
    /// For short messages: an operation is then over without an acknowledgement for each.
    ///
    /// # Errors
    /// [`UsageError::UnknownId`] when it is not what was asked for last on its queue pair.
    pub fn handle_copied(&mut self, id: u64) -> Result<(), UsageError> {
        let (side, lane, number) = id::split(id);
        let lane = self.lanes.get_mut(lane as usize);
        if lane.is_some_and(|lane| lane.flow(side).copied(number)) {
            Ok(())
        } else {
            Err(UsageError::UnknownId(id))
        }
    }

    /// What to do next; `None` when there is nothing to do until something is handed in.
    ///
    /// # Errors
    /// [`Violation`] when a neighbour broke the protocol: the group is over then, and every
    /// later call says so again.
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

    /// Whether no operation is under way. One is over only after `poll_action` gave `None`.
    pub fn is_done(&self) -> bool {
        self.active.is_none()
    }

    /// How many messages of the operation under way were taken in; 0 when none is.
    pub fn received(&self) -> u64 {
        self.active.as_ref().map_or(0, ActiveOperation::received)
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
