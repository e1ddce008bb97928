//! When the processes of a run completed requests and sent packets, as lines of a file.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use super::clock;
use super::log::open_to_append;
use crate::process::Own;

/// Something that a rank did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// The rank.
    pub rank: u32,
    /// What it did.
    pub kind: ActivityKind,
    /// Time since the beginning of the run.
    pub time: Duration,
}

/// What a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActivityKind {
    /// A request or a receive completed with success.
    Completed,
    /// A packet left on a rail.
    Sent(u32),
    /// A packet for a rail met a fault that loses it.
    Lost(u32),
}

impl fmt::Display for Activity {
    /// Writes a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, rail) = match self.kind {
            ActivityKind::Completed => ("completed", 0),
            ActivityKind::Sent(rail) => ("sent", rail),
            ActivityKind::Lost(rail) => ("lost", rail),
        };
        write!(f, "{} {name} {rail} {}", self.rank, self.time.as_micros())
    }
}

impl Activity {
    /// Reads a line; `None` if it is none.
    ///
    /// ```
    /// let line = "1 sent 0 1500000";
    /// let activity = roce_io::Activity::parse(line).unwrap();
    /// assert_eq!(activity.kind, roce_io::ActivityKind::Sent(0));
    /// assert_eq!(activity.to_string(), line);
    /// ```
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let rank = words.next()?.parse().ok()?;
        let name = words.next()?;
        let rail = words.next()?.parse().ok()?;
        let time = Duration::from_micros(words.next()?.parse().ok()?);
        let kind = match name {
            "completed" => ActivityKind::Completed,
            "sent" => ActivityKind::Sent(rail),
            "lost" => ActivityKind::Lost(rail),
            _ => return None,
        };
        words.next().is_none().then_some(Self { rank, kind, time })
    }
}

/// Time in which a process writes one line of each kind.
const ACTIVITY_INTERVAL: Duration = Duration::from_millis(10);

/// Most kinds that are told from one another: rails have few numbers.
const MAX_KINDS: usize = 64;

/// Appends what this process does to a file.
#[derive(Debug)]
pub struct ActivityLog {
    file: Own<File>,
    began: Instant,
    rank: u32,
    /// When each kind was written the last time.
    last: Vec<(ActivityKind, Instant)>,
}

impl ActivityLog {
    /// Opens a file that exists. Times count from `began`: see
    /// [`FaultConfig::began`](super::FaultConfig::began).
    pub fn open(path: &Path, rank: Option<u32>, began: Option<Duration>) -> Option<Self> {
        let file = open_to_append(path)?;
        let (began, rank) = (clock::since(began), rank.unwrap_or(0));
        Some(Self { file, began, rank, last: Vec::new() })
    }

    /// Notes what happens now: the first of a kind in 10 milliseconds.
    pub fn note(&mut self, kind: ActivityKind, now: Instant) {
        let is_full = self.last.len() >= MAX_KINDS;
        match self.last.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, last)) if now.saturating_duration_since(*last) < ACTIVITY_INTERVAL => return,
            Some((_, last)) => *last = now,
            None if is_full => return,
            None => self.last.push((kind, now)),
        }
        let time = now.saturating_duration_since(self.began);
        let activity = Activity { rank: self.rank, kind, time };
        // One call, so that lines of several processes stay whole. What is not written was not seen.
        let _written = self.file.write_all(format!("{activity}\n").as_bytes());
    }
}
