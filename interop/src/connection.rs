//! Two ends, connected: what most cases begin with.

use std::time::{Duration, Instant};

use super::fault::{expect, expect_equal};
use super::params::{
    ALL_RIGHTS, ConnectionParams, Operation, PAGED_RIGHTS, Pair, Post, Queue, Region, WaitMode,
    WorkCompletion,
};
use super::{Agent, Fault, pattern};

/// A requester and a responder, each with a queue pair and a region.
#[derive(Debug)]
pub struct Connection {
    /// The end that posts operations.
    pub requester: Side,
    /// The end that they are done to.
    pub responder: Side,
    /// What both settled.
    pub settings: ConnectionParams,
}

/// One end with what it made for a connection.
#[derive(Debug)]
pub struct Side {
    /// The program that owns this end.
    pub agent: Agent,
    /// Its queue pair.
    pub pair: Pair,
    /// Its region, with all rights: a page, [`ConnectionParams::largest`] bytes from [`BASE`] on, a page.
    pub region: Region,
}

/// Where messages begin in a region.
pub const BASE: u64 = MARGIN as u64;
/// Bytes before and behind messages.
const MARGIN: usize = 4096;
/// How many bytes on each side of a message are watched for change.
const GUARD: usize = 64;

impl Connection {
    /// Registers and connects.
    ///
    /// # Errors
    /// When an end refuses.
    pub fn new(
        requester: Agent,
        responder: Agent,
        settings: ConnectionParams,
    ) -> Result<Self, Fault> {
        let mut requester = Side::new(requester, &settings)?;
        let mut responder = Side::new(responder, &settings)?;
        requester.agent.connect(requester.pair.handle, &responder.pair.dest, &settings)?;
        responder.agent.connect(responder.pair.handle, &requester.pair.dest, &settings)?;
        Ok(Self { requester, responder, settings })
    }

    /// Connects two new pairs in place of the old ones.
    ///
    /// # Errors
    /// When an end refuses.
    pub fn renew(&mut self) -> Result<(), Fault> {
        self.requester.pair = self.requester.agent.pair(&self.settings)?;
        self.responder.pair = self.responder.agent.pair(&self.settings)?;
        let (mine, theirs) = (self.requester.pair, self.responder.pair);
        self.requester.agent.connect(mine.handle, &theirs.dest, &self.settings)?;
        self.responder.agent.connect(theirs.handle, &mine.dest, &self.settings)
    }
}

impl Side {
    fn new(mut agent: Agent, settings: &ConnectionParams) -> Result<Self, Fault> {
        let rights = match agent.name() {
            "rxe" if settings.rxe_pages => PAGED_RIGHTS,
            _ if settings.newer => Operation::Flush.all_rights(),
            _ => ALL_RIGHTS,
        };
        let region = agent.register(settings.largest + 2 * MARGIN, rights)?;
        let pair = agent.pair(settings)?;
        Ok(Self { agent, pair, region })
    }

    /// Posts sends.
    ///
    /// # Errors
    /// When the end refuses.
    pub fn post(&mut self, post: &Post) -> Result<(), Fault> {
        self.agent.post(self.pair.handle, post)
    }

    /// Posts `count` receives of `len` bytes from [`BASE`] on.
    ///
    /// # Errors
    /// When the end refuses.
    pub fn receive(&mut self, len: usize, count: usize) -> Result<(), Fault> {
        self.agent.receive(self.pair.handle, self.region.handle, BASE, len, count)
    }

    /// Waits for `count` completions, whatever their status.
    ///
    /// # Errors
    /// [`Fault::TooFew`].
    pub fn completions(
        &mut self,
        queue: Queue,
        count: usize,
    ) -> Result<Vec<WorkCompletion>, Fault> {
        self.agent.wait(self.pair.handle, queue, count, WaitMode::Poll, COMPLETION_LIMIT)
    }

    /// Waits for `count` completions of a post, which must be successes, in order, and all.
    ///
    /// # Errors
    /// When they are not.
    pub fn successes(
        &mut self,
        queue: Queue,
        count: usize,
        wait_mode: WaitMode,
    ) -> Result<Vec<WorkCompletion>, Fault> {
        let done = self.agent.wait(self.pair.handle, queue, count, wait_mode, COMPLETION_LIMIT)?;
        let name = self.agent.name();
        for (index, done) in done.iter().enumerate() {
            expect_equal(format!("{name}: status of {queue:?} {index}"), done.status, 0)?;
            expect_equal(format!("{name}: number of {queue:?} {index}"), done.id, index as u64)?;
        }
        Ok(done)
    }

    /// Makes sure that no completion is there.
    ///
    /// # Errors
    /// When there is one.
    pub fn nothing_more(&mut self, queue: Queue) -> Result<(), Fault> {
        match self.agent.wait(self.pair.handle, queue, 1, WaitMode::Poll, Duration::ZERO) {
            Err(Fault::TooFew { .. }) => Ok(()),
            Err(fault) => Err(fault),
            Ok(done) => Err(Fault::Wrong(format!(
                "{}: one completion too many: {done:?}",
                self.agent.name()
            ))),
        }
    }

    /// Lays out `len` bytes to be sent from [`BASE`] on.
    ///
    /// # Errors
    /// When the end is gone.
    pub fn lay_out(&mut self, len: usize, seed: u64) -> Result<(), Fault> {
        self.agent.fill(self.region.handle, BASE, len, seed)
    }

    /// Fills the place for `len` bytes, and a little around it, with something else.
    ///
    /// # Errors
    /// When the end is gone.
    pub fn prepare_place(&mut self, len: usize) -> Result<(), Fault> {
        let (offset, len) = watched(len);
        self.agent.fill(self.region.handle, offset, len, PLACE_SEED)
    }

    /// Compares a prepared place: the bytes laid out elsewhere with `seed`, and around them no
    /// change. Without a seed nothing may have changed at all.
    ///
    /// # Errors
    /// When it is not so.
    pub fn check_place(&mut self, len: usize, seed: Option<u64>) -> Result<(), Fault> {
        let (offset, all) = watched(len);
        let mut expected = pattern::bytes(PLACE_SEED, all);
        if let Some(seed) = seed {
            expected[GUARD..GUARD + len].copy_from_slice(&pattern::bytes(seed, len));
        }
        let is = self.agent.checksum(self.region.handle, offset, all)?;
        expect(is == pattern::checksum(&expected), || {
            let what = if seed.is_some() { "arrived whole and alone" } else { "stayed untouched" };
            format!("{}: the {len} bytes have not {what}", self.agent.name())
        })
    }

    /// As [`check_place`](Self::check_place), where `header` bytes in front of the message may be
    /// anything.
    ///
    /// # Errors
    /// When it is not so.
    pub fn check_place_behind(
        &mut self,
        header: usize,
        len: usize,
        seed: u64,
    ) -> Result<(), Fault> {
        let (offset, all) = watched(header + len);
        let mut expected = pattern::bytes(PLACE_SEED, all);
        let message = GUARD + header;
        expected[message..message + len].copy_from_slice(&pattern::bytes(seed, len));
        for range in [0..GUARD, message..all] {
            let at = offset + range.start as u64;
            let is = self.agent.checksum(self.region.handle, at, range.len())?;
            expect(is == pattern::checksum(&expected[range]), || {
                format!("{}: the {len} bytes have not arrived whole and alone", self.agent.name())
            })?;
        }
        Ok(())
    }

    /// Waits until a counter of the device is above `past`.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn counter_above(&mut self, name: &str, past: u64) -> Result<(), Fault> {
        let deadline = Instant::now() + COMPLETION_LIMIT;
        while self.agent.counter(name)? <= past {
            expect(Instant::now() < deadline, || {
                format!("{}: the counter {name} stays at {past}", self.agent.name())
            })?;
        }
        Ok(())
    }

    /// Makes sure that the queue pair is in a state.
    ///
    /// # Errors
    /// When it is in another.
    pub fn expect_state(&mut self, state: &str) -> Result<(), Fault> {
        let is = self.agent.state(self.pair.handle)?;
        expect_equal(format!("{}: state", self.agent.name()), is.as_str(), state)
    }
}

/// Offset and length of a place for `len` bytes with what is watched around it.
fn watched(len: usize) -> (u64, usize) {
    (BASE - GUARD as u64, len + 2 * GUARD)
}

const PLACE_SEED: u64 = 0xb1a7;

/// How long completions may take: beyond any retry that is meant to succeed.
pub const COMPLETION_LIMIT: Duration = Duration::from_secs(30);
