//! A ring of ranks: the machines of `roce-ring` over engines in a world.

use std::collections::HashMap;

use roce_ring::{
    Action, Fault, Geometry, GeometryError, Machine, Misuse, Operation, OperationError, Place,
    Places, Remote, Settings, Side, Span, Violation, WindowRecord, Workspace,
};
use roce_transport::{
    AccessFlags, Instant, PostError, RecvWork, RemoteSpan, ScatterList, SendOperation, SendWork,
};
use roce_wire::Qpn;
use thiserror::Error;

use crate::connection::{Connection, ConnectionOptions, RECV_CQ};
use crate::host::Host;
use crate::memory::Region;
use crate::world::{End, World};

/// How a [`Ring`] is laid over a world.
#[derive(Clone, Copy, Debug)]
pub struct RingOptions {
    /// Lanes, slots and limits.
    pub settings: Settings,
    /// Of every queue pair; PSNs and queue depth are the ring's own.
    pub connection: ConnectionOptions,
    /// Compute on real bytes. Otherwise buffers keep nothing and computations are left out:
    /// the messages are the same.
    pub keep_data: bool,
}

impl Default for RingOptions {
    /// The settings of `roce-ring`, MTU 4096, an ACK timeout of 67 ms, real bytes.
    fn default() -> Self {
        let connection = ConnectionOptions {
            path_mtu: roce_wire::PathMtu::B4096,
            ack_timeout: roce_transport::AckTimeout::new(14).expect("below 32"),
            ..ConnectionOptions::default()
        };
        Self { settings: Settings::default(), connection, keep_data: true }
    }
}

/// A rank on every host of a world, connected to its neighbours, with one operation to do.
///
/// Input and output are the same buffer. Computing takes no time in the world.
#[derive(Debug)]
pub struct Ring {
    ranks: Vec<Rank>,
    operation: Operation,
    options: RingOptions,
    workspace: Workspace,
}

/// One rank with its buffers.
#[derive(Debug)]
struct Rank {
    machine: Machine,
    ends: HashMap<Qpn, (Side, u32)>,
    /// By lane, to the previous and to the next rank.
    previous: Vec<End>,
    next: Vec<End>,
    buffer: Region,
    scratch: Region,
    /// By lane: our slots, and our record of where the next rank's output lies.
    staging: Vec<Region>,
    records: Vec<Region>,
    /// By lane: the next rank's slots, and the previous rank's record.
    next_staging: Vec<Region>,
    previous_records: Vec<Region>,
    /// Steps whose messages have been taken in.
    steps: u32,
    done_at: Option<Instant>,
}

/// Why a ring does not turn.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RingError {
    /// The settings make no ring.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// There is no such operation.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The buffers are larger than this machine can address.
    #[error("a buffer of {bytes} bytes does not fit this machine; ask for less")]
    TooLarge {
        /// How large.
        bytes: u64,
    },
    /// The machine was used wrongly: a mistake of the lab's.
    #[error("rank {rank}: {why}")]
    Misuse {
        /// Which rank.
        rank: usize,
        /// What.
        why: Misuse,
    },
    /// A neighbour broke the protocol.
    #[error("rank {rank}: {why}")]
    Violation {
        /// Which rank noticed.
        rank: usize,
        /// What.
        why: Violation,
    },
    /// The engine refused to post.
    #[error("rank {rank}: {why}")]
    Post {
        /// Which rank.
        rank: usize,
        /// What it says.
        why: PostError,
    },
    /// Work failed.
    #[error("rank {rank}: work ended with {status}")]
    Failed {
        /// Which rank.
        rank: usize,
        /// How.
        status: roce_transport::CompletionStatus,
    },
    /// Nothing more will happen, and ranks are not done.
    #[error("the ring stands still with {waiting} ranks waiting")]
    StandsStill {
        /// How many.
        waiting: usize,
    },
}

impl Ring {
    /// Connects the hosts of `world` to a ring and arms all receives; host r is rank r.
    ///
    /// # Errors
    /// [`RingError`] says which option is wrong.
    ///
    /// # Panics
    /// When the world has a single host.
    pub fn build(
        world: &mut World,
        operation: Operation,
        options: RingOptions,
    ) -> Result<Self, RingError> {
        let size = world.hosts().len();
        assert!(size > 1, "a ring has two ranks at least");
        let mut ranks = Vec::with_capacity(size);
        for rank in 0..size {
            let geometry = Geometry::new(rank as u32, size as u32, options.settings)?;
            ranks.push(Rank::new(world, rank, geometry, &operation, &options)?);
        }
        let mut ring = Self { ranks, operation, options, workspace: Workspace::new() };
        ring.connect(world)?;
        Ok(ring)
    }

    /// Starts the operation on every rank, now.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn start(&mut self, world: &mut World) -> Result<(), RingError> {
        for rank in 0..self.ranks.len() {
            let started = self.ranks[rank].machine.start(&self.operation, true);
            started.map_err(|why| RingError::Misuse { rank, why })?;
        }
        (0..self.ranks.len()).try_for_each(|rank| self.act(world, rank))
    }

    /// Takes the completions of all ranks and does what follows from them. To be called after
    /// every [`World::step`].
    ///
    /// # Errors
    /// [`RingError`].
    pub fn progress(&mut self, world: &mut World) -> Result<(), RingError> {
        for rank in 0..self.ranks.len() {
            let mut has_news = false;
            while let Some((cq, completion)) = world.host_mut(rank).poll_completion() {
                has_news = true;
                if completion.status != roce_transport::CompletionStatus::Success {
                    return Err(RingError::Failed { rank, status: completion.status });
                }
                let this = &mut self.ranks[rank];
                let taken = if cq == RECV_CQ {
                    this.receive(world, rank, &completion)
                } else {
                    let sent = this.machine.handle_sent(completion.work_id);
                    sent.map_err(|why| RingError::Misuse { rank, why })
                };
                taken?;
            }
            if has_news {
                self.act(world, rank)?;
            }
        }
        Ok(())
    }

    /// Turns the ring until every rank is done; returns when the last one was.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn run(&mut self, world: &mut World) -> Result<Instant, RingError> {
        loop {
            if let Some(end) = self.done_at() {
                return Ok(end);
            }
            if !world.step() {
                let waiting = self.ranks.iter().filter(|rank| rank.done_at.is_none()).count();
                return Err(RingError::StandsStill { waiting });
            }
            self.progress(world)?;
        }
    }

    /// When the last rank was done; `None` while one is not.
    pub fn done_at(&self) -> Option<Instant> {
        self.ranks
            .iter()
            .map(|rank| rank.done_at)
            .try_fold(Instant::default(), |last, done| Some(last.max(done?)))
    }

    /// The buffer of a rank: its input before, its output afterwards.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn buffer(&self, rank: usize) -> Region {
        self.ranks[rank].buffer
    }

    /// Steps whose messages a rank has taken in.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn steps_done(&self, rank: usize) -> u32 {
        self.ranks[rank].steps
    }

    /// Lane by lane: the next rank's queue pair, and where everybody's memory lies.
    fn connect(&mut self, world: &mut World) -> Result<(), RingError> {
        let size = self.ranks.len();
        let geometry = *self.ranks[0].machine.geometry();
        for rank in 0..size {
            let next = (rank + 1) % size;
            for lane in 0..geometry.lanes() {
                let deepest = geometry
                    .receives_at_next()
                    .max(geometry.sends_to_next())
                    .max(geometry.sends_to_previous());
                let options = ConnectionOptions { queue_depth: deepest, ..self.options.connection };
                let [mine, theirs] = Connection::open(world, [rank, next], options).ends;
                self.ranks[rank].ends.insert(mine.qpn, (Side::Next, lane));
                self.ranks[rank].next.push(mine);
                self.ranks[next].ends.insert(theirs.qpn, (Side::Previous, lane));
                self.ranks[next].previous.push(theirs);
            }
            self.ranks[rank].next_staging = self.ranks[next].staging.clone();
            self.ranks[next].previous_records = self.ranks[rank].records.clone();
        }
        for (rank, this) in self.ranks.iter().enumerate() {
            let sides = [
                (&this.previous, geometry.receives_at_previous()),
                (&this.next, geometry.receives_at_next()),
            ];
            for (ends, count) in sides {
                for end in ends {
                    for _ in 0..count {
                        arm(world, rank, *end)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Does what a machine asks for, until it asks for nothing.
    fn act(&mut self, world: &mut World, rank: usize) -> Result<(), RingError> {
        let violation = |why| RingError::Violation { rank, why };
        while let Some(action) = self.ranks[rank].machine.poll_action().map_err(violation)? {
            let this = &mut self.ranks[rank];
            match action {
                Action::Write { lane, id, step, from, to, immediate, .. } => {
                    let chunk = chunk_sent(rank, step, world.hosts().len());
                    world.tell(rank, || format!("step {step}: sends chunk {chunk}"));
                    let remote = match to {
                        Remote::Slot { offset, .. } => {
                            let staging = this.next_staging[lane as usize];
                            RemoteSpan { address: staging.address + offset, key: staging.key }
                        }
                        Remote::Window { address, key, .. } => RemoteSpan { address, key },
                    };
                    let pieces = this.pieces(from);
                    post(world, rank, this.next[lane as usize], id, remote, immediate, pieces)?;
                }
                Action::Credit { lane, id, immediate } => {
                    let record = this.previous_records[lane as usize];
                    let remote = RemoteSpan { address: record.address, key: record.key };
                    let end = this.previous[lane as usize];
                    post(world, rank, end, id, remote, immediate, ScatterList::default())?;
                }
                Action::Announce { lane, id, immediate, length } => {
                    let record = this.previous_records[lane as usize];
                    let window =
                        WindowRecord { address: this.buffer.address, length, key: this.buffer.key };
                    let operation = SendOperation::Write {
                        remote: RemoteSpan { address: record.address, key: record.key },
                        immediate: Some(immediate.to_be_bytes()),
                    };
                    let bytes = window.to_bytes();
                    let work = SendWork::inline(id, operation, &bytes[..]).signaled();
                    let posted = world.post_send(this.previous[lane as usize], work);
                    posted.map_err(|why| RingError::Post { rank, why })?;
                }
                Action::Rearm { side, lane } => {
                    let ends = match side {
                        Side::Previous => &this.previous,
                        Side::Next => &this.next,
                    };
                    arm(world, rank, ends[lane as usize])?;
                }
                Action::Compute(compute) => {
                    if self.options.keep_data {
                        let mut places = Buffers { host: world.host_mut(rank), rank: this };
                        self.workspace.execute(&compute, &mut places);
                    }
                }
                Action::Received { step, .. } => {
                    this.steps = this.steps.max(step + 1);
                    let size = world.hosts().len();
                    let chunk = chunk_sent((rank + size - 1) % size, step, size);
                    let verb = if (step as usize) < size - 1 { "adds" } else { "has" };
                    world.tell(rank, || format!("step {step}: {verb} chunk {chunk}"));
                }
            }
        }
        let this = &mut self.ranks[rank];
        if this.machine.is_done() && this.done_at.is_none() {
            this.done_at = Some(world.now());
        }
        Ok(())
    }
}

impl Rank {
    fn new(
        world: &mut World,
        rank: usize,
        geometry: Geometry,
        operation: &Operation,
        options: &RingOptions,
    ) -> Result<Self, RingError> {
        let (input, output) = operation.buffer_bytes(&geometry)?;
        let memory = &mut world.host_mut(rank).memory;
        let mut register = |bytes: u64, rights| -> Result<Region, RingError> {
            if !options.keep_data {
                return Ok(memory.register_unkept(bytes, rights));
            }
            let len = usize::try_from(bytes).map_err(|_| RingError::TooLarge { bytes })?;
            Ok(memory.register(len, rights))
        };
        let from_afar = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let buffer = register(input.max(output), from_afar)?;
        let scratch = register(geometry.scratch_bytes(), AccessFlags::LOCAL_WRITE)?;
        let lanes = 0..geometry.lanes();
        let staging = lanes.clone().map(|_| register(geometry.staging_bytes(), from_afar));
        let staging = staging.collect::<Result<_, _>>()?;
        // The records are kept in any case: addresses are read from them.
        let memory = &mut world.host_mut(rank).memory;
        let records = lanes.map(|_| memory.register(WindowRecord::LEN, from_afar)).collect();
        Ok(Self {
            machine: Machine::new(geometry),
            ends: HashMap::new(),
            previous: Vec::new(),
            next: Vec::new(),
            buffer,
            scratch,
            staging,
            records,
            next_staging: Vec::new(),
            previous_records: Vec::new(),
            steps: 0,
            done_at: None,
        })
    }

    fn receive(
        &mut self,
        world: &World,
        rank: usize,
        completion: &roce_transport::Completion,
    ) -> Result<(), RingError> {
        let Some((side, lane)) = self.ends.get(&completion.qpn).copied() else { return Ok(()) };
        let immediate = u32::from_be_bytes(completion.immediate.unwrap_or_default());
        let handled = match side {
            Side::Previous => self.machine.handle_data(lane, immediate, completion.byte_len),
            Side::Next => {
                let record = self.records[lane as usize];
                let read = || {
                    let bytes = world.hosts()[rank].memory.bytes(record);
                    let bytes = bytes.first_chunk().copied().unwrap_or_default();
                    WindowRecord::from_bytes(&bytes)
                };
                self.machine.handle_answer(lane, immediate, completion.byte_len, read)
            }
        };
        handled.map_err(|fault| match fault {
            Fault::Peer(why) => RingError::Violation { rank, why },
            Fault::Caller(why) => RingError::Misuse { rank, why },
        })
    }

    /// Which registered bytes a place begins with, and how far its part is from there.
    fn region(&self, place: Place) -> (Region, u64) {
        match place {
            Place::Input | Place::Output => (self.buffer, 0),
            Place::Scratch => (self.scratch, 0),
            Place::Slot { lane, index } => {
                let slot = u64::from(self.machine.geometry().settings().slot_bytes);
                (self.staging[lane as usize], u64::from(index) * slot)
            }
        }
    }

    fn pieces(&self, span: Span) -> ScatterList {
        if span.len == 0 {
            return ScatterList::default();
        }
        let (region, start) = self.region(span.place);
        // A piece is never longer than a slot.
        ScatterList::from([region.piece(start + span.offset, span.len as u32)])
    }
}

/// Which chunk a rank sends in a step of a large allreduce: first round with what it adds up,
/// then round with what is complete.
const fn chunk_sent(rank: usize, step: u32, size: usize) -> usize {
    // In step `size - 1` it is `rank + 1`, and one less with each further step.
    (rank + 2 * size - step as usize) % size
}

/// A rank's memory, as its computations see it.
struct Buffers<'a> {
    host: &'a mut Host,
    rank: &'a Rank,
}

impl Places for Buffers<'_> {
    fn read(&mut self, place: Place, offset: u64, into: &mut [u8]) {
        let (region, start) = self.rank.region(place);
        let bytes = self.host.memory.bytes(region);
        into.copy_from_slice(&bytes[(start + offset) as usize..][..into.len()]);
    }

    fn write(&mut self, place: Place, offset: u64, bytes: &[u8]) {
        let (region, start) = self.rank.region(place);
        let into = self.host.memory.bytes_mut(region);
        into[(start + offset) as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

fn arm(world: &mut World, rank: usize, end: End) -> Result<(), RingError> {
    let work = RecvWork::new(0, ScatterList::default());
    world.post_recv(end, work).map_err(|why| RingError::Post { rank, why })
}

fn post(
    world: &mut World,
    rank: usize,
    end: End,
    id: u64,
    remote: RemoteSpan,
    immediate: u32,
    pieces: ScatterList,
) -> Result<(), RingError> {
    let operation = SendOperation::Write { remote, immediate: Some(immediate.to_be_bytes()) };
    let work = SendWork::new(id, operation, pieces).signaled();
    world.post_send(end, work).map_err(|why| RingError::Post { rank, why })
}
