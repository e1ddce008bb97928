//! The run of a lesson.

mod runner;
mod text;

use std::collections::BTreeMap;
use std::ops::Range;

use roce_transport::Instant;

use crate::lesson::{Lesson, LessonError};
use crate::trial::{TrialPlot, TrialRun};
use roce_simnet::Timeline;

pub use text::TextOptions;

/// A completed run of a lesson.
///
/// ```
/// use roce_lab::{Lesson, LessonRun, TextOptions};
///
/// let lesson = Lesson::find("lost-packet").unwrap();
/// let run = LessonRun::simulate(&lesson).unwrap();
/// assert!(run.timeline.packets.iter().any(|packet| packet.lost));
/// let text = run.text(&TextOptions::default());
/// assert!(text.contains("retransmits from PSN"));
/// ```
#[derive(Clone, Debug)]
pub struct LessonRun {
    /// Lesson.
    pub lesson: Lesson,
    /// Packets and events.
    pub timeline: Timeline,
    /// Sections in order.
    pub sections: Vec<SectionRun>,
    /// Changes of the ranks' chunks; empty without a ring.
    pub chunks: Vec<ChunkState>,
    /// All trials, by name.
    pub trials: BTreeMap<String, TrialRun>,
}

/// The run of a section.
#[derive(Clone, Debug)]
pub struct SectionRun {
    /// Packets of the timeline that were sent in the section.
    pub packets: Range<usize>,
    /// Events of the timeline in the section.
    pub events: Range<usize>,
    /// End of the section.
    pub end: Instant,
    /// Inspections at the end of the section.
    pub shown: Vec<Inspection>,
    /// Plots of the section's trials.
    pub plots: Vec<TrialPlot>,
}

/// Result of an inspection at the end of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Title.
    pub title: String,
    /// Lines of text.
    pub lines: Vec<String>,
}

/// Value of a rank's chunk from a point in time on.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkState {
    /// Time of the change.
    pub at: Instant,
    /// Rank.
    pub rank: usize,
    /// Chunk.
    pub chunk: usize,
    /// First element of the chunk. Rank r contributes 10^r, so the digits show the ranks in the sum.
    pub value: f32,
}

impl LessonRun {
    /// Simulates a lesson in virtual time. The result is the same for every run, bit for bit.
    ///
    /// # Errors
    /// [`LessonError`] if the script of the lesson is invalid.
    pub fn simulate(lesson: &Lesson) -> Result<Self, LessonError> {
        runner::simulate(lesson)
    }
}
