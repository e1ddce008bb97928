//! The run of a lesson.

mod record;
mod replay;
mod runner;
mod text;

use crate::lesson::{Lesson, LessonError};

pub use record::{ChunkState, Inspection, LessonRun, SectionRun};
pub use text::TextOptions;

impl LessonRun {
    /// Simulates a lesson in virtual time, or replays its capture. The result is the same for every run,
    /// bit for bit.
    ///
    /// # Errors
    /// [`LessonError`] if the script of the lesson is invalid.
    pub fn simulate(lesson: &Lesson) -> Result<Self, LessonError> {
        match &lesson.capture {
            Some(capture) => replay::replay(lesson, capture),
            None => runner::simulate(lesson),
        }
    }
}
