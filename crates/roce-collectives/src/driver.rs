//! Performs the actions of a rank's machine over verbs.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use roce_ring::{
    Action, Geometry, Immediate, Machine, MachineError, MemoryKind, RankMemory, Remote, Side,
    Violation, WindowRecord, Workspace,
};
use roce_verbs::{
    Completion, CompletionChannel, CompletionOperation, CompletionStatus, RemoteAddr, YieldPolicy,
    probes,
};

use crate::bootstrap::{BootstrapClient, progress};
use crate::buffer::{Buffer, BufferSlice};
use crate::config::GroupConfig;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::lane::{Lane, Payload};
use crate::ring::Ring;
use crate::steps::{Clock, StepRecorder};
use crate::timeline::TimelineRecorder;

/// The reason why an operation cannot continue.
#[derive(Debug)]
pub(crate) enum DriverError {
    /// A neighbour violated the protocol.
    Violation(Violation),
    /// A request completed with an error.
    RequestFailed { lane: u32, side: Side, status: CompletionStatus },
    /// An interface of this rank is down.
    InterfaceDown(String),
    /// Another error.
    Other(Error),
}

impl<E: Into<Error>> From<E> for DriverError {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

impl From<Violation> for DriverError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl From<MachineError> for DriverError {
    fn from(fault: MachineError) -> Self {
        match fault {
            MachineError::Peer(violation) => Self::Violation(violation),
            MachineError::Caller(error) => Self::Other(error.into()),
        }
    }
}

/// The driver of a rank.
#[derive(Debug)]
pub(crate) struct Driver {
    /// `None` in a group of one.
    pub(crate) ring: Option<Ring>,
    pub(crate) machine: Machine,
    pub(crate) scratch: Buffer,
    pub(crate) steps: StepRecorder,
    pub(crate) clock: Clock,
    pub(crate) timeline: TimelineRecorder,
    scratch_whole: BufferSlice,
    workspace: Workspace,
    /// Holds a short message on its way to its copy.
    copy_buffer: Box<[u8]>,
    completions: Vec<Completion>,
    /// Arrival times of messages that are not consumed: see [`arrivals_index`].
    arrivals: Vec<VecDeque<u64>>,
    spin: Duration,
    yield_policy: YieldPolicy,
    /// Start of the current idle time.
    idle_since: Option<Instant>,
    /// Idle time before the latest completion.
    idle_span: Duration,
    ports_checked_at: Instant,
    interrupt: Interrupt,
    /// The timeout of an operation.
    pub(crate) timeout: Option<Duration>,
    /// The beginning of the first wait of the operation that was longer than a spin.
    slow_since: Option<Instant>,
    /// The server knows that this rank waits in this operation.
    has_reported_wait: bool,
}

/// The most completions per poll.
const MAX_BATCH: usize = 64;
/// The most bytes of a computation that may delay deferred sends.
const MAX_COMPUTE_BEFORE_POST: u64 = 4096;
/// The most bytes that are sent or computed before the next poll. What comes meanwhile waits in the device's
/// ring; a device's own thread, which would take it out, takes the processor of the rank.
const MAX_WITHOUT_POLL: u64 = 16 << 10;
/// Time between checks of the interfaces of a waiting rank, and of whether its program gives up.
const PORT_CHECK_INTERVAL: Duration = Duration::from_millis(100);

impl Driver {
    pub(crate) fn new(
        geometry: Geometry,
        ring: Option<Ring>,
        scratch: Buffer,
        steps: StepRecorder,
        clock: Clock,
        timeline: TimelineRecorder,
        config: &GroupConfig,
    ) -> Self {
        let lanes = ring.as_ref().map_or(0, |ring| ring.lanes.len());
        Self {
            ring,
            machine: Machine::new(geometry),
            scratch_whole: BufferSlice::from(&scratch),
            scratch,
            steps,
            clock,
            timeline,
            workspace: Workspace::new(),
            copy_buffer: vec![0; Lane::MAX_BOUNCE].into_boxed_slice(),
            completions: Vec::with_capacity(MAX_BATCH),
            arrivals: vec![VecDeque::new(); 2 * lanes],
            spin: config.spin,
            yield_policy: YieldPolicy::default(),
            idle_since: None,
            idle_span: Duration::ZERO,
            ports_checked_at: Instant::now(),
            interrupt: config.interrupt.clone(),
            timeout: config.operation_timeout,
            slow_since: None,
            has_reported_wait: false,
        }
    }

    /// Returns the number of the operation that was started last, counted from 0.
    pub(crate) fn number(&self) -> u64 {
        self.machine.started().saturating_sub(1)
    }

    /// Runs the operation that the machine has started.
    pub(crate) fn run(
        &mut self,
        input: &BufferSlice,
        output: &BufferSlice,
        bootstrap: &mut BootstrapClient,
    ) -> Result<(), DriverError> {
        bootstrap.check_departure(self.number())?;
        (self.idle_since, self.slow_since) = (None, None);
        self.has_reported_wait = false;
        loop {
            while let Some(action) = self.machine.poll_action()? {
                let bytes = bytes_of(&action);
                self.perform(action, input, output)?;
                if bytes > MAX_WITHOUT_POLL {
                    self.poll_completions()?;
                }
            }
            self.post()?;
            if self.machine.is_done() {
                return Ok(());
            }
            // Only completions give the machine new actions.
            self.wait(bootstrap)?;
        }
    }

    /// Waits for completions.
    fn wait(&mut self, bootstrap: &mut BootstrapClient) -> Result<(), DriverError> {
        self.idle_since = self.yield_policy.begin_wait(self.steps.is_on());
        while !self.poll_completions()? {
            self.idle(bootstrap)?;
        }
        self.yield_policy.on_ready();
        if let Some(since) = self.idle_since.take().filter(|_| self.steps.is_on()) {
            self.idle_span += since.elapsed();
        }
        Ok(())
    }

    /// Posts the deferred sends.
    fn post(&mut self) -> Result<(), DriverError> {
        let lanes = self.ring.iter_mut().flat_map(|ring| &mut ring.lanes);
        for lane in lanes {
            lane.post()?;
        }
        Ok(())
    }

    fn perform(
        &mut self,
        action: Action,
        input: &BufferSlice,
        output: &BufferSlice,
    ) -> Result<(), DriverError> {
        if let Action::Compute(compute) = action {
            if compute.work.len() > MAX_COMPUTE_BEFORE_POST {
                self.post()?;
            }
            let lanes = self.ring.as_ref().map_or(&[][..], |ring| &ring.lanes);
            let (scratch, geometry) = (&self.scratch, *self.machine.geometry());
            let mut memory = Memory { input, output, scratch, lanes, geometry, failure: None };
            self.workspace.execute(&compute, &mut memory);
            return memory.failure.map_or(Ok(()), |error| Err(error.into()));
        }
        let Some(ring) = &mut self.ring else {
            return Err(Error::Internal("a group of one sends".into()).into());
        };
        match action {
            Action::Compute(_) => {}
            Action::Write { side, lane: number, id, step, piece, from, to, immediate } => {
                let lane = lane_mut(ring, number)?;
                let remote = match to {
                    Remote::Slot { offset, .. } => {
                        let RemoteAddr { addr: address, rkey: key } = lane.remote_staging(side);
                        RemoteAddr { addr: address.wrapping_add(offset), rkey: key }
                    }
                    Remote::Window { address, key, .. } => RemoteAddr { addr: address, rkey: key },
                };
                let buffer = match from.memory {
                    MemoryKind::Input => input,
                    MemoryKind::Output => output,
                    MemoryKind::Scratch => &self.scratch_whole,
                    MemoryKind::Slot { .. } => {
                        let what = "a slot cannot be sent from";
                        return Err(Error::Internal(what.into()).into());
                    }
                };
                if self.steps.is_on() {
                    self.steps.posted(step, self.clock.now());
                }
                self.timeline.posted(lane.queue_pair(side).number(), id, step, piece);
                let rank = self.machine.geometry().rank();
                probes::ring_send(rank, self.steps.operation(), step, from.len);
                let len = from.len;
                let payload = match to {
                    _ if len <= Lane::INLINE as u64 => {
                        let bytes = &mut self.copy_buffer[..len as usize];
                        buffer.read(from.offset, bytes)?;
                        Payload::Inline(bytes)
                    }
                    Remote::Slot { index, .. } if len <= lane.max_bounce(side) => {
                        let bytes = &mut self.copy_buffer[..len as usize];
                        buffer.read(from.offset, bytes)?;
                        Payload::Bounced { slot: index, bytes }
                    }
                    _ => Payload::Memory(buffer.sge(lane.rail, from.offset, len)?),
                };
                let is_copied = !matches!(payload, Payload::Memory(_));
                lane.send(side, id, remote, immediate, payload)?;
                if is_copied {
                    self.machine.handle_copied(id)?;
                }
            }
            Action::Credit { side, lane: number, id, immediate } => {
                lane_mut(ring, number)?.credit(side, id, immediate)?;
            }
            Action::Announce { lane: number, id, immediate, length } => {
                let lane = lane_mut(ring, number)?;
                let RemoteAddr { addr: address, rkey: key } = output.remote(lane.rail)?;
                lane.announce(
                    id,
                    immediate,
                    &WindowRecord { addr: address, len: length, rkey: key },
                )?;
            }
            Action::Rearm { side, lane: number } => lane_mut(ring, number)?.rearm(side)?,
            Action::Received { side, lane: number, step, piece, bytes } => {
                if self.steps.is_on() {
                    let now = self.clock.now();
                    let queue = self.arrivals.get_mut(arrivals_index(side, number));
                    let arrived = queue.and_then(VecDeque::pop_front).unwrap_or(now);
                    self.steps.received(step, bytes, arrived, now);
                    self.steps.waited(step, std::mem::take(&mut self.idle_span));
                }
                self.timeline.received(&self.clock, step, piece, number, bytes);
                let rank = self.machine.geometry().rank();
                probes::ring_receive(rank, self.steps.operation(), step, bytes);
                lane_mut(ring, number)?.rearm(side)?;
            }
        }
        Ok(())
    }

    /// Handles completions; returns true if there were any.
    fn poll_completions(&mut self) -> Result<bool, DriverError> {
        let Some(ring) = &self.ring else { return Ok(false) };
        self.completions.clear();
        for rail in &ring.rails {
            rail.cq.poll(&mut self.completions, MAX_BATCH);
        }
        for done in &self.completions {
            let (number, side) = ring
                .find(done.qpn)
                .ok_or_else(|| Error::Internal(format!("unknown queue pair {:?}", done.qpn)))?;
            if done.status != CompletionStatus::Success {
                return Err(DriverError::RequestFailed { lane: number, side, status: done.status });
            }
            match (done.operation, side) {
                (CompletionOperation::Write, _) => self.machine.handle_sent(done.wr_id)?,
                (_, side) => {
                    let lane = lane(ring, number)?;
                    let mut unread = None;
                    let record = || {
                        lane.window().unwrap_or_else(|error| {
                            unread = Some(error);
                            WindowRecord { addr: 0, len: 0, rkey: 0 }
                        })
                    };
                    let (immediate, len) = (immediate_of(done), done.byte_len);
                    if self.steps.is_on() && Immediate::from_bits(immediate).is_data() {
                        self.arrivals[arrivals_index(side, number)].push_back(self.clock.now());
                    }
                    let machine = &mut self.machine;
                    let handled = machine.handle_message(side, number, immediate, len, record);
                    if let Some(error) = unread {
                        return Err(error.into());
                    }
                    handled?;
                }
            }
        }
        Ok(!self.completions.is_empty())
    }

    /// Spins for a while, then sleeps until a completion comes.
    fn idle(&mut self, bootstrap: &mut BootstrapClient) -> Result<(), DriverError> {
        let now = Instant::now();
        let since = *self.idle_since.get_or_insert(now);
        if self.yield_policy.on_empty(now, now.duration_since(since), self.spin) {
            return Ok(());
        }
        bootstrap.check()?;
        bootstrap.check_departure(self.number())?;
        bootstrap.answer(self.number(), self.machine.latest())?;
        self.check_time(now, bootstrap)?;
        let Some(ring) = &self.ring else { return Ok(()) };
        if now.duration_since(self.ports_checked_at) >= PORT_CHECK_INTERVAL {
            self.ports_checked_at = now;
            self.interrupt.check()?;
            if let Some(interface) = ring.interface_down() {
                return Err(DriverError::InterfaceDown(interface.to_owned()));
            }
        }
        let limit =
            self.timeout.map_or(PORT_CHECK_INTERVAL, |timeout| timeout.min(PORT_CHECK_INTERVAL));
        sleep(ring, bootstrap.as_fd(), limit)?;
        Ok(())
    }

    /// Tells the server that this rank has waited for long, and gives the operation up after its timeout.
    fn check_time(&mut self, now: Instant, bootstrap: &mut BootstrapClient) -> Result<(), Error> {
        let waited = now.duration_since(*self.slow_since.get_or_insert(now));
        let patience =
            self.timeout.map_or(progress::PATIENCE, |timeout| progress::PATIENCE.min(timeout / 2));
        if waited >= patience && !self.has_reported_wait {
            self.has_reported_wait = true;
            bootstrap.report_wait(self.number())?;
        }
        match self.timeout.filter(|timeout| waited >= *timeout) {
            Some(timeout) => Err(bootstrap.report_late(self.number(), timeout)),
            None => Ok(()),
        }
    }
}

/// Sleeps until a completion, a message of the bootstrap server, or the end of `limit`.
fn sleep(ring: &Ring, bootstrap: BorrowedFd<'_>, limit: Duration) -> Result<(), Error> {
    // A queue that is not empty reports at once.
    ring.rails.iter().for_each(|rail| rail.cq.arm(false));
    let channels: Vec<&CompletionChannel> = ring.rails.iter().map(|rail| &rail.channel).collect();
    CompletionChannel::wait_any(&channels, bootstrap, Some(limit))?;
    for channel in channels {
        while channel.poll().is_some() {}
    }
    Ok(())
}

/// Returns how many bytes an action sends or computes.
fn bytes_of(action: &Action) -> u64 {
    match action {
        Action::Compute(compute) => compute.work.len(),
        Action::Write { from, .. } => from.len,
        _ => 0,
    }
}

fn lane(ring: &Ring, number: u32) -> Result<&Lane, Error> {
    let lane = ring.lanes.get(number as usize);
    lane.ok_or_else(|| Error::Internal(format!("there is no lane {number}")))
}

fn lane_mut(ring: &mut Ring, number: u32) -> Result<&mut Lane, Error> {
    let lane = ring.lanes.get_mut(number as usize);
    lane.ok_or_else(|| Error::Internal(format!("there is no lane {number}")))
}

/// Returns the index of the arrival times of a side of a lane.
fn arrivals_index(side: Side, lane: u32) -> usize {
    2 * lane as usize + usize::from(side == Side::Next)
}

/// Returns the immediate; 0 without one, which the machine detects.
fn immediate_of(done: &Completion) -> u32 {
    done.immediate.map_or(0, u32::from_be_bytes)
}

/// The memory of computations.
struct Memory<'a> {
    input: &'a BufferSlice,
    output: &'a BufferSlice,
    scratch: &'a Buffer,
    lanes: &'a [Lane],
    geometry: Geometry,
    failure: Option<Error>,
}

impl Memory<'_> {
    fn read_slot(
        &self,
        (side, lane, index): (Side, u32, u32),
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let start = u64::from(index) * self.geometry.slot_pitch(side) + offset;
        match self.lanes.get(lane as usize) {
            Some(lane) => Ok(lane.staging(side).read(start as usize, into)?),
            None => Err(Error::Internal(format!("there is no lane {lane}"))),
        }
    }

    fn record_failure(&mut self, result: Result<(), Error>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }
}

impl RankMemory for Memory<'_> {
    fn read(&mut self, memory: MemoryKind, offset: u64, into: &mut [u8]) {
        let result = match memory {
            MemoryKind::Input => self.input.read(offset, into),
            MemoryKind::Output => self.output.read(offset, into),
            MemoryKind::Scratch => self.scratch.read(offset, into),
            MemoryKind::Slot { side, lane, index } => {
                self.read_slot((side, lane, index), offset, into)
            }
        };
        self.record_failure(result);
    }

    fn write(&mut self, memory: MemoryKind, offset: u64, bytes: &[u8]) {
        let result = match memory {
            MemoryKind::Input => self.input.write(offset, bytes),
            MemoryKind::Output => self.output.write(offset, bytes),
            MemoryKind::Scratch => self.scratch.write(offset, bytes),
            MemoryKind::Slot { .. } => Err(Error::Internal("slots are not written here".into())),
        };
        self.record_failure(result);
    }
}
