//! Bandwidth: as many outstanding messages as the queues hold.

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use roce_verbs::CompletionChannel;

use super::control::{ControlChannel, PeerInfo};
use super::loss::{Loss, QuietTimer};
use super::params::{Params, Verb};
use super::resources::Resources;
use super::result::{Row, SizeResult};
use super::sender::Sender;
use crate::error::Result;
use crate::status::succeeded;

/// Runs the client, which sends and measures.
pub(crate) fn initiate(
    end: &Resources,
    theirs: &PeerInfo,
    params: &Params,
    size: u32,
    control: &mut ControlChannel,
) -> Result<SizeResult> {
    let mut sender = Sender::new(end, theirs, params, size)?;
    let mut window = params.duration.map(|seconds| MeasuredInterval::new(seconds, params.margin));
    let mut completions = Vec::with_capacity(MAX_COMPLETIONS);
    let mut idle = PeerCheck::default();
    loop {
        if let Some(window) = &mut window {
            let now = sender.start.elapsed();
            let is_over = window.is_over(now, sender.done);
            if !end.has_one_qp() {
                sender.record_shares(window.opens <= now, window.closes < now);
            }
            if is_over {
                sender.stop();
            }
        }
        sender.post()?;
        if sender.is_finished() {
            break;
        }
        if end.queue.poll(&mut completions, MAX_COMPLETIONS) == 0 {
            idle.note(end, control, None)?;
        }
        completions.drain(..).try_for_each(|completion| sender.take(&completion))?;
    }
    let (messages, peak, average) = match &window {
        Some(window) => (window.messages(), None, window.messages() as f64 / window.seconds()),
        None => (sender.done, sender.timeline.peak_rate(), sender.timeline.average_rate()),
    };
    let fairness = sender.shares.fairness();
    let row = Row::Bandwidth { size, messages, peak, average, fairness };
    let loss = params.connection.is_unreliable().then(|| Loss::exchange(control, sender.posted()));
    Ok(SizeResult { row, loss: loss.transpose()?, places_used: sender.places_used() })
}

/// Runs the server: reposts receives for sends, does nothing for one-sided operations. Without
/// acknowledgements it tells the client what has arrived; `uc_messages` had arrived before.
pub(crate) fn serve(
    end: &Resources,
    params: &Params,
    size: u32,
    uc_messages: u64,
    control: &mut ControlChannel,
) -> Result {
    let is_unreliable = params.connection.is_unreliable();
    if params.verb != Verb::Send {
        return if is_unreliable { count_writes(end, uc_messages, control) } else { Ok(()) };
    }
    let each = params.known_messages().unwrap_or(u64::MAX);
    let mut to_post = vec![each - end.initial_receives(params); end.qps.len()];
    let first = params.working_set(size);
    let first = (0..end.initial_receives(params) % first.places())
        .fold(0, |offset, _| first.offset_after(offset));
    let mut offsets = vec![first; end.qps.len()];
    let mut used = vec![0; end.qps.len()];
    let mut to_come = each.saturating_mul(end.qps.len() as u64);
    let mut received = 0;
    let mut quiet: Option<QuietTimer> = None;
    let mut completions = Vec::with_capacity(MAX_COMPLETIONS);
    let mut idle = PeerCheck::default();
    while received < to_come {
        if end.queue.poll(&mut completions, MAX_COMPLETIONS) == 0 {
            let wait = is_unreliable.then_some(MAX_SLEEP);
            match &mut quiet {
                Some(quiet) => {
                    if quiet.is_over(received) {
                        break;
                    }
                }
                None => {
                    let news = idle.note(end, control, wait)?;
                    if news && is_unreliable {
                        to_come = control.receive()?;
                        quiet = Some(QuietTimer::new(received));
                    } else if news && params.duration.is_some() {
                        break;
                    }
                }
            }
        }
        for completion in completions.drain(..) {
            succeeded(&completion)?;
            used[completion.wr_id as usize] += 1;
            received += 1;
        }
        for (qp, used) in used.iter_mut().enumerate() {
            let again = (*used).min(to_post[qp]);
            if again > 0 {
                offsets[qp] = end.post_receives(qp, params, size, offsets[qp], again)?;
                to_post[qp] -= again;
            }
            *used = 0;
        }
    }
    if is_unreliable { control.send(&received) } else { Ok(()) }
}

/// Waits until the client's WRITEs have arrived, of which nothing else tells, and returns their
/// number to it.
fn count_writes(end: &Resources, before: u64, control: &mut ControlChannel) -> Result {
    let sent: u64 = control.receive()?;
    let mut quiet = QuietTimer::new(0);
    let received = loop {
        let received = end.uc_messages()? - before;
        if received >= sent || quiet.is_over(received) {
            break received;
        }
        thread::sleep(COUNT_INTERVAL);
    };
    control.send(&received)
}

/// The measured part of a run over time.
#[derive(Debug)]
pub(crate) struct MeasuredInterval {
    opens: Duration,
    closes: Duration,
    ends: Duration,
    first: Option<(Duration, u64)>,
    last: Option<(Duration, u64)>,
}

impl MeasuredInterval {
    /// Creates the interval of a run of `seconds` without the `margin` at both ends.
    pub(crate) fn new(seconds: f64, margin: f64) -> Self {
        let ends = Duration::from_secs_f64(seconds);
        let opens = Duration::from_secs_f64(margin);
        Self { opens, closes: ends.saturating_sub(opens), ends, first: None, last: None }
    }

    /// Records the number of completed messages; returns true at the end of the run.
    pub(crate) fn is_over(&mut self, now: Duration, done: u64) -> bool {
        if now >= self.opens && self.first.is_none() {
            self.first = Some((now, done));
        }
        if now <= self.closes || self.last.is_none() {
            self.last = Some((now, done));
        }
        now >= self.ends
    }

    /// Returns the messages in the interval.
    pub(crate) fn messages(&self) -> u64 {
        match (self.first, self.last) {
            (Some((_, first)), Some((_, last))) => last.saturating_sub(first),
            _ => 0,
        }
    }

    /// Returns the length of the interval in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        let span = match (self.first, self.last) {
            (Some((first, _)), Some((last, _))) => last.saturating_sub(first),
            _ => Duration::ZERO,
        };
        span.as_secs_f64().max(1e-9)
    }
}

/// Checks the peer while there is nothing to do.
#[derive(Debug, Default)]
pub(crate) struct PeerCheck(u32);

impl PeerCheck {
    /// Handles an empty poll: sleeps until a completion if this end uses events. Returns true if
    /// the peer has sent a message, which is checked once in many polls. A sleep lasts no longer
    /// than `wait`.
    pub(crate) fn note(
        &mut self,
        end: &Resources,
        control: &mut ControlChannel,
        wait: Option<Duration>,
    ) -> Result<bool> {
        if let Some(channel) = &end.channel {
            if control.has_unread() {
                return Ok(true);
            }
            end.queue.arm(false);
            CompletionChannel::wait_any(&[channel], control.as_fd(), wait)?;
            let mut reported = false;
            while channel.poll().is_some() {
                reported = true;
            }
            return if reported { Ok(false) } else { control.has_input() };
        }
        self.0 = self.0.wrapping_add(1);
        if self.has_checked(end) { control.has_input() } else { Ok(false) }
    }

    /// Returns true if the latest empty poll was followed by a check of the peer.
    pub(crate) fn has_checked(&self, end: &Resources) -> bool {
        end.channel.is_some() || self.0.is_multiple_of(POLLS_PER_CHECK)
    }
}

/// Longest sleep of an end that has to notice lost messages.
pub(crate) const MAX_SLEEP: Duration = Duration::from_millis(50);
/// Interval between two looks at the number of WRITEs.
const COUNT_INTERVAL: Duration = Duration::from_millis(1);
/// Empty polls per check, which takes three system calls.
const POLLS_PER_CHECK: u32 = 1024;
/// The most completions per poll, as in perftest.
const MAX_COMPLETIONS: usize = 16;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::MeasuredInterval;

    #[test]
    fn messages_in_the_margins_do_not_count() {
        let mut window = MeasuredInterval::new(10.0, 2.0);
        let over: Vec<bool> = (0..=10)
            .map(|second| window.is_over(Duration::from_secs(second), second * 100))
            .collect();
        assert_eq!(over.iter().position(|over| *over), Some(10));
        assert_eq!((window.messages(), window.seconds()), (600, 6.0));
    }
}
