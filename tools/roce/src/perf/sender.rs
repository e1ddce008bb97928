//! Keeps the send queues of a bandwidth test full.

use std::time::Instant;

use roce_verbs::Completion;

use super::control::PeerInfo;
use super::fairness::Shares;
use super::params::Params;
use super::resources::{Resources, SENT};
use super::statistics::Timeline;
use super::work_request::WorkRequest;
use super::working_set::WorkingSet;
use crate::error::Result;
use crate::status::succeeded;

/// The progress of one queue pair.
#[derive(Clone, Copy, Debug, Default)]
struct QpProgress {
    /// Messages not posted yet.
    left: u64,
    in_flight: u64,
    /// Messages posted since the last signaled one.
    unreported: u64,
    posted: u64,
    done: u64,
    /// The offset of the next message.
    offset: usize,
    /// True if it is in `with_room`.
    listed: bool,
}

/// Posts messages on all queue pairs and counts completions.
#[derive(Debug)]
pub(crate) struct Sender<'a> {
    end: &'a Resources,
    message: WorkRequest<'a>,
    cycle: WorkingSet,
    depth: u64,
    /// Messages per completion.
    moderation: u64,
    /// Messages per call.
    list: u64,
    flows: Vec<QpProgress>,
    /// Queue pairs with free queue entries, in FIFO order.
    with_room: Vec<usize>,
    stopped: bool,
    /// Shares while all queue pairs had work.
    pub(crate) shares: Shares,
    pub(crate) timeline: Timeline,
    /// True if the timeline is recorded: a run over time has an interval instead.
    timed: bool,
    pub(crate) start: Instant,
    pub(crate) done: u64,
}

impl<'a> Sender<'a> {
    pub(crate) fn new(
        end: &'a Resources,
        theirs: &PeerInfo,
        params: &Params,
        size: u32,
    ) -> Result<Self> {
        let total = if params.duration.is_some() { u64::MAX } else { params.iterations };
        let count = end.qps.len();
        let mut shares = Shares::default();
        if params.duration.is_none() {
            shares.begin((0..count).map(|_| 0));
        }
        Ok(Self {
            end,
            message: end.message(params, theirs, size)?,
            cycle: params.working_set(size),
            depth: u64::from(params.tx_depth),
            moderation: u64::from(params.moderation(size)),
            list: u64::from(params.post_list),
            flows: vec![QpProgress { left: total, listed: true, ..QpProgress::default() }; count],
            with_room: (0..count).collect(),
            stopped: false,
            shares,
            timeline: Timeline::new(total.saturating_mul(count as u64)),
            timed: params.duration.is_none(),
            start: Instant::now(),
            done: 0,
        })
    }

    /// Fills the queues.
    pub(crate) fn post(&mut self) -> Result {
        let mut with_room = std::mem::take(&mut self.with_room);
        for index in with_room.drain(..) {
            self.fill(index)?;
        }
        self.with_room = with_room;
        Ok(())
    }

    /// Posts lists to one queue pair while a whole one fits.
    fn fill(&mut self, index: usize) -> Result {
        self.flows[index].listed = false;
        loop {
            let flow = &self.flows[index];
            let room = self.depth - flow.in_flight;
            let count = self.list.min(flow.left);
            if count == 0 || count > room {
                return Ok(());
            }
            self.post_list(index, count)?;
        }
    }

    /// Posts `count` messages to one queue pair with one call.
    fn post_list(&mut self, index: usize, count: u64) -> Result {
        let Self { message, cycle, timeline, timed, start, moderation, .. } = self;
        let flow = &mut self.flows[index];
        flow.left -= count;
        flow.posted += count;
        flow.in_flight += count;
        let left = flow.left;
        self.end.post_send(
            index,
            (1..=count).map(|number| {
                flow.unreported += 1;
                let last = left == 0 && number == count;
                let signaled = last || flow.unreported == *moderation;
                let wr_id = SENT | flow.unreported << COUNT_SHIFT | index as u64;
                if signaled {
                    flow.unreported = 0;
                }
                let offset = flow.offset;
                flow.offset = cycle.offset_after(offset);
                if *timed {
                    timeline.post(|| start.elapsed());
                }
                message.at(offset, wr_id, signaled)
            }),
        )
    }

    /// Stops, after one signaled message where earlier ones are unsignaled.
    pub(crate) fn stop(&mut self) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        for index in 0..self.flows.len() {
            let flow = &mut self.flows[index];
            flow.left = u64::from(flow.unreported > 0);
            self.list(index);
        }
    }

    /// Lists a queue pair that may have room and work.
    fn list(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        if flow.left > 0 && !std::mem::replace(&mut flow.listed, true) {
            self.with_room.push(index);
        }
    }

    pub(crate) fn take(&mut self, completion: &Completion) -> Result {
        succeeded(completion)?;
        let index = (completion.wr_id & INDEX_MASK) as usize;
        let count = (completion.wr_id & !SENT) >> COUNT_SHIFT;
        let flow = &mut self.flows[index];
        flow.in_flight -= count;
        flow.done += count;
        let is_through = flow.left == 0 && flow.in_flight == 0;
        self.list(index);
        self.done += count;
        if self.timed {
            self.timeline.complete(self.done, self.start.elapsed());
        }
        if is_through && !self.stopped {
            // The other queue pairs may catch up from here on.
            self.shares.end(self.flows.iter().map(|flow| flow.done));
        }
        Ok(())
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.flows.iter().all(|flow| flow.left == 0 && flow.in_flight == 0)
    }

    /// Records the messages of each queue pair at the start and the end of the measurement.
    pub(crate) fn record_shares(&mut self, has_begun: bool, has_ended: bool) {
        if has_begun {
            self.shares.begin(self.flows.iter().map(|flow| flow.done));
        }
        if has_ended {
            self.shares.end(self.flows.iter().map(|flow| flow.done));
        }
    }

    /// Returns the number of messages that were posted.
    pub(crate) fn posted(&self) -> u64 {
        self.flows.iter().map(|flow| flow.posted).sum()
    }

    /// Returns the number of positions that messages used.
    pub(crate) fn places_used(&self) -> u64 {
        let most = self.flows.iter().map(|flow| flow.posted).max();
        most.unwrap_or(0).min(self.cycle.places())
    }
}

/// A wr_id holds the number of messages that complete with it, above the queue pair's index.
const COUNT_SHIFT: u32 = 32;
const INDEX_MASK: u64 = 0xffff_ffff;
