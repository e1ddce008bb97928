//! What keeps the send queues of a bandwidth test full.

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

/// What one queue pair has under way.
#[derive(Clone, Copy, Debug, Default)]
struct QpProgress {
    /// Messages still to post.
    left: u64,
    in_flight: u64,
    /// Messages posted since the last one that will be reported.
    unreported: u64,
    posted: u64,
    done: u64,
    /// Where in the buffer the next message lies.
    offset: usize,
    /// Whether it is on the list of those to fill.
    listed: bool,
}

/// Posts messages on all queue pairs, and counts those that are done.
#[derive(Debug)]
pub(crate) struct Sender<'a> {
    end: &'a Resources,
    message: WorkRequest<'a>,
    cycle: WorkingSet,
    depth: u64,
    /// One completion in so many messages.
    moderation: u64,
    /// Messages posted with one call.
    list: u64,
    flows: Vec<QpProgress>,
    /// The queue pairs that have room, in the order in which they got it.
    with_room: Vec<usize>,
    stopped: bool,
    /// Up to when all queue pairs still had work, where the number of messages is given.
    pub(crate) shares: Shares,
    pub(crate) timeline: Timeline,
    /// Whether the timeline is wanted: a run over time has its window instead.
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

    /// Fills the queues that have room.
    pub(crate) fn post(&mut self) -> Result {
        let mut with_room = std::mem::take(&mut self.with_room);
        for index in with_room.drain(..) {
            self.fill(index)?;
        }
        self.with_room = with_room;
        Ok(())
    }

    /// Posts lists to one queue pair for as long as a whole one has room.
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
        self.end.qps[index].post_send((1..=count).map(|number| {
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
        }))?;
        Ok(())
    }

    /// Posts no more but what it takes to hear of the messages that are under way.
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

    /// A queue pair may have room and work.
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
            // The others may catch up from here on.
            self.shares.end(self.flows.iter().map(|flow| flow.done));
        }
        Ok(())
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.flows.iter().all(|flow| flow.left == 0 && flow.in_flight == 0)
    }

    /// Notes what each queue pair has done when the measured time begins and ends.
    pub(crate) fn record_shares(&mut self, has_begun: bool, has_ended: bool) {
        if has_begun {
            self.shares.begin(self.flows.iter().map(|flow| flow.done));
        }
        if has_ended {
            self.shares.end(self.flows.iter().map(|flow| flow.done));
        }
    }

    /// How many places messages have been to.
    pub(crate) fn places_used(&self) -> u64 {
        let most = self.flows.iter().map(|flow| flow.posted).max();
        most.unwrap_or(0).min(self.cycle.places())
    }
}

/// In a work request id: how many messages complete with it, above the queue pair's index.
const COUNT_SHIFT: u32 = 32;
const INDEX_MASK: u64 = 0xffff_ffff;
