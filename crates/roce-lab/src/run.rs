//! A lesson that has happened: what was said, and what was seen in between.

mod runner;
mod text;

use std::ops::Range;

use roce_transport::Instant;

use crate::lesson::{Lesson, LessonError};
use crate::timeline::Timeline;

pub use text::TextOptions;

/// A lesson that has happened.
///
/// ```
/// use roce_lab::{Lesson, LessonRun, TextOptions};
///
/// let lesson = Lesson::find("lost-packet").unwrap();
/// let run = LessonRun::simulate(&lesson).unwrap();
/// assert!(run.timeline.packets.iter().any(|packet| packet.lost));
/// let text = run.text(&TextOptions::default());
/// assert!(text.contains("goes back to PSN"));
/// ```
#[derive(Clone, Debug)]
pub struct LessonRun {
    /// What was played.
    pub lesson: Lesson,
    /// All that happened.
    pub timeline: Timeline,
    /// The moments in order.
    pub sections: Vec<SectionRun>,
    /// For a ring: what the ranks had in their chunks, whenever that changed.
    pub chunks: Vec<ChunkState>,
}

/// One moment, as it went.
#[derive(Clone, Debug)]
pub struct SectionRun {
    /// Which packets of the timeline left in it.
    pub packets: Range<usize>,
    /// Which events of the timeline are of it.
    pub events: Range<usize>,
    /// When it was over.
    pub end: Instant,
    /// What was shown at its end.
    pub shown: Vec<Inspection>,
}

/// Something shown at the end of a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// What it is.
    pub title: String,
    /// The thing itself.
    pub lines: Vec<String>,
}

/// What one rank of a ring has in one chunk, from some moment on.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkState {
    /// Since when.
    pub at: Instant,
    /// Whose.
    pub rank: usize,
    /// Which chunk.
    pub chunk: usize,
    /// Its first element: rank r contributes 10 to the power of r, so the digits tell who is in.
    pub value: f32,
}

impl LessonRun {
    /// Plays a lesson in virtual time. The same lesson gives the same story, bit for bit.
    ///
    /// # Errors
    /// The lesson's script is wrong.
    pub fn simulate(lesson: &Lesson) -> Result<Self, LessonError> {
        runner::simulate(lesson)
    }
}
