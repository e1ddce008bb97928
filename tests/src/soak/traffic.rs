//! One end of a pair: its queue pair, and the requests and receives that are outstanding on it.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roce_verbs::{
    Completion, CompletionChannel, CompletionQueue, CompletionStatus, Device, MemoryRegion,
    ProtectionDomain, QpAttributes, QpState, QueuePair, RegisterOptions,
};

use super::Result;
use super::card::Card;
use super::clock::Clock;
use super::options::{REQUEST_BOUND, SLACK, connect_options};
use super::receiver::{self, Receiver};
use super::report::PairState;
use super::requests::Request;
use crate::fixtures::every_right;

/// Way in which the thread of a pair waits for completions.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// [`CompletionChannel::wait`].
    Channel,
    /// `poll(2)` on the channel's descriptor.
    Descriptor,
    /// [`CompletionQueue::spin_wait`].
    Spin,
}

/// One end of a pair: it keeps requests of every kind outstanding, serves those of the other end,
/// and checks all that comes.
#[derive(Debug)]
pub struct Traffic {
    device: Device,
    pub(super) pd: ProtectionDomain,
    pub(super) qp: QueuePair,
    cq: CompletionQueue,
    channel: CompletionChannel,
    wait: Wait,
    pub(super) random: StdRng,
    clock: Clock,
    /// Region that the other end writes and reads.
    pub(super) target: MemoryRegion,
    /// Region of local data: two parts for each slot.
    pub(super) local: MemoryRegion,
    pub(super) receiver: Receiver,
    /// Requests that are not complete.
    pub(super) outstanding: HashMap<u64, Outstanding>,
    pub(super) next_id: u64,
    /// Slots that no request uses.
    pub(super) free_slots: Vec<usize>,
    pub(super) peer: Option<Card>,
    pub(super) counts: Counts,
    /// The first failure of this connection.
    failure: Option<Completion>,
    failed_at: Duration,
    /// How long this thread has waited for a processor, at the end of the last step.
    waited: Duration,
    state: PairState,
}

/// A request that is not complete.
#[derive(Debug)]
pub(super) struct Outstanding {
    pub(super) posted: Duration,
    pub(super) request: Request,
}

/// How many requests of some kinds this connection has carried so far.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Requests that use up a receive.
    pub(super) messages: u64,
    pub(super) additions: u64,
    pub(super) swaps: u64,
    pub(super) invalidations: usize,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Working,
    /// The connection has failed, and everything that was posted is complete.
    Failed(Completion),
}

impl Traffic {
    pub(super) fn new(device: &Device, pair: u32, seed: u64) -> Result<Self> {
        let pd = device.alloc_pd()?;
        let channel = device.create_completion_channel()?;
        let capacity = (MAX_OUTSTANDING + receiver::RECEIVES) * 2;
        let cq = device.create_cq(capacity, Some(&channel))?;
        let qp = pd
            .queue_pair(&cq, &cq)
            .max_send_wr(MAX_OUTSTANDING as u32)
            .max_recv_wr(receiver::RECEIVES as u32)
            .max_inline(MAX_INLINE as u32)
            .build()?;
        Ok(Self {
            device: device.clone(),
            target: pd.register(TARGET_LEN, every_right())?,
            local: pd.register(2 * SLOTS * MAX_LEN, every_right())?,
            receiver: Receiver::new(&pd)?,
            wait: [Wait::Channel, Wait::Descriptor, Wait::Spin][pair as usize % 3],
            random: StdRng::seed_from_u64(seed),
            clock: Clock::new(),
            state: PairState { pair, ..PairState::default() },
            outstanding: HashMap::new(),
            next_id: 0,
            free_slots: Vec::new(),
            peer: None,
            counts: Counts::default(),
            failure: None,
            failed_at: Duration::ZERO,
            waited: Duration::ZERO,
            pd,
            qp,
            cq,
            channel,
        })
    }

    /// Returns the device's counters that are not zero.
    pub(super) fn counters(&self) -> Result<Vec<(&'static str, u64)>> {
        let counters = self.device.counters()?;
        Ok(counters.into_iter().filter(|(_, count)| *count > 0).collect())
    }

    pub(super) fn state(&self) -> PairState {
        self.state
    }

    /// Resets the queue pair, posts receives, and returns what the other end has to know.
    pub(super) fn prepare(&mut self) -> Result<Card> {
        let reset = QpAttributes { state: Some(QpState::Reset), ..QpAttributes::default() };
        self.qp.modify(&reset)?;
        if !self.outstanding.is_empty() {
            return Err("a queue pair was reset with requests outstanding".into());
        }
        // Reports of the connection before.
        while self.channel.poll().is_some() {}
        self.free_slots = (0..SLOTS).collect();
        self.counts = Counts::default();
        self.failure = None;
        self.state.operations_now = 0;
        self.target.write(0, &[0; COUNTERS_LEN])?;
        self.qp.init(&connect_options())?;
        let options = RegisterOptions { invalidatable: true, ..RegisterOptions::default() };
        let disposable: std::result::Result<Vec<_>, _> =
            (0..DISPOSABLE).map(|_| self.pd.register_with(64, every_right(), options)).collect();
        self.receiver.start(disposable?, &self.qp)?;
        let dest = self.qp.dest(None)?;
        let (address, key) = (self.target.address(), self.target.rkey());
        let mut card = Card::new(self.state.pair, &dest, address, key);
        card.disposable = self.receiver.keys();
        Ok(card)
    }

    pub(super) fn connect(&mut self, peer: Card) -> Result<()> {
        self.qp.connect_from_init(&peer.dest()?, &connect_options())?;
        self.peer = Some(peer);
        self.state.connections += 1;
        Ok(())
    }

    /// Posts as much as there is room for, waits a moment for completions, and checks them.
    ///
    /// # Errors
    /// A violation, as text.
    pub(super) fn step(&mut self) -> Result<Step> {
        if self.failure.is_none() {
            self.post_requests()?;
        }
        let completions = self.wait()?;
        for completion in &completions {
            self.handle(completion)?;
        }
        let now = self.clock.now();
        self.note_starved(now);
        self.check_bounds(now)?;
        match self.failure {
            Some(failure) if self.outstanding.is_empty() && self.receiver.posted() == 0 => {
                self.peer = None;
                Ok(Step::Failed(failure))
            }
            _ => Ok(Step::Working),
        }
    }

    /// Notes for how long this thread has waited for a processor since the last step.
    fn note_starved(&mut self, now: Duration) {
        let elapsed = self.clock.elapsed();
        let waited = elapsed.saturating_sub(now);
        let starved = waited.saturating_sub(self.waited).as_micros() as u64;
        self.waited = waited;
        if starved > self.state.starved {
            self.state.starved = starved;
            self.state.starved_at = elapsed.as_secs();
        }
    }

    /// Notes a request that was posted.
    pub(super) fn note_posted(&mut self, id: u64, request: Request) {
        let posted = self.clock.now();
        self.outstanding.insert(id, Outstanding { posted, request });
    }

    fn wait(&mut self) -> Result<Vec<Completion>> {
        let found = self.cq.poll_all();
        if !found.is_empty() {
            return Ok(found);
        }
        if let Wait::Spin = self.wait {
            return Ok(self.cq.spin_wait(LOOK).into_iter().collect());
        }
        self.cq.arm(false);
        let found = self.cq.poll_all();
        if !found.is_empty() {
            return Ok(found);
        }
        match self.wait {
            Wait::Descriptor => {
                let mut fds = [PollFd::new(self.channel.as_fd(), PollFlags::POLLIN)];
                let timeout = PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO);
                let _ready = poll(&mut fds, timeout)?;
                while self.channel.poll().is_some() {}
            }
            _ => drop(self.channel.wait(Some(LOOK))?),
        }
        Ok(self.cq.poll_all())
    }

    fn handle(&mut self, completion: &Completion) -> Result<()> {
        if completion.status != CompletionStatus::Success {
            let now = self.clock.now();
            self.failed_at = if self.failure.is_none() { now } else { self.failed_at };
            self.failure.get_or_insert(*completion);
            self.state.failed += 1;
        }
        let len = if completion.wr_id & receiver::IS_RECEIVE != 0 {
            self.receiver.handle(completion, &self.target, &self.qp)?
        } else {
            let done = self.outstanding.remove(&completion.wr_id);
            let done = done.ok_or_else(|| format!("nothing was posted for {completion:?}"))?;
            let took = self.clock.now().saturating_sub(done.posted);
            self.state.longest = self.state.longest.max(took.as_micros() as u64);
            self.finish(done.request, completion)?
        };
        if completion.status == CompletionStatus::Success {
            self.state.operations += 1;
            self.state.operations_now += 1;
            self.state.bytes += len;
        }
        Ok(())
    }

    fn check_bounds(&self, now: Duration) -> Result<()> {
        let bound = REQUEST_BOUND + SLACK;
        let late = |since: Duration| now.saturating_sub(since) > bound;
        if let Some((id, oldest)) = self.outstanding.iter().min_by_key(|(_, it)| it.posted)
            && late(oldest.posted)
        {
            let (request, state) = (&oldest.request, self.qp.query()?);
            return Err(format!(
                "{} of {} requests are not complete after {bound:?}; the oldest is {id}, \
                 {request:?}; failure so far: {:?}; {state:?}",
                self.outstanding.values().filter(|it| late(it.posted)).count(),
                self.outstanding.len(),
                self.failure,
            )
            .into());
        }
        let posted = self.receiver.posted();
        if self.failure.is_some() && posted > 0 && late(self.failed_at) {
            return Err(format!(
                "{posted} receives were not flushed {bound:?} after {:?}",
                self.failure
            )
            .into());
        }
        Ok(())
    }

    /// Returns a length that is short, within a packet, or long, each as often as the others.
    pub(super) fn draw_len(&mut self, most: usize) -> usize {
        let class = [64, 2048, MAX_LEN][self.random.random_range(0..3)];
        self.random.random_range(1..=class.min(most))
    }
}

/// Bytes of the longest WRITE and READ.
pub(super) const MAX_LEN: usize = 64 << 10;
/// Requests, or groups of requests, that may be outstanding.
pub(super) const SLOTS: usize = 8;
/// Requests of one slot at most.
pub(super) const REQUESTS_PER_SLOT: usize = 2;
const MAX_OUTSTANDING: usize = SLOTS * REQUESTS_PER_SLOT;
/// Bytes of a request that carries its bytes itself.
pub(super) const MAX_INLINE: usize = 256;
/// Keys that the other end may invalidate in one connection.
const DISPOSABLE: usize = 16;

/// The target region begins with the words that atomics change.
pub(super) const ADDITIONS_AT: u64 = 0;
/// See [`ADDITIONS_AT`].
pub(super) const SWAPS_AT: u64 = 8;
const COUNTERS_LEN: usize = 16;
/// Then the places of WRITEs with immediate.
pub(super) const NOTES_AT: usize = 4096;
/// More than there are receives: one is not written again before the other end has looked at it.
pub(super) const NOTES: usize = 2 * receiver::RECEIVES;
/// Bytes of a WRITE with immediate.
pub(super) const NOTE_LEN: usize = 64;
/// Then one place for each slot.
pub(super) const SLOTS_AT: usize = NOTES_AT + NOTES * NOTE_LEN;
const TARGET_LEN: usize = SLOTS_AT + SLOTS * MAX_LEN;

/// How long to wait for completions before a look at other things.
const LOOK: Duration = Duration::from_millis(50);
