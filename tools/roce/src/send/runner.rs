//! Runs steps.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use roce_dissect::{DisplayDuration, Filter};
use roce_generator::{Draft, PacketSource, SendStep, Step};
use roce_wire::MacAddr;

use super::captures::Captures;
use super::held_packet::HeldPacket;
use super::inbox::Inbox;
use super::log::{Log, Way};
use super::pace::Pace;
use super::port::Port;
use super::route::Route;
use super::steps::Steps;
use crate::dissect::color::Color;
use crate::error::{CliError, Result};

/// What runs the steps of a command or script.
#[derive(Debug)]
pub(super) struct Runner {
    to: Option<IpAddr>,
    route: Route,
    port: Option<Port>,
    log: Log,
    inbox: Inbox,
    captures: Captures,
    /// Packet that was expected last.
    expected: Option<HeldPacket>,
    sent: u64,
    /// Expectations so far.
    judged: usize,
}

/// Whether an expectation holds, and why.
type Verdict = Result<String, String>;

impl Runner {
    /// Creates the runner. `to` is the destination of packets of an opcode.
    pub(super) fn new(to: Option<IpAddr>, route: Route, log: Log) -> Self {
        Self {
            to,
            route,
            port: None,
            log,
            inbox: Inbox::default(),
            captures: Captures::default(),
            expected: None,
            sent: 0,
            judged: 0,
        }
    }

    /// Runs all steps, and returns how many expectations do not hold.
    pub(super) fn run_steps(&mut self, steps: &mut Steps) -> Result<usize> {
        let mut failed = 0;
        for index in 0..steps.len() {
            if let Some(title) = steps.title(index) {
                self.log.say(Color::Heading, &title)?;
            }
            let step = steps.step(index)?;
            let outcome = self.run(&step, steps);
            let told = |error| match error {
                CliError::Message(text) if steps.title(index).is_some() => {
                    CliError::new(format!("{}: {text}", steps.text(index)))
                }
                error => error,
            };
            let verdict = outcome.map_err(told)?;
            self.log.end_step()?;
            match verdict {
                None => {}
                Some(Ok(why)) => self.log.say(Color::Response, &format!("  ok: {why}"))?,
                Some(Err(why)) => {
                    failed += 1;
                    let what = match steps.title(index) {
                        Some(_) => String::new(),
                        None => format!("{}: ", steps.text(index)),
                    };
                    self.log.say(Color::Problem, &format!("  FAILED: {what}{why}"))?;
                }
            }
        }
        Ok(failed)
    }

    /// Says how it ended; fails if an expectation does not hold.
    pub(super) fn finish(&mut self, failed: usize) -> Result {
        if self.route.is_dry() {
            let line = format!("{}, none sent: a dry run", packets(self.sent));
            self.log.say(Color::Heading, &line)?;
            return self.log.finish();
        }
        let mut line = format!("{} sent, {} received", packets(self.sent), self.inbox.received());
        if self.inbox.forgotten() > 0 {
            let forgotten = self.inbox.forgotten();
            line += &format!(", of which no expectation saw {forgotten}: they were too many");
        }
        let judged = self.judged;
        line += &match failed {
            0 if judged == 0 => String::new(),
            0 if judged == 1 => "; the expectation holds".to_owned(),
            0 => format!("; all {judged} expectations hold"),
            _ => format!("; {failed} of {judged} expectations failed"),
        };
        let color = if failed > 0 { Color::Problem } else { Color::Heading };
        self.log.say(color, &line)?;
        self.log.finish()?;
        match failed {
            0 => Ok(()),
            _ => Err(CliError::Reported(1)),
        }
    }

    /// Opens the interface, which takes a while, before packets leave at a rate.
    pub(super) fn prepare(&mut self, to: IpAddr) -> Result {
        match self.route.is_dry() {
            true => Ok(()),
            false => self.open(Some(to)).map(drop),
        }
    }

    /// Returns the route.
    pub(super) fn route(&mut self) -> &mut Route {
        &mut self.route
    }

    /// Sends a packet, and takes what has come.
    pub(super) fn send(&mut self, draft: &mut Draft, to: Option<IpAddr>) -> Result {
        draft.finish();
        if !self.route.is_dry() {
            self.open(to)?.send(draft.bytes())?;
        }
        self.sent += 1;
        self.log.pass(Way::Sent, draft.bytes(), None, |_| {})?;
        self.receive()
    }

    /// Waits until a time, and takes what comes.
    pub(super) fn wait_until(&mut self, until: Instant) -> Result {
        while self.port.is_some() && Instant::now() < until {
            self.receive()?;
            self.wait(until)?;
        }
        self.receive()
    }

    /// Ends the lines of packets so far.
    pub(super) fn end_lines(&mut self) -> Result {
        self.log.end_step()
    }

    fn run(&mut self, step: &Step, steps: &mut Steps) -> Result<Option<Verdict>> {
        match step {
            Step::Let => Ok(None),
            Step::Send(step) => self.send_all(step).map(|()| None),
            Step::Wait(time) => {
                if !self.route.is_dry() {
                    self.open(self.to)?;
                }
                self.wait_until(Instant::now() + *time).map(|()| None)
            }
            Step::Expect { .. } | Step::Forbid { .. } if self.route.is_dry() => Ok(None),
            Step::Expect { filter, within } => {
                self.judged += 1;
                self.expect(filter, *within).map(Some)
            }
            Step::Forbid { filter, during } => {
                self.judged += 1;
                self.forbid(filter, *during).map(Some)
            }
            Step::Take { name, field } => {
                let no_packet = || CliError::new("no packet was expected before, or none came");
                let packet = self.expected.as_ref().ok_or_else(no_packet)?;
                let Some(variables) = steps.variables() else { return Ok(None) };
                let taken = packet.read(|packet| variables.take(name, packet, *field));
                let value = taken.unwrap_or_else(|| Err("the packet is gone".to_owned()));
                let value = value.map_err(CliError::new)?;
                self.log.say(Color::Dim, &format!("  {name} = {value}"))?;
                Ok(None)
            }
        }
    }

    /// Sends the packets of a step.
    fn send_all(&mut self, step: &SendStep) -> Result {
        let (mut draft, to) = self.draft(step)?;
        self.prepare(to)?;
        let pace = Pace::new(step.rate.unwrap_or(SendStep::DEFAULT_RATE));
        for index in 0..step.count {
            if index > 0 {
                draft.advance()?;
                if !self.route.is_dry() {
                    self.wait_until(pace.at(index))?;
                }
            }
            self.send(&mut draft, Some(to))?;
        }
        if step.count > 1 && !self.route.is_dry() {
            self.log.end_step()?;
            let line = pace.report(step.count);
            self.log.say(Color::Dim, &format!("  {line}"))?;
        }
        Ok(())
    }

    /// Returns the first packet of a step, and its destination.
    fn draft(&mut self, step: &SendStep) -> Result<(Draft, IpAddr)> {
        let to = step.to.or(self.to);
        let sets = |name| step.changes.iter().any(|change| change.field().name() == name);
        let (mut draft, to) = match &step.source {
            PacketSource::Opcode(opcode) => {
                let to = to.ok_or_else(|| {
                    CliError::new("a packet of an opcode needs a destination; name its address")
                })?;
                let outer = self.route.outer_headers(to)?;
                (Draft::of_opcode(*opcode, &step.payload, &outer)?, to)
            }
            PacketSource::Capture { file, frame } => {
                let mut draft = self.captures.draft(file, *frame)?;
                if let Some(to) = to {
                    let outer = self.route.outer_headers(to)?;
                    draft.set_addresses(outer.source, to).map_err(|error| {
                        CliError::context(format!("{file}, frame {frame}"), error)
                    })?;
                }
                let to = to.unwrap_or_else(|| draft.destination());
                (draft, to)
            }
        };
        let next_hop = match sets("ethernet.destination") {
            true => MacAddr([0; 6]),
            false => self.route.next_hop(to)?,
        };
        draft.set_macs(self.route.own_mac(to)?, next_hop);
        if step.has_wrong_icrc {
            draft.spoil_icrc();
        }
        draft.change(&step.changes)?;
        Ok((draft, to))
    }

    /// Waits for a packet that passes.
    fn expect(&mut self, filter: &Filter, within: Duration) -> Result<Verdict> {
        self.open(self.to)?;
        let (start, mut seen) = (Instant::now(), 0);
        loop {
            self.receive()?;
            if let Some(packet) = self.inbox.take(filter, seen) {
                let why = format!("packet {}", packet.number());
                self.expected = Some(packet);
                return Ok(Ok(why));
            }
            if start.elapsed() >= within {
                self.expected = None;
                let waiting = match self.inbox.len() {
                    0 => "none came".to_owned(),
                    waiting => format!("others came: {}", packets(waiting as u64)),
                };
                let within = DisplayDuration(within);
                return Ok(Err(format!("no such packet within {within}; {waiting}")));
            }
            seen = self.inbox.received();
            self.wait(start + within)?;
        }
    }

    /// Waits, and fails if a packet passes.
    fn forbid(&mut self, filter: &Filter, during: Duration) -> Result<Verdict> {
        self.open(self.to)?;
        let (start, mut seen) = (Instant::now(), 0);
        loop {
            self.receive()?;
            if let Some(packet) = self.inbox.first(filter, seen) {
                return Ok(Err(format!("packet {} is one", packet.number())));
            }
            if start.elapsed() >= during {
                return Ok(Ok(format!("none within {}", DisplayDuration(during))));
            }
            seen = self.inbox.received();
            self.wait(start + during)?;
        }
    }

    fn wait(&mut self, until: Instant) -> Result {
        self.log.flush()?;
        self.port.as_ref().map_or(Ok(()), |port| port.wait(until))
    }

    /// Takes what has come.
    fn receive(&mut self) -> Result {
        let (log, inbox) = (&mut self.log, &mut self.inbox);
        let Some(port) = &mut self.port else { return Ok(()) };
        let mut outcome = Ok(());
        port.receive(&mut |frame| {
            if outcome.is_ok() {
                outcome = log.pass(Way::Received, frame.bytes, frame.segment_len, |packet| {
                    inbox.push(packet);
                });
            }
        })?;
        outcome
    }

    /// Returns the interface, opened with the first packet.
    fn open(&mut self, to: Option<IpAddr>) -> Result<&mut Port> {
        let port = match self.port.take() {
            Some(port) => port,
            None => self.route.open(to)?,
        };
        Ok(self.port.insert(port))
    }
}

fn packets(count: u64) -> String {
    if count == 1 { "1 packet".to_owned() } else { format!("{count} packets") }
}
