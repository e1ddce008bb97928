//! Lines of packets, and the file that they are written to.

use std::io::{self, IsTerminal, Write};
use std::time::SystemTime;

use roce_dissect::{Dissector, LinkType, Options, Packet, RawFrame, Timestamp};

use super::options::OutputOptions;
use crate::dissect::capture_writer::CaptureWriter;
use crate::dissect::color::{Color, Coloring};
use crate::dissect::summary_line::SummaryLine;
use crate::dissect::time_column::{TimeColumn, TimeFormat};
use crate::dissect::{hex, tree};
use crate::error::{CliError, Result};
use crate::output;

/// Shows the packets of both directions, which one dissector follows.
#[derive(Debug)]
pub(super) struct Log {
    options: OutputOptions,
    dissector: Dissector,
    line: SummaryLine,
    time: TimeColumn,
    coloring: Coloring,
    writer: Option<CaptureWriter>,
    text: Vec<u8>,
    frames: u64,
    /// Packets of the current step, by direction: sent, received.
    of_step: [u64; 2],
}

/// Which way a packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Sent,
    Received,
}

impl Log {
    /// Creates the file to write.
    pub(super) fn new(options: &OutputOptions) -> Result<Self> {
        let create = |path: &std::path::PathBuf| {
            let created = CaptureWriter::create(path);
            created.map_err(|why| CliError::context(format!("creating {}", path.display()), why))
        };
        let coloring = Coloring::for_terminal(io::stdout().is_terminal());
        Ok(Self {
            options: options.clone(),
            dissector: Dissector::new(Options::default()),
            line: SummaryLine::new(coloring),
            time: TimeColumn::new(TimeFormat::Relative),
            coloring,
            writer: options.write.as_ref().map(create).transpose()?,
            text: Vec::new(),
            frames: 0,
            of_step: [0; 2],
        })
    }

    /// Shows the packets of a frame, and passes each to a function.
    pub(super) fn pass(
        &mut self,
        way: Way,
        bytes: &[u8],
        segment_len: Option<usize>,
        mut on_packet: impl FnMut(&Packet<'_>),
    ) -> Result {
        self.frames += 1;
        let since_1970 =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let frame = RawFrame {
            number: self.frames,
            time: Timestamp(u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)),
            link: LinkType::Ethernet,
            original_len: bytes.len() as u32,
            bytes,
            segment_len,
        };
        self.time.pass(frame.number, frame.time);
        let (line, time, text) = (&mut self.line, &mut self.time, &mut self.text);
        let (options, coloring, of_step) = (&self.options, self.coloring, &mut self.of_step);
        self.dissector.handle_frame(frame, |packet| {
            let (mark, shown) = match way {
                Way::Sent => (b"> ", &mut of_step[0]),
                Way::Received => (b"< ", &mut of_step[1]),
            };
            *shown += 1;
            if *shown <= MAX_SHOWN || options.all {
                text.extend_from_slice(mark);
                line.write(packet, time, text);
                if options.verbose {
                    tree::write(packet, coloring, text);
                }
                if options.hex {
                    hex::write(packet, coloring, text);
                }
            }
            on_packet(packet);
        });
        if let Some(writer) = &mut self.writer {
            writer.write(&frame).map_err(|error| CliError::context("writing packets", error))?;
        }
        self.flush_if(WRITE_LEN)
    }

    /// Ends the lines of a step: says how many packets have none, and writes what is buffered.
    pub(super) fn end_step(&mut self) -> Result {
        for (count, what) in self.of_step.iter_mut().zip(["sent", "received"]) {
            if *count > MAX_SHOWN && !self.options.all {
                let more = *count - MAX_SHOWN;
                let line = format!("  … and {more} more {what} (--all shows every packet)\n");
                self.text.extend_from_slice(line.as_bytes());
            }
            *count = 0;
        }
        if let Some(writer) = &mut self.writer {
            writer.flush().map_err(|error| CliError::context("writing packets", error))?;
        }
        self.flush_if(0)
    }

    /// Writes the lines so far.
    pub(super) fn flush(&mut self) -> Result {
        self.flush_if(0)
    }

    /// Writes a line between those of packets.
    pub(super) fn say(&mut self, color: Color, line: &str) -> Result {
        self.coloring.start(color, &mut self.text);
        self.text.extend_from_slice(line.as_bytes());
        self.coloring.end(&mut self.text);
        self.text.push(b'\n');
        self.flush_if(0)
    }

    /// Ends the file.
    pub(super) fn finish(&mut self) -> Result {
        self.flush_if(0)?;
        if let Some(writer) = &mut self.writer {
            writer.finish().map_err(|error| CliError::context("writing packets", error))?;
            let (frames, name) = (writer.frames(), writer.name());
            eprintln!("roce: {frames} frames are written to {name}");
        }
        Ok(())
    }

    fn flush_if(&mut self, len: usize) -> Result {
        if self.text.is_empty() || self.text.len() < len {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(&self.text).and_then(|()| stdout.flush());
        self.text.clear();
        written.map_err(output::cannot_print)
    }
}

/// Packets that are shown of a step, in each direction.
const MAX_SHOWN: u64 = 20;
const WRITE_LEN: usize = 32 << 10;
