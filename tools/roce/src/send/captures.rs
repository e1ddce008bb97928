//! Packets of capture files.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use roce_dissect::{Capture, CaptureError, Dissector, Event, Options, Packet};
use roce_generator::Draft;

use crate::dissect::input::Input;
use crate::error::{CliError, Result};

/// Packets by file and frame, each read once.
#[derive(Debug, Default)]
pub(super) struct Captures {
    drafts: HashMap<(String, u64), Draft>,
}

impl Captures {
    /// Returns the first packet of a frame.
    pub(super) fn draft(&mut self, file: &str, frame: u64) -> Result<Draft> {
        let key = (file.to_owned(), frame);
        if let Some(draft) = self.drafts.get(&key) {
            return Ok(draft.clone());
        }
        let (mut found, mut frames) = (None, 0);
        for_each_packet(Path::new(file), false, |packet| {
            frames = packet.frame.number;
            if frames == frame {
                found.get_or_insert_with(|| Draft::of_packet(packet));
            }
            Ok(frames < frame)
        })?;
        let draft = match found {
            Some(draft) => draft.map_err(|error| CliError::context(file, error))?,
            None => {
                let text = format!("{file} has no frame {frame}: its last is {frames}");
                return Err(CliError::new(text));
            }
        };
        self.drafts.insert(key, draft.clone());
        Ok(draft)
    }
}

/// Calls a function with each packet of a capture, as long as it returns true.
pub(super) fn for_each_packet(
    path: &Path,
    follow: bool,
    mut on_packet: impl FnMut(&Packet<'_>) -> Result<bool>,
) -> Result {
    let name = path.display().to_string();
    let told = |error| CliError::context(format!("reading {name}"), error);
    let input = File::open(path).and_then(Input::open).map_err(told)?;
    let mut capture = Capture::open(input.reader).map_err(|error| match error {
        CaptureError::Io(error) => told(error),
        error => CliError::context(&name, error),
    })?;
    let mut dissector = Dissector::new(Options { follow, ..Options::default() });
    let mut outcome = Ok(true);
    while let Some(event) = capture.next_event().map_err(told)? {
        let Event::Frame(frame) = event else { continue };
        dissector.handle_frame(frame, |packet| {
            if matches!(outcome, Ok(true)) {
                outcome = on_packet(packet);
            }
        });
        if !matches!(outcome, Ok(true)) {
            break;
        }
    }
    outcome.map(drop)
}
