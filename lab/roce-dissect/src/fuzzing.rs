//! Bodies of the fuzz targets. Not part of the crate's interface: for the fuzzer, and for the tests
//! that replay its corpora.
//!
//! | body | input | property |
//! |---|---|---|
//! | [`capture_file`] | a capture file, pcap or pcapng | no panic; the same result for any sizes of reads; reading ends; skipped bytes are reported |
//! | [`dissect`] | a script of frames: correct, mangled, truncated, trains, any bytes, on every link type | no panic; fields lie inside their layers; connections stay below the limit |

mod frames;
#[cfg(test)]
mod tests;

use std::fmt::{self, Write};
use std::io::{self, Read};
use std::time::Duration;

use self::frames::Frames;
use crate::{Capture, CaptureError, Dissector, Event, Options, Packet};
use roce_fuzz_support::Script;

/// Reads any bytes as a capture, at once and in small parts.
pub fn capture_file(bytes: &[u8]) {
    let step = usize::from(bytes.first().copied().unwrap_or(0) & 0x1f) + 1;
    let at_once = events_of(bytes, true);
    assert_eq!(at_once, events_of(Dribble(bytes, step), false), "by {step} bytes");
}

/// Passes any frames to one dissector.
pub fn dissect(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let options = Options {
        follow: script.byte() & 1 == 0,
        stall: Duration::from_millis(script.byte().into()),
        max_flows: script.pick(&[4, 1, 2, 1000]),
    };
    let mut dissector = Dissector::new(options);
    let mut frames = Frames::new(script);
    let mut packets = 0;
    while let Some(frame) = frames.next_frame() {
        let before = packets;
        dissector.handle_frame(frame.as_raw(), |packet| {
            packets += 1;
            look_at(packet);
        });
        assert!(packets > before, "a frame is one packet at least");
    }
    judge(&dissector, options.max_flows);
}

/// Events of a capture as text.
fn events_of(reader: impl Read, and_dissect: bool) -> Vec<String> {
    let mut capture = match Capture::open(reader) {
        Ok(capture) => capture,
        Err(CaptureError::NotACapture(why)) => return vec![why.to_string()],
        Err(CaptureError::Io(error)) => panic!("the reader never fails: {error}"),
    };
    let options = Options { max_flows: 16, ..Options::default() };
    let mut dissector = Dissector::new(options);
    let mut events = vec![];
    let mut frames = 0;
    let mut last_damage = None;
    while let Some(event) = capture.next_event().expect("the reader never fails") {
        events.push(match event {
            Event::Frame(frame) => {
                frames += 1;
                assert_eq!(frame.number, frames);
                assert!(frame.bytes.len() <= 256 << 10);
                if and_dissect {
                    dissector.handle_frame(frame, look_at);
                }
                format!("{} {} {} {:?}", frame.time, frame.link, frame.original_len, frame.bytes)
            }
            Event::Damage(damage) => {
                assert!(last_damage.is_none_or(|last| last <= damage.offset), "{damage}");
                last_damage = Some(damage.offset);
                damage.to_string()
            }
        });
    }
    if and_dissect {
        assert_eq!(dissector.totals().frames, frames);
        judge(&dissector, options.max_flows);
    }
    events.push(capture.offset().to_string());
    events
}

/// Calls every function of a packet.
fn look_at(packet: &Packet<'_>) {
    let dissection = packet.dissection();
    assert!(!dissection.summary.is_empty());
    for layer in &dissection.layers {
        assert!(layer.range.start <= layer.range.end, "{layer:?}");
        for field in &layer.fields {
            let bytes = &field.bytes;
            assert!(bytes.start <= bytes.end, "{layer:?}: {field:?}");
            let is_inside = layer.range.start <= bytes.start && bytes.end <= layer.range.end;
            assert!(is_inside, "{layer:?}: {field:?}");
            show(&field.value);
        }
    }
    for finding in packet.findings {
        show(finding);
        assert!(!finding.name().is_empty() && finding.severity() <= packet.severity());
    }
    let explanation = packet.explain();
    assert!(!explanation.verdict.is_empty());
    explanation.reasons.iter().for_each(|reason| assert!(!reason.is_empty()));
    if let Some(roce) = packet.roce() {
        show(&roce.summary());
        assert!(roce.payload.len() <= roce.payload_len);
        assert!(roce.range(&packet.frame).end <= packet.frame.bytes.len());
    }
}

fn judge(dissector: &Dissector, max_flows: usize) {
    let totals = dissector.totals();
    assert!(totals.problems <= totals.packets + totals.frames);
    assert!(totals.wrong_icrcs <= totals.packets);
    let mut connections = 0;
    for connection in dissector.connections() {
        connections += 1;
        if let Some(times) = connection.round_trips {
            assert!(times.min <= times.p99 && times.count > 0, "{connection:?}");
        }
        let _ = (connection.forward.lasted(), connection.backward.lasted());
    }
    assert!(connections <= max_flows, "{connections} connections");
}

/// A reader that returns few bytes at a time, as a pipe may.
struct Dribble<'a>(&'a [u8], usize);

impl Read for Dribble<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.1.min(into.len()).min(self.0.len());
        into[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        Ok(len)
    }
}

/// Formats the value and discards the text.
fn show(value: &impl fmt::Display) {
    struct Nowhere;
    impl Write for Nowhere {
        fn write_str(&mut self, _: &str) -> fmt::Result {
            Ok(())
        }
    }
    let _ = write!(Nowhere, "{value}");
}
