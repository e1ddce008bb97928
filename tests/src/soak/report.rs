//! Reports of the processes to the controller, one line of JSON each.

use serde::{Deserialize, Serialize};

use super::resources::Resources;

/// A line of a survivor or a peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// The survivor listens; its device has this back end.
    Ready { backend: String },
    /// Each second: the survivor's pairs and what the process holds.
    State { pairs: Vec<PairState>, resources: Resources },
    /// A violation.
    Violation(String),
    /// The survivor has closed everything: before its device was opened, and after it was closed.
    Closed { before: Resources, after: Resources },
}

/// One pair, as its survivor sees it; counted from the start of the survivor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PairState {
    pub(super) pair: u32,
    /// Number of connections.
    pub(super) connections: u64,
    /// Operations of this connection that were completed and checked, in both directions.
    pub(super) operations_now: u64,
    /// The same of all connections.
    pub(super) operations: u64,
    /// Their payload.
    pub(super) bytes: u64,
    /// Requests that ended with an error or were flushed, since the peer was dead.
    pub(super) failed: u64,
    /// The longest time from posting to completion, in microseconds.
    pub(super) longest: u64,
    /// The longest time for which the thread of the pair waited for a processor between two looks
    /// at its completions, in microseconds.
    pub(super) starved: u64,
    /// When that was, in seconds since the survivor started.
    pub(super) starved_at: u64,
}

impl Report {
    /// Prints the line.
    pub(super) fn tell(&self) {
        use std::io::Write;
        let text = serde_json::to_string(self).expect("numbers and text have a JSON form");
        // Whole, as several threads print; a controller that is gone needs no report.
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }
}
