//! What a run of a lesson has.

use std::collections::BTreeMap;
use std::ops::Range;

use roce_simnet::{PacketRecord, Timeline};
use roce_transport::Instant;

use crate::lesson::Lesson;
use crate::trial::{TrialPlot, TrialRun};

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

impl Inspection {
    /// Returns the layers of the packet with this number, from 1, if there is one.
    pub(super) fn of_layers(packets: &[PacketRecord], number: usize) -> Option<Self> {
        let record = packets.get(number.checked_sub(1)?)?;
        Some(Self {
            title: format!("packet {number}, layer by layer"),
            lines: crate::packet_layers::lines(&record.frame),
        })
    }
}
