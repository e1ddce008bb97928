//! The events of scripted faults of a process: kept, and appended to a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use super::{FaultEvent, FaultEventOf};
use crate::process::Own;

/// Most events of one rule that are kept and written one by one; later ones are where their number is a
/// power of two.
const MAX_EVENTS: u64 = 16;

/// The events of scripted faults of a process.
///
/// ```
/// let mut log = roce_io::FaultLog::open(None, Some(1));
/// for number in 1..=20 {
///     log.note(0, number, || "the call".to_owned(), None);
/// }
/// assert_eq!(log.events().len(), 16);
/// ```
#[derive(Debug)]
pub struct FaultLog {
    rank: Option<u32>,
    events: Vec<FaultEvent>,
    file: Option<Own<File>>,
}

impl FaultLog {
    /// Begins a log that appends to a file, if that exists.
    pub fn open(path: Option<&Path>, rank: Option<u32>) -> Self {
        Self { rank, events: Vec::new(), file: path.and_then(open_to_append) }
    }

    /// Notes event `number` of a rule: the first sixteen, and later ones whose number is a power of two.
    pub fn note(
        &mut self,
        rule: usize,
        number: u64,
        subject: impl FnOnce() -> String,
        obstacle: Option<String>,
    ) {
        if is_noted(number) {
            self.write(rule, number, FaultEventOf::Rule, subject(), obstacle);
        }
    }

    /// Notes what follows from a rule, as often as [`note`](Self::note) does, but each change of a link.
    pub fn note_of(
        &mut self,
        kind: FaultEventOf,
        rule: usize,
        number: u64,
        subject: impl FnOnce() -> String,
    ) {
        if matches!(kind, FaultEventOf::LinkDown | FaultEventOf::LinkUp) || is_noted(number) {
            self.write(rule, number, kind, subject(), None);
        }
    }

    fn write(
        &mut self,
        rule: usize,
        number: u64,
        kind: FaultEventOf,
        subject: String,
        obstacle: Option<String>,
    ) {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let process = std::process::id();
        let rank = self.rank;
        let event = FaultEvent { rule, number, time, process, rank, kind, subject, obstacle };
        if let Some(file) = &mut self.file {
            // One call, so that lines of several processes stay whole. Without the report the faults
            // happen all the same.
            let _written = file.write_all(format!("{event}\n").as_bytes());
        }
        if is_noted(number) {
            self.events.push(event);
        }
    }

    /// Returns the events that were noted.
    pub fn events(&self) -> &[FaultEvent] {
        &self.events
    }
}

/// Returns true if event `number` is one of those that are kept.
fn is_noted(number: u64) -> bool {
    number <= MAX_EVENTS || number.is_power_of_two()
}

/// Opens a file of a run to append lines. The command that reads it has made it.
pub(super) fn open_to_append(path: &Path) -> Option<Own<File>> {
    let mut options = OpenOptions::new();
    options.append(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    Own::make(|| options.open(path)).ok()
}
