//! Prints what is unusual or wrong in a capture as JSON, one object per line.
//!
//! `cargo run -p roce-dissect --example findings -- capture.pcapng`; without a file the program reads a capture of the
//! repository, some of whose packets a switch has marked.

use std::error::Error;
use std::fs::File;

use roce_dissect::{Capture, Dissector, Event, Options, Severity};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/congested.pcapng");
    let file = std::env::args().nth(1);
    let mut capture = Capture::open(File::open(file.as_deref().unwrap_or(own))?)?;
    let mut dissector = Dissector::new(Options::default());
    let (mut packets, mut findings) = (0, 0);
    while let Some(event) = capture.next_event()? {
        let Event::Frame(frame) = event else { continue };
        dissector.handle_frame(frame, |packet| {
            packets += 1;
            for finding in packet.findings.iter().filter(|it| it.severity() > Severity::Info) {
                findings += 1;
                println!(
                    "{}",
                    json!({
                        "packet": packet.frame.number,
                        "severity": format!("{:?}", finding.severity()),
                        "text": finding.to_string(),
                    })
                );
            }
        });
    }
    eprintln!("{findings} findings in {packets} packets");
    assert!(file.is_some() || findings > 0, "the capture has marks");
    Ok(())
}
