//! Bandwidth: as many messages under way as the queues hold.

use std::time::{Duration, Instant};

use roce_verbs::{Completion, SendWork};

use super::control::{Control, Introduction};
use super::end::{End, SENT};
use super::plan::{Plan, Verb};
use super::report::Row;
use super::statistics::Timeline;
use crate::failure::Outcome;
use crate::status::succeeded;

/// The client's part: sends, and measures.
pub(crate) fn initiate(
    end: &End,
    theirs: &Introduction,
    plan: &Plan,
    size: u32,
    control: &mut Control,
) -> Outcome<Row> {
    let message = end.message(plan, theirs, size)?;
    let total = if plan.duration.is_some() { u64::MAX } else { plan.iterations };
    let mut sender = Sender {
        end,
        message,
        depth: u64::from(plan.tx_depth),
        moderation: u64::from(plan.moderation(size)),
        left: vec![total; end.qps.len()],
        flows: vec![Flow::default(); end.qps.len()],
        timeline: Timeline::new(total.saturating_mul(end.qps.len() as u64)),
        start: Instant::now(),
        done: 0,
    };
    let mut window = plan.duration.map(|seconds| Window::new(seconds, plan.margin));
    let mut completions = Vec::with_capacity(BATCH);
    let mut idle = Idle::default();
    loop {
        let now = sender.start.elapsed();
        if window.as_mut().is_some_and(|window| window.is_over(now, sender.done)) {
            sender.stop();
        }
        sender.post()?;
        if sender.is_finished() {
            break;
        }
        if end.queue.poll(&mut completions, BATCH) == 0 {
            idle.note(control)?;
        }
        completions.drain(..).try_for_each(|completion| sender.take(&completion))?;
    }
    Ok(match window {
        Some(window) => Row::Bandwidth {
            size,
            messages: window.messages(),
            peak: None,
            average: window.messages() as f64 / window.seconds(),
        },
        None => Row::Bandwidth {
            size,
            messages: sender.done,
            peak: sender.timeline.peak_rate(),
            average: sender.timeline.average_rate(),
        },
    })
}

/// The server's part: nothing for one-sided operations; receives to post again for sends.
pub(crate) fn serve(end: &End, plan: &Plan, size: u32, control: &mut Control) -> Outcome {
    if plan.verb != Verb::Send {
        return Ok(());
    }
    let each = if plan.duration.is_some() { u64::MAX } else { plan.iterations };
    let mut to_post = vec![each - end.receives_to_begin_with(plan); end.qps.len()];
    let mut used = vec![0; end.qps.len()];
    let mut to_come = each.saturating_mul(end.qps.len() as u64);
    let mut completions = Vec::with_capacity(BATCH);
    let mut idle = Idle::default();
    while to_come > 0 {
        if end.queue.poll(&mut completions, BATCH) == 0 {
            let news = idle.note(control)?;
            if news && plan.duration.is_some() {
                break;
            }
        }
        for completion in completions.drain(..) {
            succeeded(&completion)?;
            used[completion.work_id as usize] += 1;
            to_come -= 1;
        }
        for (qp, used) in used.iter_mut().enumerate() {
            let again = (*used).min(to_post[qp]);
            if again > 0 {
                end.post_receives(qp, size, again)?;
                to_post[qp] -= again;
            }
            *used = 0;
        }
    }
    Ok(())
}

/// What one queue pair has under way.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    under_way: u64,
    /// Messages posted since the last one that will be reported.
    unreported: u64,
}

struct Sender<'a> {
    end: &'a End,
    message: SendWork,
    depth: u64,
    /// One completion in so many messages.
    moderation: u64,
    /// Messages still to post, for each queue pair.
    left: Vec<u64>,
    flows: Vec<Flow>,
    timeline: Timeline,
    start: Instant,
    done: u64,
}

impl Sender<'_> {
    /// Fills the queues.
    fn post(&mut self) -> Outcome {
        for (index, flow) in self.flows.iter_mut().enumerate() {
            let count = (self.depth - flow.under_way).min(self.left[index]);
            if count == 0 {
                continue;
            }
            self.left[index] -= count;
            let (left, moderation) = (self.left[index], self.moderation);
            let (message, start, timeline) = (&self.message, self.start, &mut self.timeline);
            self.end.qps[index].post_send((1..=count).map(|number| {
                flow.under_way += 1;
                flow.unreported += 1;
                let last = left == 0 && number == count;
                let signaled = last || flow.unreported == moderation;
                let work_id = SENT | flow.unreported << COUNT_SHIFT | index as u64;
                if signaled {
                    flow.unreported = 0;
                }
                timeline.post(start.elapsed());
                SendWork { work_id, signaled, ..message.clone() }
            }))?;
        }
        Ok(())
    }

    /// Posts no more but what it takes to hear of the messages that are under way.
    fn stop(&mut self) {
        for (left, flow) in self.left.iter_mut().zip(&self.flows) {
            *left = u64::from(flow.unreported > 0);
        }
    }

    fn take(&mut self, completion: &Completion) -> Outcome {
        succeeded(completion)?;
        let index = completion.work_id & INDEX_MASK;
        let count = (completion.work_id & !SENT) >> COUNT_SHIFT;
        self.flows[index as usize].under_way -= count;
        self.done += count;
        self.timeline.complete(self.done, self.start.elapsed());
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.left.iter().all(|left| *left == 0) && self.flows.iter().all(|f| f.under_way == 0)
    }
}

/// The part of a run over time that counts.
#[derive(Debug)]
pub(crate) struct Window {
    opens: Duration,
    closes: Duration,
    ends: Duration,
    first: Option<(Duration, u64)>,
    last: Option<(Duration, u64)>,
}

impl Window {
    /// A run of so many seconds, of which some at both ends do not count.
    pub(crate) fn new(seconds: f64, margin: f64) -> Self {
        let ends = Duration::from_secs_f64(seconds);
        let opens = Duration::from_secs_f64(margin);
        Self { opens, closes: ends.saturating_sub(opens), ends, first: None, last: None }
    }

    /// Notes that so many messages are done, and says whether time is up.
    pub(crate) fn is_over(&mut self, now: Duration, done: u64) -> bool {
        if now >= self.opens && self.first.is_none() {
            self.first = Some((now, done));
        }
        if now <= self.closes || self.last.is_none() {
            self.last = Some((now, done));
        }
        now >= self.ends
    }

    /// Messages that count.
    pub(crate) fn messages(&self) -> u64 {
        match (self.first, self.last) {
            (Some((_, first)), Some((_, last))) => last.saturating_sub(first),
            _ => 0,
        }
    }

    /// How long they took.
    pub(crate) fn seconds(&self) -> f64 {
        let span = match (self.first, self.last) {
            (Some((first, _)), Some((last, _))) => last.saturating_sub(first),
            _ => Duration::ZERO,
        };
        span.as_secs_f64().max(1e-9)
    }
}

/// Looks after the other end while there is nothing to do.
#[derive(Debug, Default)]
pub(crate) struct Idle(u32);

impl Idle {
    /// There was nothing to do. Every now and then: is the other end there, and has it said
    /// something?
    pub(crate) fn note(&mut self, control: &mut Control) -> Outcome<bool> {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(POLLS_A_LOOK) { control.has_news() } else { Ok(false) }
    }
}

/// A look costs three system calls.
const POLLS_A_LOOK: u32 = 1024;
/// Completions taken at a time.
const BATCH: usize = 64;
/// In a work request id: how many messages complete with it, above the queue pair's index.
const COUNT_SHIFT: u32 = 32;
const INDEX_MASK: u64 = 0xffff_ffff;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Window;

    #[test]
    fn what_happens_in_the_margins_does_not_count() {
        let mut window = Window::new(10.0, 2.0);
        let over: Vec<bool> = (0..=10)
            .map(|second| window.is_over(Duration::from_secs(second), second * 100))
            .collect();
        assert_eq!(over.iter().position(|over| *over), Some(10));
        assert_eq!((window.messages(), window.seconds()), (600, 6.0));
    }
}
