//! A ring of ranks: `roce-ring` machines on the engines of a world.

mod error;
mod rank;

use roce_ring::{Action, Geometry, Operation, Remote, RingConfig, Side, WindowRecord, Workspace};
use roce_transport::{Instant, QpCap, RecvWr, RemoteAddr, SendOperation, SendWr, SgList};

use roce_simnet::{ConnectOptions, Connection, End, RECV_CQ, Region, World, default_options};

pub use error::RingError;

use rank::{Buffers, Rank};

/// Options of a [`Ring`].
#[derive(Clone, Copy, Debug)]
pub struct RingOptions {
    /// Lanes, slots and limits.
    pub ring_config: RingConfig,
    /// Options of every queue pair; the ring sets the capacities.
    pub connection: ConnectOptions,
    /// Keep and reduce data. Otherwise buffers have no memory; the messages are the same.
    pub keep_data: bool,
}

impl Default for RingOptions {
    /// Default settings of `roce-ring`, MTU 4096, ACK timeout 67 ms, data kept.
    fn default() -> Self {
        let connection = ConnectOptions {
            path_mtu: roce_wire::PathMtu::B4096,
            ack_timeout: roce_transport::AckTimeout::new(14).expect("below 32"),
            gap_reports: true,
            ..default_options()
        };
        Self { ring_config: RingConfig::default(), connection, keep_data: true }
    }
}

/// A rank on every host of a world, connected to its neighbours, with one operation.
///
/// Input and output are the same buffer. Reductions take no virtual time.
#[derive(Debug)]
pub struct Ring {
    ranks: Vec<Rank>,
    operation: Operation,
    options: RingOptions,
    workspace: Workspace,
}

impl Ring {
    /// Connects the hosts of `world` to a ring and posts all receives; host r is rank r.
    ///
    /// # Errors
    /// [`RingError`] for an invalid option.
    ///
    /// # Panics
    /// If the world has one host.
    pub fn build(
        world: &mut World,
        operation: Operation,
        options: RingOptions,
    ) -> Result<Self, RingError> {
        let size = world.hosts.len();
        assert!(size > 1, "a ring has two ranks at least");
        let mut ranks = Vec::with_capacity(size);
        for rank in 0..size {
            let geometry = Geometry::new(rank as u32, size as u32, options.ring_config)?;
            ranks.push(Rank::new(world, rank, geometry, &operation, &options)?);
        }
        let mut ring = Self { ranks, operation, options, workspace: Workspace::new() };
        ring.connect(world)?;
        Ok(ring)
    }

    /// Starts the operation on every rank.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn start(&mut self, world: &mut World) -> Result<(), RingError> {
        for rank in 0..self.ranks.len() {
            let started = self.ranks[rank].machine.start(&self.operation, true);
            started.map_err(|why| RingError::UsageError { rank, why })?;
        }
        (0..self.ranks.len()).try_for_each(|rank| self.perform_actions(world, rank))
    }

    /// Handles the completions of all ranks. Call it after every [`World::step`].
    ///
    /// # Errors
    /// [`RingError`].
    pub fn progress(&mut self, world: &mut World) -> Result<(), RingError> {
        for rank in 0..self.ranks.len() {
            let mut has_news = false;
            while let Some((cq, completion)) = world.hosts[rank].poll_completion() {
                has_news = true;
                if completion.status != roce_transport::CompletionStatus::Success {
                    return Err(RingError::Failed { rank, status: completion.status });
                }
                let this = &mut self.ranks[rank];
                let taken = if cq == RECV_CQ {
                    this.receive(world, rank, &completion)
                } else {
                    let sent = this.machine.handle_sent(completion.wr_id);
                    sent.map_err(|why| RingError::UsageError { rank, why })
                };
                taken?;
            }
            if has_news {
                self.perform_actions(world, rank)?;
            }
        }
        Ok(())
    }

    /// Runs until every rank is done. Returns the time of the last one.
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
                return Err(RingError::Stopped { waiting });
            }
            self.progress(world)?;
        }
    }

    /// Returns the time at which the last rank was done; `None` before that.
    pub fn done_at(&self) -> Option<Instant> {
        self.ranks
            .iter()
            .map(|rank| rank.done_at)
            .try_fold(Instant::default(), |last, done| Some(last.max(done?)))
    }

    /// Returns the time at which a rank was done; `None` before that.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn rank_done_at(&self, rank: usize) -> Option<Instant> {
        self.ranks[rank].done_at
    }

    /// Returns the buffer of a rank: its input, and after the run its output.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn buffer(&self, rank: usize) -> Region {
        self.ranks[rank].buffer
    }

    /// Returns the number of steps whose messages a rank has received.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn steps_done(&self, rank: usize) -> u32 {
        self.ranks[rank].steps
    }

    /// Connects each lane and exchanges the addresses of the ranks' memory.
    fn connect(&mut self, world: &mut World) -> Result<(), RingError> {
        let size = self.ranks.len();
        let geometry = *self.ranks[0].machine.geometry();
        for rank in 0..size {
            let next = (rank + 1) % size;
            for lane in 0..geometry.lanes() {
                let deepest = geometry.receives().max(geometry.sends());
                let cap = QpCap { max_send_wr: deepest, max_recv_wr: deepest, ..QpCap::default() };
                let options = ConnectOptions { cap, ..self.options.connection };
                let [mine, theirs] = Connection::open(world, [rank, next], options).ends;
                self.ranks[rank].ends.insert(mine.qpn, (Side::Next, lane));
                self.ranks[rank].next.push(mine);
                self.ranks[next].ends.insert(theirs.qpn, (Side::Previous, lane));
                self.ranks[next].previous.push(theirs);
            }
            for lane in 0..geometry.lanes() as usize {
                // The slots of the previous rank for its next one, and vice versa.
                let previous = self.ranks[(rank + size - 1) % size].staging[lane];
                let next = self.ranks[next].staging[lane];
                let [from_previous, from_next] = [Side::Previous as usize, Side::Next as usize];
                self.ranks[rank].remote_staging.push([previous[from_next], next[from_previous]]);
            }
            self.ranks[next].previous_records = self.ranks[rank].records.clone();
        }
        for (rank, this) in self.ranks.iter().enumerate() {
            for end in this.previous.iter().chain(&this.next) {
                for _ in 0..geometry.receives() {
                    arm(world, rank, *end)?;
                }
            }
        }
        Ok(())
    }

    /// Performs the actions of a rank's machine.
    fn perform_actions(&mut self, world: &mut World, rank: usize) -> Result<(), RingError> {
        let violation = |why| RingError::Violation { rank, why };
        while let Some(action) = self.ranks[rank].machine.poll_action().map_err(violation)? {
            let this = &mut self.ranks[rank];
            match action {
                Action::Write { side, lane, id, step, from, to, immediate, .. } => {
                    let chunk = chunk_sent(rank, step, world.hosts.len());
                    world.record_program(rank, || format!("step {step}: sends chunk {chunk}"));
                    let remote = match to {
                        Remote::Slot { offset, .. } => {
                            let staging = this.remote_staging[lane as usize][side as usize];
                            RemoteAddr { addr: staging.addr + offset, rkey: staging.key }
                        }
                        Remote::Window { address, key, .. } => {
                            RemoteAddr { addr: address, rkey: key }
                        }
                    };
                    let pieces = this.pieces(from);
                    post(world, rank, this.end(side, lane), id, remote, immediate, pieces)?;
                }
                Action::Credit { side, lane, id, immediate } => {
                    let remote = RemoteAddr { addr: 0, rkey: 0 };
                    let end = this.end(side, lane);
                    post(world, rank, end, id, remote, immediate, SgList::default())?;
                }
                Action::Announce { lane, id, immediate, length } => {
                    let record = this.previous_records[lane as usize];
                    let window =
                        WindowRecord { addr: this.buffer.addr, len: length, rkey: this.buffer.key };
                    let operation = SendOperation::Write {
                        remote: RemoteAddr { addr: record.addr, rkey: record.key },
                        immediate: Some(immediate.to_be_bytes()),
                    };
                    let bytes = window.to_bytes();
                    let work = SendWr::inline(id, operation, &bytes[..]).signaled();
                    let posted = world.post_send(this.previous[lane as usize], work);
                    posted.map_err(|why| RingError::Post { rank, why })?;
                }
                Action::Rearm { side, lane } => {
                    arm(world, rank, this.end(side, lane))?;
                }
                Action::Compute(compute) => {
                    if self.options.keep_data {
                        let mut places = Buffers { host: &mut world.hosts[rank], rank: this };
                        self.workspace.execute(&compute, &mut places);
                    }
                }
                Action::Received { side, lane, step, .. } => {
                    arm(world, rank, this.end(side, lane))?;
                    this.steps = this.steps.max(step + 1);
                    let size = world.hosts.len();
                    let chunk = chunk_sent((rank + size - 1) % size, step, size);
                    let verb = if (step as usize) < size - 1 { "adds" } else { "stores" };
                    world.record_program(rank, || format!("step {step}: {verb} chunk {chunk}"));
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

/// Returns the chunk that a rank sends in a step of a ring allreduce: reduce-scatter, then
/// all-gather.
const fn chunk_sent(rank: usize, step: u32, size: usize) -> usize {
    // `rank + 1` in step `size - 1`, and one less in each further step.
    (rank + 2 * size - step as usize) % size
}

fn arm(world: &mut World, rank: usize, end: End) -> Result<(), RingError> {
    let work = RecvWr::new(0, SgList::default());
    world.post_recv(end, work).map_err(|why| RingError::Post { rank, why })
}

fn post(
    world: &mut World,
    rank: usize,
    end: End,
    id: u64,
    remote: RemoteAddr,
    immediate: u32,
    pieces: SgList,
) -> Result<(), RingError> {
    let operation = SendOperation::Write { remote, immediate: Some(immediate.to_be_bytes()) };
    let work = SendWr::new(id, operation, pieces).signaled();
    world.post_send(end, work).map_err(|why| RingError::Post { rank, why })
}
