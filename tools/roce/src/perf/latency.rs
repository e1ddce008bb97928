//! Latency: one outstanding message.

use std::time::{Duration, Instant};

use roce_verbs::{Completion, SendOperation};

use super::bandwidth::{MAX_SLEEP, MeasuredInterval, PeerCheck};
use super::control::{ControlChannel, PeerInfo};
use super::loss::Loss;
use super::params::{Params, Verb};
use super::resources::{Resources, SENT};
use super::result::{Row, SizeResult};
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
) -> Result<SizeResult> {
    let mut ping_pong = PingPong::new(end, theirs, params, size, control, true)?;
    let mut timer = RoundTimer::new(params);
    while timer.wants_more(ping_pong.sent) {
        ping_pong.send(ping_pong.sent + 1)?;
        let came = match params.verb {
            Verb::Send => ping_pong.wait_for_message()?,
            Verb::Write => ping_pong.wait_for_byte()?,
            Verb::Read | Verb::Atomic => ping_pong.wait_for_completions(0)?,
        };
        if !came {
            timer.leave_out_round();
        }
    }
    ping_pong.wait_for_completions(0)?;
    let parts = if matches!(params.verb, Verb::Send | Verb::Write) { 2 } else { 1 };
    let is_unreliable = params.connection.is_unreliable();
    let loss = is_unreliable.then_some(Loss { sent: ping_pong.sent, received: ping_pong.received });
    Ok(SizeResult { row: timer.row(size, parts)?, loss, places_used: 1 })
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
    let mut ping_pong = PingPong::new(end, theirs, params, size, control, false)?;
    while params.known_messages().is_none_or(|all| ping_pong.sent < all) {
        let came = match params.verb {
            Verb::Send => ping_pong.wait_for_message()?,
            _ => ping_pong.wait_for_byte()?,
        };
        if !came {
            break;
        }
        ping_pong.send(ping_pong.number)?;
    }
    ping_pong.wait_for_completions(0).map(drop)
}

/// Longest wait for a response that may be lost.
const MAX_ROUND: Duration = Duration::from_millis(500);

/// One end of the test.
struct PingPong<'a> {
    end: &'a Resources,
    params: &'a Params,
    size: u32,
    control: &'a mut ControlChannel,
    message: WorkRequest<'a>,
    idle: PeerCheck,
    is_client: bool,
    /// Number of the latest message, which a response repeats.
    number: u64,
    /// Time since which the client waits for a response, if that may be lost.
    waits_since: Option<Instant>,
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
        is_client: bool,
    ) -> Result<Self> {
        let all = params.known_messages().unwrap_or(u64::MAX);
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
            is_client,
            number: 0,
            waits_since: None,
            sent: 0,
            received: 0,
            in_flight: 0,
            to_post,
            due: 0,
            has_spare: to_begin_with > 1,
        })
    }

    /// Sends the next message, of this number.
    fn send(&mut self, number: u64) -> Result {
        // The queue is never full: a response implies that earlier messages have arrived.
        self.wait_for_completions(u64::from(self.params.tx_depth) - 1)?;
        self.sent += 1;
        self.number = number;
        self.waits_since = None;
        if self.params.verb == Verb::Write {
            // The peer polls its memory for this byte.
            self.end.memory.store_u8(self.size as usize - 1, number as u8)?;
        }
        self.in_flight += 1;
        let mut work = self.message.at(0, SENT, true);
        if self.params.connection.is_unreliable()
            && let SendOperation::Send { immediate, .. } = &mut work.operation
        {
            // A late response must not pass for that of the next message.
            *immediate = Some((number as u32).to_be_bytes());
        }
        self.end.post_send(0, [work].into_iter())?;
        // Send first: replacing a consumed receive is not urgent.
        let due = std::mem::take(&mut self.due);
        if due > 0 {
            self.end.post_receives(0, self.params, self.size, 0, due)?;
        }
        Ok(())
    }

    /// Waits for the peer's next message; false if that is lost, or the run has ended.
    fn wait_for_message(&mut self) -> Result<bool> {
        let expected = self.received + 1;
        while self.received < expected {
            match self.end.queue.poll_one() {
                Some(completion) => self.take(&completion)?,
                None if self.gives_up()? => return Ok(false),
                None => {}
            }
        }
        Ok(true)
    }

    /// Polls the last byte of this end's memory for the peer's next message; false if that is lost,
    /// or the run has ended.
    fn wait_for_byte(&mut self) -> Result<bool> {
        let place = self.end.half + self.size as usize - 1;
        let latest = self.number as u8;
        loop {
            let byte = self.end.memory.load_u8(place)?;
            if (byte == latest) == self.is_client {
                self.received += 1;
                self.number = if self.is_client { self.number } else { u64::from(byte) };
                return Ok(true);
            }
            match self.end.queue.poll_one() {
                Some(completion) => self.take(&completion)?,
                None if self.gives_up()? => return Ok(false),
                None => {}
            }
        }
    }

    /// Waits until at most `most` of this end's messages are incomplete.
    fn wait_for_completions(&mut self, most: u64) -> Result<bool> {
        while self.in_flight > most {
            match self.end.queue.poll_one() {
                Some(completion) => self.take(&completion)?,
                None => {
                    self.idle.note(self.end, self.control, None)?;
                }
            }
        }
        Ok(true)
    }

    /// Handles an empty poll. Returns true if the client has ended a run whose length the server does
    /// not know, or its message or the response is lost.
    fn gives_up(&mut self) -> Result<bool> {
        let is_unreliable = self.params.connection.is_unreliable();
        let wait = is_unreliable.then_some(MAX_SLEEP);
        let news = self.idle.note(self.end, self.control, wait)?;
        if self.is_client {
            return Ok(is_unreliable
                && self.idle.has_checked(self.end)
                && self.waits_since.get_or_insert_with(Instant::now).elapsed() > MAX_ROUND);
        }
        Ok(news && self.params.known_messages().is_none())
    }

    fn take(&mut self, completion: &Completion) -> Result {
        succeeded(completion)?;
        if completion.wr_id & SENT != 0 {
            self.in_flight -= 1;
            return Ok(());
        }
        if let (true, Some(number)) = (self.params.connection.is_unreliable(), completion.immediate)
        {
            if self.is_client && u32::from_be_bytes(number) != self.number as u32 {
                self.repost()?;
                return Ok(());
            }
            self.number = u64::from(u32::from_be_bytes(number));
        }
        self.received += 1;
        self.repost()
    }

    /// Replaces a receive that was used.
    fn repost(&mut self) -> Result {
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
    /// Positions of the rounds that are left out.
    left_out: Vec<usize>,
    /// Number of rounds.
    rounds: usize,
}

impl RoundTimer {
    fn new(params: &Params) -> Self {
        let window = params.duration.map(|seconds| MeasuredInterval::new(seconds, params.margin));
        let start = Instant::now();
        let (posted, left_out) = (Vec::new(), Vec::new());
        Self { start, iterations: params.iterations, window, posted, left_out, rounds: 0 }
    }

    /// Leaves the latest round out, which had no end.
    fn leave_out_round(&mut self) {
        self.left_out.push(self.rounds - 1);
    }

    /// Returns true if another round begins now, after `played` rounds.
    fn wants_more(&mut self, played: u64) -> bool {
        let now = self.start.elapsed();
        self.rounds = played as usize + 1; // below the number of nanoseconds in the run
        if let Some(window) = &mut self.window {
            return !window.is_over(now, played - self.left_out.len() as u64);
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
        let mut left_out = self.left_out.iter().peekable();
        let rounds = self
            .posted
            .windows(2)
            .enumerate()
            .filter(|(round, _)| left_out.next_if(|it| *it == round).is_none())
            .map(|(_, pair)| pair[1] - pair[0])
            .collect();
        let latency = Latency::of(rounds, parts)
            .ok_or_else(|| CliError::new("too few round trips for statistics: raise -n"))?;
        Ok(Row::Latency { size, iterations: self.iterations, latency })
    }
}
