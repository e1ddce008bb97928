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
            None => runner::simulate(lesson, &[]),
        }
    }

    /// Simulates a lesson as [`simulate`](Self::simulate) does, in a network that also loses this packet of
    /// the timeline, from 0.
    ///
    /// # Errors
    /// [`LessonError`] if the script is invalid, or does not come to its end without the packet.
    ///
    /// ```
    /// use roce_lab::{Lesson, LessonRun};
    ///
    /// let lesson = Lesson::find("one-packet").unwrap();
    /// let run = LessonRun::simulate_losing(&lesson, 0).unwrap();
    /// assert!(run.timeline.packets[0].lost && run.timeline.packets[1].again);
    /// ```
    pub fn simulate_losing(lesson: &Lesson, packet: usize) -> Result<Self, LessonError> {
        runner::simulate(lesson, &[packet])
    }
}
