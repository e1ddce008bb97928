//! Ladder diagrams: packets between hosts over time, with their layers.

mod capture;
mod columns;
mod page;

use roce_transport::Instant;

use crate::lesson::Question;
use crate::run::LessonRun;

pub use capture::CaptureLadderError;
pub use columns::LadderRow;
pub use page::{PageError, PageLink, PageLinks};

use columns::Columns;

/// A ladder diagram of packets between hosts; [`to_html`](Self::to_html) renders it.
///
/// Equal strings and layers of packets are stored once, so a page can hold 100 000 packets.
///
/// ```
/// use roce_lab::{Ladder, Lesson, LessonRun};
///
/// let run = LessonRun::simulate(&Lesson::find("lost-packet").unwrap()).unwrap();
/// let page = Ladder::of_lesson(&run).to_html().unwrap();
/// assert!(page.starts_with("<!doctype html>"));
/// assert!(!page.contains("http://") && !page.contains("https://"));
/// ```
#[derive(Clone, Debug)]
pub struct Ladder {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) hosts: Vec<String>,
    pub(crate) columns: Columns,
    pub(crate) remarks: Vec<Remark>,
    pub(crate) sections: Vec<Narration>,
    pub(crate) question: Option<Question>,
    pub(crate) chunks: Vec<(Instant, usize, usize, f32)>,
    /// Number of packets above the limit, which are left out.
    pub(crate) left_out: u64,
    /// The same lesson without one packet, by the number of that.
    pub(crate) losses: Vec<(usize, Ladder)>,
    /// PSNs are hexadecimal, as `roce dissect` prints them; those of lessons are small and decimal.
    pub(crate) hex_psns: bool,
}

/// An event beside the ladder.
#[derive(Clone, Debug)]
pub(crate) struct Remark {
    pub(crate) at: Instant,
    pub(crate) host: usize,
    /// Number of packets sent before the event.
    pub(crate) after_packets: usize,
    pub(crate) words: String,
    pub(crate) class: &'static str,
}

/// Text of a section, with its packets and remarks.
#[derive(Clone, Debug)]
pub(crate) struct Narration {
    pub(crate) say: String,
    pub(crate) then: String,
    pub(crate) packets: [usize; 2],
    pub(crate) remarks: [usize; 2],
    pub(crate) shown: Vec<(String, Vec<String>)>,
    /// Titles and SVGs.
    pub(crate) plots: Vec<(String, String)>,
}

/// Most packets of a lesson whose page can lose each of them: the page has a run for each.
const MAX_PACKETS_TO_LOSE: usize = 16;

impl Ladder {
    /// Returns the ladder of a lesson with its text. Its page shows also what happens if the network loses
    /// any one packet, if there are few.
    pub fn of_lesson(run: &LessonRun) -> Self {
        let mut ladder = Self::of_run(run);
        let lesson = &run.lesson;
        let is_short = (1..=MAX_PACKETS_TO_LOSE).contains(&run.timeline.packets.len());
        if is_short && lesson.ring.is_none() && lesson.capture.is_none() {
            let losing = |packet| {
                let mut other = Self::of_run(&LessonRun::simulate_losing(lesson, packet).ok()?);
                // The text behind a section tells what happened with the packet.
                other.sections.iter_mut().for_each(|section| section.then.clear());
                other.question = None;
                Some((packet + 1, other))
            };
            ladder.losses = (0..run.timeline.packets.len()).filter_map(losing).collect();
        }
        ladder
    }

    fn of_run(run: &LessonRun) -> Self {
        let lesson = &run.lesson;
        let timeline = &run.timeline;
        let total: usize = timeline.packets.iter().map(|packet| packet.frame.len()).sum();
        let mut columns = Columns::new(columns::kept_for(timeline.packets.len(), total));
        for (number, packet) in (1..).zip(&timeline.packets) {
            let label = run.label(packet);
            let layers = crate::packet_layers::of_frame(&packet.frame);
            columns.push(
                &LadderRow {
                    number,
                    from: packet.from,
                    to: packet.to,
                    sent: packet.sent,
                    arrivals: packet.arrivals.clone(),
                    lost: packet.lost,
                    damaged: packet.damaged,
                    again: packet.again,
                    label,
                    findings: String::new(),
                    len: packet.frame.len(),
                },
                &layers,
                &packet.frame,
            );
        }
        let mut remarks = Vec::new();
        // Number of remarks before each event.
        let mut places = Vec::with_capacity(timeline.events.len() + 1);
        let mut after_packets = 0;
        for (place, event) in timeline.events.iter().enumerate() {
            places.push(remarks.len());
            let left = |packet: &crate::PacketRecord| packet.events_before <= place;
            while timeline.packets.get(after_packets).is_some_and(left) {
                after_packets += 1;
            }
            if !run.is_hidden(&event.kind) {
                remarks.push(Remark {
                    at: event.at,
                    host: event.host,
                    after_packets,
                    words: run.words(event),
                    class: event.kind.class(),
                });
            }
        }
        places.push(remarks.len());
        let narration =
            |(told, section): (&crate::run::SectionRun, &crate::lesson::Section)| Narration {
                say: section.say.trim().to_owned(),
                then: section.then.trim().to_owned(),
                packets: [told.packets.start, told.packets.end],
                remarks: [places[told.events.start], places[told.events.end]],
                shown: told.shown.iter().map(|it| (it.title.clone(), it.lines.clone())).collect(),
                plots: told.plots.iter().map(|it| (it.title.clone(), it.svg.clone())).collect(),
            };
        let question = &lesson.question;
        Self {
            title: lesson.full_title(),
            subtitle: lesson.summary.clone(),
            hosts: if lesson.fabric.is_empty() { lesson.world.hosts.clone() } else { Vec::new() },
            columns,
            remarks,
            sections: run.sections.iter().zip(&lesson.section).map(narration).collect(),
            question: Some(Question {
                ask: question.ask.trim().to_owned(),
                answer: question.answer.trim().to_owned(),
                ..question.clone()
            }),
            chunks: run.chunks.iter().map(|it| (it.at, it.rank, it.chunk, it.value)).collect(),
            left_out: 0,
            losses: Vec::new(),
            hex_psns: lesson.capture.is_some(),
        }
    }

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Returns true without packets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
