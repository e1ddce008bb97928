//! Latency: one outstanding message.

use std::time::{Duration, Instant};

use roce_verbs::Completion;

use super::bandwidth::{MeasuredInterval, PeerCheck};
use super::control::{ControlChannel, PeerInfo};
use super::params::{Params, Verb};
use super::report::Row;
use super::resources::{Resources, SENT};
use super::statistics::Latency;
use super::work_request::WorkRequest;
use crate::error::{CliError, Result};
use crate::status::succeeded;

/// Runs the client, which begins each round and measures.
pub(crate) fn initiate(
    end: &Resources,
    theirs: &PeerInfo,
    params: &Params,
    size: u32,
    control: &mut ControlChannel,
) -> Result<Row> {
    let mut ping_pong = PingPong::new(end, theirs, params, size, control)?;
    let mut timer = RoundTimer::new(params);
    while timer.wants_more(ping_pong.sent) {
        ping_pong.send_next()?;
        match params.verb {
            Verb::Send => ping_pong.wait_for_message()?,
            Verb::Write => ping_pong.wait_for_byte()?,
            Verb::Read | Verb::Atomic => ping_pong.wait_for_completions(0)?,
        };
    }
    ping_pong.wait_for_completions(0)?;
    let parts = if matches!(params.verb, Verb::Send | Verb::Write) { 2 } else { 1 };
    timer.row(size, parts)
}

/// Runs the server, which returns each message; does nothing for read and atomic.
pub(crate) fn serve(
    end: &Resources,
    theirs: &PeerInfo,
    params: &Params,
    size: u32,
    control: &mut ControlChannel,
) -> Result {
    if matches!(params.verb, Verb::Read | Verb::Atomic) {
        return Ok(());
    }
    let mut ping_pong = PingPong::new(end, theirs, params, size, control)?;
    while params.duration.is_some() || ping_pong.sent < params.iterations {
        let came = match params.verb {
            Verb::Send => ping_pong.wait_for_message()?,
            _ => ping_pong.wait_for_byte()?,
        };
        if !came {
            break;
        }
        ping_pong.send_next()?;
    }
    ping_pong.wait_for_completions(0).map(drop)
}

/// One end of the test.
struct PingPong<'a> {
    end: &'a Resources,
    params: &'a Params,
    size: u32,
    control: &'a mut ControlChannel,
    message: WorkRequest<'a>,
    idle: PeerCheck,
    sent: u64,
    received: u64,
    /// This end's incomplete messages.
    in_flight: u64,
    /// Receives not posted yet.
    to_post: u64,
    /// Receives to post after the next message.
    due: u64,
    /// True if more than one receive is kept posted.
    has_spare: bool,
}

impl<'a> PingPong<'a> {
    fn new(
        end: &'a Resources,
        theirs: &PeerInfo,
        params: &'a Params,
        size: u32,
        control: &'a mut ControlChannel,
    ) -> Result<Self> {
        let all = if params.duration.is_some() { u64::MAX } else { params.iterations };
        let message = end.message(params, theirs, size)?;
        let to_begin_with = end.initial_receives(params);
        let to_post = all - to_begin_with;
        let idle = PeerCheck::default();
        Ok(Self {
            end,
            params,
            size,
            control,
            message,
            idle,
            sent: 0,
            received: 0,
            in_flight: 0,
            to_post,
            due: 0,
            has_spare: to_begin_with > 1,
        })
    }

    /// Sends the next message.
    fn send_next(&mut self) -> Result {
        // The queue is never full: a response implies that earlier messages have arrived.
        self.wait_for_completions(u64::from(self.params.tx_depth) - 1)?;
        self.sent += 1;
        if self.params.verb == Verb::Write {
            // The peer polls its memory for this byte.
            self.end.memory.store_u8(self.size as usize - 1, self.sent as u8)?;
        }
        self.in_flight += 1;
        self.end.qps[0].post_send([self.message.at(0, SENT, true)])?;
        // Send first: replacing a consumed receive is not urgent.
        let due = std::mem::take(&mut self.due);
        if due > 0 {
            self.end.post_receives(0, self.params, self.size, 0, due)?;
        }
        Ok(())
    }

    /// Waits for the peer's next message; false if the run has ended.
    fn wait_for_message(&mut self) -> Result<bool> {
        let expected = self.received + 1;
        while self.received < expected {
            match self.end.queue.poll_one() {
                Some(completion) => self.take(&completion)?,
                None if self.is_over()? => return Ok(false),
                None => {}
            }
        }
        Ok(true)
    }

    /// Polls the last byte of this end's memory for the peer's next message; false if the run has
    /// ended.
    fn wait_for_byte(&mut self) -> Result<bool> {
        self.received += 1;
        let place = self.end.half + self.size as usize - 1;
        while self.end.memory.load_u8(place)? != self.received as u8 {
            match self.end.queue.poll_one() {
                Some(completion) => self.take(&completion)?,
                None if self.is_over()? => return Ok(false),
                None => {}
            }
        }
        Ok(true)
    }

    /// Waits until at most `most` of this end's messages are incomplete.
    fn wait_for_completions(&mut self, most: u64) -> Result<bool> {
        while self.in_flight > most {
            match self.end.queue.poll_one() {
                Some(completion) => self.take(&completion)?,
                None => {
                    self.idle.note(self.end, self.control)?;
                }
            }
        }
        Ok(true)
    }

    /// Returns true if the peer has ended a run over time.
    fn is_over(&mut self) -> Result<bool> {
        let news = self.idle.note(self.end, self.control)?;
        Ok(news && self.params.duration.is_some())
    }

    fn take(&mut self, completion: &Completion) -> Result {
        succeeded(completion)?;
        if completion.wr_id & SENT != 0 {
            self.in_flight -= 1;
            return Ok(());
        }
        self.received += 1;
        if self.to_post > 0 {
            self.to_post -= 1;
            if self.has_spare {
                self.due += 1;
            } else {
                self.end.post_receives(0, self.params, self.size, 0, 1)?;
            }
        }
        Ok(())
    }
}

/// Measures the time of each round.
struct RoundTimer {
    start: Instant,
    iterations: u64,
    window: Option<MeasuredInterval>,
    /// Times of the posts, if the number of messages is given.
    posted: Vec<Duration>,
}

impl RoundTimer {
    fn new(params: &Params) -> Self {
        let window = params.duration.map(|seconds| MeasuredInterval::new(seconds, params.margin));
        let start = Instant::now();
        Self { start, iterations: params.iterations, window, posted: Vec::new() }
    }

    /// Returns true if another round begins now, after `played` rounds.
    fn wants_more(&mut self, played: u64) -> bool {
        let now = self.start.elapsed();
        if let Some(window) = &mut self.window {
            return !window.is_over(now, played);
        }
        if played < self.iterations {
            self.posted.push(now);
        }
        played < self.iterations
    }

    fn row(self, size: u32, parts: u32) -> Result<Row> {
        if let Some(window) = self.window {
            let (iterations, seconds) = (window.messages(), window.seconds());
            let average = seconds * 1e6 / f64::from(parts) / iterations.max(1) as f64;
            let rate = iterations as f64 / seconds;
            return Ok(Row::LatencyOverTime { size, iterations, average, rate });
        }
        let rounds = self.posted.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let latency = Latency::of(rounds, parts)
            .ok_or_else(|| CliError::new("too few messages for statistics: raise -n"))?;
        Ok(Row::Latency { size, iterations: self.iterations, latency })
    }
}
