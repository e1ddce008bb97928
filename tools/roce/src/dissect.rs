//! `roce dissect`: the packets or connections of a capture.

mod color;
mod filter;
mod hex;
mod json;
mod live;
mod no_match;
mod number_format;
mod progress;
mod summary;
mod summary_line;
mod threads;
mod tree;

use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Read, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use clap::{Args, ValueEnum};
use roce_dissect::{Capture, CaptureError, Damage, Dissector, FrameAnalysis, Packet, Timestamp};

use self::color::Coloring;
use self::filter::Filter;
use self::progress::Progress;
use self::summary_line::SummaryLine;
use self::threads::Outcome;
use crate::error::{CliError, Result};

/// Explain captured packets and the problems in them
///
/// Prints one line for each packet. Reads pcap and pcapng. Uses colours on a terminal, unless
/// NO_COLOR is set.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Capture file; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-", hide_default_value = true)]
    file: PathBuf,
    /// Show the packets of this interface until interrupted
    #[arg(long, value_name = "IFACE", conflicts_with = "file")]
    live: Option<String>,
    /// Show every layer of each packet, with every field and its bytes
    #[arg(short, long)]
    verbose: bool,
    /// Show the bytes of each packet
    #[arg(short = 'x', long)]
    hex: bool,
    /// One JSON object for each packet (with -v its layers too), or connection
    #[arg(long)]
    json: bool,
    /// Show a table of connections instead of packets
    #[arg(long, conflicts_with_all = ["verbose", "hex", "explain"])]
    summary: bool,
    /// Explain what a receiver does with the packets of frame N
    #[arg(long, value_name = "N", conflicts_with = "json", value_parser = clap::value_parser!(u64).range(1..))]
    explain: Option<u64>,
    /// Stop after N frames
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// When to use colours
    #[arg(long, value_enum, default_value_t = Colour::Auto, value_name = "WHEN", alias = "color")]
    colour: Colour,
    #[command(flatten)]
    filter: Filter,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Colour {
    Auto,
    Always,
    Never,
}

const EXAMPLES: &str = "\
Examples:
  roce dissect trace.pcapng
  tcpdump -i eth0 -w - udp port 4791 | roce dissect -
  roce dissect --only problems --qp 0x12 trace.pcapng
  roce dissect --explain 42 trace.pcapng
  roce dissect --summary trace.pcapng

docs/dissect.md describes the lines, the JSON names and every finding.";

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    let coloring = match options.colour {
        Colour::Always => Coloring::On,
        Colour::Never => Coloring::Off,
        Colour::Auto => Coloring::for_terminal(io::stdout().is_terminal()),
    };
    let mut report = Report::new(options, coloring);
    let outcome = match &options.live {
        Some(interface) => live::run(interface, &mut report),
        None => from_file(&options.file, &mut report),
    };
    let outcome = match outcome {
        Err(Stop::Done) | Ok(()) => report.finish(),
        error => error,
    };
    match outcome {
        Err(Stop::Error(failure)) => Err(failure),
        // A closed reader, such as `head`, is not an error.
        Err(Stop::Done) | Ok(()) => Ok(()),
    }
}

/// The reason to stop reading.
#[derive(Debug)]
enum Stop {
    /// The output is complete, or its reader has closed.
    Done,
    /// An error.
    Error(CliError),
}

impl Stop {
    /// Converts an error of writing.
    fn writing(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Done,
            _ => Self::Error(CliError::context("writing", error)),
        }
    }
}

fn from_file(path: &Path, report: &mut Report<'_>) -> Result<(), Stop> {
    if path == Path::new("-") {
        if io::stdin().is_terminal() {
            let text = "give it a capture file, or a capture on standard input";
            return Err(Stop::Error(CliError::new(text)));
        }
        return from_reader(io::stdin(), "standard input", 1, Progress::hidden(), report);
    }
    let name = path.display().to_string();
    let opened = File::open(path).and_then(|file| file.metadata().map(|data| (file, data)));
    let (file, data) = opened.map_err(|error| Stop::Error(CliError::context(&name, error)))?;
    let progress = Progress::new(data.len(), report.options.summary);
    from_reader(file, &name, threads_for(&data), progress, report)
}

/// Returns the number of threads for a file. Reading other files may block, so one thread reads and
/// decides when to stop.
fn threads_for(file: &Metadata) -> usize {
    if !file.is_file() {
        return 1;
    }
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let worth = 1 + file.len() / BYTES_PER_THREAD;
    processors.min(MAX_THREADS).min(usize::try_from(worth).unwrap_or(MAX_THREADS))
}

fn from_reader(
    reader: impl Read + Send,
    name: &str,
    threads: usize,
    mut progress: Progress,
    report: &mut Report<'_>,
) -> Result<(), Stop> {
    let told = |error| Stop::Error(CliError::context(format!("reading {name}"), error));
    let capture = Capture::open(reader).map_err(|error| match error {
        CaptureError::Io(error) => told(error),
        error => {
            eprintln!("roce: {name}: {error}");
            Stop::Error(CliError::Reported(2))
        }
    })?;
    threads::look_through(capture, threads, |piece| {
        let piece = piece.map_err(told)?;
        for sight in &piece.sights {
            match sight {
                Outcome::Frame(analysis) => report.frame(analysis)?,
                Outcome::Damage(damage) => report.damage(damage),
            }
        }
        progress.reach(piece.end);
        // More input may take long.
        report.write_out()
    })?;
    progress.finish();
    Ok(())
}

/// Turns frames into the requested output.
struct Report<'o> {
    options: &'o Options,
    dissector: Dissector,
    line: SummaryLine,
    coloring: Coloring,
    /// Output to print; written when it is long, and at the end.
    text: Vec<u8>,
    began: Option<Timestamp>,
    explained: bool,
    /// A packet or connection matched the filter.
    has_match: bool,
}

impl<'o> Report<'o> {
    fn new(options: &'o Options, coloring: Coloring) -> Self {
        Self {
            options,
            dissector: Dissector::new(roce_dissect::Options::default()),
            line: SummaryLine::new(coloring),
            coloring,
            text: Vec::with_capacity(2 * WRITE_LEN),
            began: None,
            explained: false,
            has_match: false,
        }
    }

    /// Handles the next frame of the capture.
    fn frame(&mut self, analysis: &FrameAnalysis<'_>) -> Result<(), Stop> {
        let frame = analysis.frame();
        let began = *self.began.get_or_insert(frame.time);
        let (options, line, text) = (self.options, &mut self.line, &mut self.text);
        let (coloring, explained) = (self.coloring, &mut self.explained);
        let has_match = &mut self.has_match;
        self.dissector.follow(analysis, |packet| {
            if options.summary {
                return;
            }
            match options.explain {
                Some(number) if packet.frame.number == number => {
                    *explained = true;
                    line.write(packet, began, text);
                    show(options, packet, coloring, text);
                    tree::write_explanation(&packet.explain(), coloring, text);
                }
                Some(_) => {}
                None if !options.filter.takes(packet) => {}
                None if options.json => {
                    *has_match = true;
                    json::write_packet(packet, options.verbose, text);
                }
                None => {
                    *has_match = true;
                    line.write(packet, began, text);
                    show(options, packet, coloring, text);
                }
            }
        });
        if self.text.len() >= WRITE_LEN {
            self.write_out()?;
        }
        let is_over = |last: Option<u64>| last.is_some_and(|last| frame.number >= last);
        match is_over(options.explain) || is_over(options.count) {
            true => Err(Stop::Done),
            false => Ok(()),
        }
    }

    fn damage(&mut self, damage: &Damage) {
        if self.options.summary || self.options.explain.is_some() {
            eprintln!("roce: {damage}");
        } else if self.options.json {
            json::write_damage(damage, &mut self.text);
        } else {
            self.line.write_damage(damage, &mut self.text);
        }
    }

    /// Writes the output so far.
    fn write_out(&mut self) -> Result<(), Stop> {
        if self.text.is_empty() {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(&self.text).and_then(|()| stdout.flush());
        self.text.clear();
        written.map_err(Stop::writing)
    }

    /// Handles the end of the capture.
    fn finish(&mut self) -> Result<(), Stop> {
        let totals = *self.dissector.totals();
        if self.options.summary {
            let connections = self.dissector.connections();
            let wanted = connections
                .filter(|connection| self.options.filter.takes_connection(connection))
                .inspect(|_| self.has_match = true);
            match self.options.json {
                true => json::write_connections(wanted, &mut self.text),
                false => summary::write(wanted, &totals, self.coloring, &mut self.text),
            }
        }
        self.write_out()?;
        if let Some(number) = self.options.explain.filter(|_| !self.explained) {
            let text = format!("there is no frame {number}: the capture has {}", totals.frames);
            return Err(Stop::Error(CliError::new(text)));
        }
        if totals.packets == 0 {
            let and_pauses = match totals.pauses {
                0 => String::new(),
                pauses => format!(", though {pauses} pause frames are"),
            };
            eprintln!("roce: no RoCE packet is among the {} frames{and_pauses}", totals.frames);
        } else if self.options.explain.is_none()
            && self.options.filter.names_packets()
            && !self.has_match
        {
            eprintln!("roce: {}", no_match::describe(&totals, self.dissector.connections()));
        }
        Ok(())
    }
}

/// Writes the details of a packet.
fn show(options: &Options, packet: &Packet<'_>, coloring: Coloring, text: &mut Vec<u8>) {
    if options.verbose {
        tree::write(packet, coloring, text);
    }
    if options.hex {
        hex::write(packet, coloring, text);
    }
}

/// Bytes per write; more is not faster.
const WRITE_LEN: usize = 64 << 10;

/// Bytes of a file per thread.
const BYTES_PER_THREAD: u64 = 4 << 20;

/// More threads are not faster, since output is sequential.
const MAX_THREADS: usize = 4;
