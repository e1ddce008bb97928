//! Runner of lesson scripts.

mod build;
mod inspect;
mod perform;
mod trials;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use roce_ring::chunk_of;
use roce_transport::SrqHandle;

use super::record::{ChunkState, LessonRun, SectionRun};
use crate::lesson::{Lesson, LessonError, Until};
use crate::ring::Ring;
use crate::trial::TrialRun;
use roce_simnet::{Connection, End, Region, World};

/// Runs a lesson in a network that also loses some packets of the timeline.
pub(super) fn simulate(lesson: &Lesson, lost: &[usize]) -> Result<LessonRun, LessonError> {
    let mut runner = Runner::build(lesson, lost)?;
    let mut sections = Vec::new();
    for (place, section) in lesson.section.iter().enumerate() {
        runner.section = place + 1;
        let (packets, events) = runner.timeline_len();
        for action in &section.actions {
            runner.perform(action)?;
        }
        runner.run_until(&section.until)?;
        runner.run_trials(section)?;
        let shown =
            section.show.iter().map(|inspect| runner.inspect(inspect)).collect::<Result<_, _>>()?;
        let (packets_end, events_end) = runner.timeline_len();
        sections.push(SectionRun {
            packets: packets..packets_end,
            events: events..events_end,
            end: runner.world.now(),
            shown,
            plots: runner.plots(section)?,
        });
        runner.check(section)?;
    }
    let mut lesson = lesson.clone();
    runner.fill(&mut lesson)?;
    Ok(LessonRun {
        lesson,
        timeline: runner.world.into_timeline(),
        sections,
        chunks: runner.chunks,
        trials: runner.trials,
    })
}

/// A world with the names of the script.
struct Runner {
    world: World,
    /// Connections of the first two hosts.
    connections: Vec<Connection>,
    /// The shared receive queue of the second host.
    srq: Option<SrqHandle>,
    ring: Option<Ring>,
    /// Elements of the ring's vector.
    elements: u64,
    /// Changes of the ring's chunks.
    chunks: Vec<ChunkState>,
    regions: HashMap<String, (usize, Region)>,
    /// The lesson's fabric.
    fabric: toml::Table,
    /// That of the section.
    section_fabric: toml::Table,
    /// Trials so far.
    trials: BTreeMap<String, TrialRun>,
    /// Names of the section's trials.
    section_trials: Vec<String>,
    /// Number of the last work request.
    work: u64,
    /// Current section, for error messages.
    section: usize,
}

/// Maximum number of steps of a section.
const MAX_STEPS: usize = 1_000_000;

impl Runner {
    /// Returns the number of packets and events so far.
    fn timeline_len(&self) -> (usize, usize) {
        let timeline = self.world.timeline();
        (timeline.packets.len(), timeline.events.len())
    }

    fn unknown(&self, what: &'static str, name: &str) -> LessonError {
        LessonError::Unknown { section: self.section, what, name: name.to_owned() }
    }

    fn refused(&self, why: impl ToString) -> LessonError {
        LessonError::Refused { section: self.section, why: why.to_string() }
    }

    fn region(&self, name: &str) -> Result<(usize, Region), LessonError> {
        self.regions.get(name).copied().ok_or_else(|| self.unknown("region", name))
    }

    fn host(&self, name: &str) -> Result<usize, LessonError> {
        place_of(&self.world, name, self.section)
    }

    /// Returns the first queue pair of this host and its side of the connection.
    fn end(&self, name: &str) -> Result<(End, usize), LessonError> {
        let (connection, side) = self.end_of(name, 1)?;
        Ok((connection.ends[side], side))
    }

    /// Returns the connection of this host with a number from 1, and the host's side of it.
    fn end_of(&self, name: &str, pair: usize) -> Result<(Connection, usize), LessonError> {
        let host = self.host(name)?;
        let connection = pair.checked_sub(1).and_then(|place| self.connections.get(place));
        let side = connection.and_then(|it| it.ends.iter().position(|end| end.host == host));
        match (connection, side) {
            (Some(connection), Some(side)) => Ok((*connection, side)),
            _ => Err(self.unknown("connected host", name)),
        }
    }

    fn next_work(&mut self) -> u64 {
        self.work += 1;
        self.work
    }

    fn run_until(&mut self, until: &Until) -> Result<(), LessonError> {
        let (sent, events) = self.timeline_len();
        if let Some(span) = until.time {
            let end = self.world.now() + span.duration();
            self.world.run_until(end);
            return Ok(());
        }
        let settled = self.settled();
        let waits_for_rest = until.step.is_none()
            && until.sent.is_none()
            && until.settled.is_none()
            && until.event.is_none();
        for _ in 0..MAX_STEPS {
            let timeline = self.world.timeline();
            let is_over = until.sent.is_some_and(|count| timeline.packets.len() >= sent + count)
                || until.settled.is_some_and(|count| self.settled() >= settled + count)
                || until.event.as_ref().is_some_and(|words| {
                    let news = &timeline.events[events..];
                    news.iter().any(|event| event.kind.to_string().contains(words.as_str()))
                })
                || until.step.is_some_and(|steps| self.ring_steps() >= steps)
                || (waits_for_rest && self.world.is_at_rest());
            if is_over {
                return Ok(());
            }
            if !self.step()? {
                return Err(self.never_happens(until.to_string()));
            }
        }
        Err(self.never_happens("rest".to_owned()))
    }

    /// Advances by one step. Returns false if nothing more will happen.
    fn step(&mut self) -> Result<bool, LessonError> {
        let went_on = self.world.step();
        if let Some(ring) = &mut self.ring {
            let turned = ring.progress(&mut self.world);
            let refused = |why: crate::RingError| LessonError::Refused {
                section: self.section,
                why: why.to_string(),
            };
            turned.map_err(refused)?;
            self.record_chunks();
        }
        Ok(went_on)
    }

    /// Returns the number of steps that all ranks have completed.
    fn ring_steps(&self) -> u32 {
        let ring = self.ring.as_ref();
        let steps =
            |ring: &Ring| (0..self.world.hosts.len()).map(|rank| ring.steps_done(rank)).min();
        ring.and_then(steps).unwrap_or(0)
    }

    /// Returns the first element of each chunk of a rank.
    fn chunks_of(&self, rank: usize) -> Vec<f32> {
        let Some(ring) = &self.ring else { return Vec::new() };
        let bytes = self.world.hosts[rank].memory.bytes(ring.buffer(rank));
        let size = self.world.hosts.len() as u32;
        let first = |chunk| chunk_of(self.elements, size, chunk).start as usize * size_of::<f32>();
        (0..size)
            .filter_map(|chunk| bytes.get(first(chunk)..)?.first_chunk())
            .map(|word| f32::from_ne_bytes(*word))
            .collect()
    }

    /// Notes which chunks have changed.
    fn record_chunks(&mut self) {
        if self.ring.is_none() {
            return;
        }
        let at = self.world.now();
        for rank in 0..self.world.hosts.len() {
            for (chunk, value) in self.chunks_of(rank).into_iter().enumerate() {
                let known =
                    self.chunks.iter().rev().find(|it| it.rank == rank && it.chunk == chunk);
                if known.is_none_or(|it| it.value != value) {
                    self.chunks.push(ChunkState { at, rank, chunk, value });
                }
            }
        }
    }

    fn never_happens(&self, what: String) -> LessonError {
        LessonError::NeverHappens { section: self.section, what }
    }

    /// Returns the number of packets that have arrived or are lost.
    fn settled(&self) -> usize {
        let packets = self.world.timeline().packets.iter();
        packets.filter(|packet| packet.lost || !packet.arrivals.is_empty()).count()
    }
}

fn place_of(world: &World, name: &str, section: usize) -> Result<usize, LessonError> {
    world.hosts.iter().position(|host| host.name == name).ok_or_else(|| LessonError::Unknown {
        section,
        what: "host",
        name: name.to_owned(),
    })
}

fn out_of_range(what: &'static str, value: impl ToString) -> LessonError {
    LessonError::OutOfRange { what, value: value.to_string() }
}

fn attributes_in_words(attributes: &roce_transport::QpAttributes) -> Vec<String> {
    let mut words = Vec::new();
    if attributes.access.is_some() {
        words.push("remote access rights".to_owned());
    }
    if let Some(path) = attributes.path {
        words.push(format!("peer address {}", path.remote));
    }
    if let Some(qpn) = attributes.dest_qpn {
        words.push(format!("peer queue pair {:#x}", qpn.get()));
    }
    if let Some(psn) = attributes.rq_psn {
        words.push(format!("expected PSN {}", psn.get()));
    }
    if let Some(mtu) = attributes.path_mtu {
        words.push(format!("path MTU {mtu}"));
    }
    if let Some(timer) = attributes.min_rnr_timer {
        words.push(format!("RNR wait {:?}", timer.duration()));
    }
    if let Some(psn) = attributes.sq_psn {
        words.push(format!("first PSN {}", psn.get()));
    }
    if let Some(timeout) = attributes.ack_timeout {
        let wait = timeout.duration().unwrap_or(Duration::MAX);
        words.push(format!("ACK timeout {wait:?}"));
    }
    if let Some(count) = attributes.retry_count {
        words.push(format!("{count} retries"));
    }
    words
}
