//! Lessons about captures of real programs.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use roce_dissect::{Capture, Dissector, Event, Options, PacketKind, RawFrame};
use roce_simnet::{PacketRecord, Timeline};
use roce_transport::Instant;

use super::record::{Inspection, LessonRun, SectionRun};
use crate::lesson::{CaptureData, Inspect, Lesson, LessonError, Section};

/// Returns the run of a lesson whose packets are those of a capture. Its sections take them in order.
pub(super) fn replay(lesson: &Lesson, data: &CaptureData) -> Result<LessonRun, LessonError> {
    let unknown =
        |section, what, name: &str| LessonError::Unknown { section, what, name: name.to_owned() };
    let bytes = data.bytes().ok_or_else(|| unknown(0, "capture", &data.file))?;
    if data.addresses.len() != lesson.world.hosts.len() {
        let value = data.addresses.len().to_string();
        return Err(LessonError::OutOfRange { what: "the number of addresses", value });
    }
    let packets = packets(bytes, data)?;
    let mut sections = Vec::new();
    let mut next = 0;
    for (number, section) in (1..).zip(&lesson.section) {
        refuse_what_only_a_simulation_does(number, section)?;
        let start = next;
        next = section.until.sent.map_or(packets.len(), |count| start + count);
        if next > packets.len() {
            let what = section.until.to_string();
            return Err(LessonError::NeverHappens { section: number, what });
        }
        let shown = section.show.iter().map(|inspect| match inspect {
            Inspect::Layers(packet) => Inspection::of_layers(&packets, *packet)
                .ok_or_else(|| unknown(number, "packet", &packet.to_string())),
            _ => Err(unknown(number, "inspection of a capture", &format!("{inspect:?}"))),
        });
        sections.push(SectionRun {
            packets: start..next,
            events: 0..0,
            end: packets[..next].last().map_or_else(Instant::default, |packet| packet.sent),
            shown: shown.collect::<Result<_, _>>()?,
            plots: Vec::new(),
        });
    }
    Ok(LessonRun {
        lesson: lesson.clone(),
        timeline: Timeline { packets, events: Vec::new() },
        sections,
        chunks: Vec::new(),
        trials: BTreeMap::new(),
    })
}

fn refuse_what_only_a_simulation_does(number: usize, section: &Section) -> Result<(), LessonError> {
    let has_any =
        !(section.actions.is_empty() && section.trial.is_empty() && section.check.is_empty());
    if has_any {
        let why = "a capture has no actions, trials and checks".to_owned();
        return Err(LessonError::Refused { section: number, why });
    }
    Ok(())
}

/// Returns the packets of a capture. They arrive when they are sent: there is one clock.
fn packets(file: &[u8], data: &CaptureData) -> Result<Vec<PacketRecord>, LessonError> {
    let broken = |why: &dyn std::fmt::Display| LessonError::Refused {
        section: 0,
        why: format!("capture {}: {why}", data.file),
    };
    let mut capture = Capture::open(file).map_err(|why| broken(&why))?;
    let (mut packets, mut start) = (Vec::new(), None);
    while let Some(event) = capture.next_event().map_err(|why| broken(&why))? {
        let Event::Frame(frame) = event else { return Err(broken(&"a part is damaged")) };
        let start = *start.get_or_insert(frame.time.0);
        let ends = addresses(frame).ok_or_else(|| broken(&"a frame has no IP addresses"))?;
        let [from, to] = ends.map(|end| data.addresses.iter().position(|it| *it == end));
        let (Some(from), Some(to)) = (from, to) else {
            return Err(broken(&format!("{ends:?} are not among the addresses")));
        };
        let sent = Instant::from_nanos(frame.time.0.saturating_sub(start));
        packets.push(PacketRecord {
            from,
            to,
            sent,
            arrivals: vec![sent],
            lost: false,
            damaged: false,
            marked: false,
            again: false,
            events_before: 0,
            frame: Bytes::copy_from_slice(frame.bytes),
            segment_len: None,
        });
    }
    Ok(packets)
}

/// Returns source and destination of a frame.
fn addresses(frame: RawFrame<'_>) -> Option<[IpAddr; 2]> {
    let mut dissector = Dissector::new(Options { follow: false, ..Options::default() });
    let mut ends = None;
    dissector.handle_frame(frame, |packet| {
        ends = match &packet.kind {
            PacketKind::Roce(roce) => Some([roce.source, roce.destination]),
            PacketKind::Other(other) => other.addresses().map(|(from, to)| [from, to]),
            PacketKind::Pause(_) => None,
        };
    });
    ends
}
