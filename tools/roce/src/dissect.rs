//! `roce dissect`: the packets or connections of a capture.

pub(crate) mod capture_writer;
pub(crate) mod color;
mod fields;
mod filter;
pub(crate) mod hex;
pub(crate) mod input;
mod json;
mod live;
mod no_match;
mod number_format;
mod progress;
mod summary;
pub(crate) mod summary_line;
mod threads;
pub(crate) mod time_column;
pub(crate) mod tree;

use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Read, Write};
use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use clap::{Args, ValueEnum};
use roce_dissect::{Capture, CaptureError, Damage, Dissector, FrameAnalysis, Packet};

use self::capture_writer::CaptureWriter;
use self::color::Coloring;
use self::fields::{FieldOptions, FieldTable};
use self::filter::Filter;
use self::input::Input;
use self::progress::Progress;
use self::summary_line::SummaryLine;
use self::threads::Outcome;
use self::time_column::{TimeColumn, TimeFormat};
use crate::error::{CliError, Result};
use crate::output;

/// Explain captured packets and the problems in them
///
/// Prints one line for each packet. Reads pcap and pcapng, also compressed by gzip. Uses colours on a
/// terminal, unless NO_COLOR is set.
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
    #[arg(long, conflicts_with_all = ["verbose", "hex", "explain", "display"])]
    summary: bool,
    /// How packets are printed: as lines, as JSON (the same as --json), or as a table of the fields that
    /// -e names
    #[arg(short = 'T', value_name = "FORMAT", value_enum, conflicts_with_all = ["json", "summary", "explain"])]
    format: Option<Format>,
    /// Write the frames that pass the filter to a file instead of printing them: pcapng, or pcap if its
    /// name ends so; `-` is standard output
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["verbose", "hex", "json", "summary", "explain", "format"])]
    write: Option<PathBuf>,
    /// What the time of a line is: r since the first frame, a and ad absolute and with the date, u and
    /// ud the same in UTC, d and dd since the frame and the line before, e since 1970
    #[arg(
        short = 't',
        long = "time",
        value_name = "FORMAT",
        value_enum,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    time: TimeFormat,
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
    #[command(flatten)]
    fields: FieldOptions,
}

/// The values of `-T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Fields,
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
  roce dissect -Y 'aeth.kind == nak or findings == gap' trace.pcapng.gz
  roce dissect -Y 'qp == 0x12 and psn in {5..9}' -w few.pcapng trace.pcapng
  roce dissect -T fields -e number -e psn -e findings -E header=y trace.pcapng
  roce dissect --explain 42 trace.pcapng
  roce dissect --summary trace.pcapng

--fields lists what -Y and -e take. docs/dissect.md describes the lines, the JSON names and every
finding.";

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    if options.fields.asks_for_names() {
        return output::print(&fields::list());
    }
    if options.format == Some(Format::Fields) && !options.fields.has_columns() {
        let text = "-T fields needs the names of fields: -e psn -e findings; --fields lists them";
        return Err(CliError::new(text));
    }
    let coloring = match options.colour {
        Colour::Always => Coloring::On,
        Colour::Never => Coloring::Off,
        Colour::Auto => Coloring::for_terminal(io::stdout().is_terminal()),
    };
    let writer = options.write.as_deref().map(|path| create(path, options)).transpose()?;
    let mut report = Report::new(options, coloring, writer);
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

/// Creates the file of `-w`, which is not the one that is read.
fn create(path: &Path, options: &Options) -> Result<CaptureWriter> {
    let place = |path: &Path| path.metadata().map(|data| (data.is_file(), data.dev(), data.ino()));
    let is_read = options.live.is_none() && options.file != Path::new("-");
    let same = is_read.then(|| place(path).ok().filter(|it| it.0) == place(&options.file).ok());
    if same == Some(true) {
        let name = path.display();
        return Err(CliError::new(format!(
            "{name} is the capture that is read; write another file"
        )));
    }
    CaptureWriter::create(path)
        .map_err(|error| CliError::context(format!("creating {}", path.display()), error))
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
        let input = open(io::stdin(), "standard input")?;
        return from_reader(input, "standard input", 1, Progress::hidden(), report);
    }
    let name = path.display().to_string();
    let opened = File::open(path).and_then(|file| file.metadata().map(|data| (file, data)));
    let (file, data) = opened.map_err(|error| Stop::Error(CliError::context(&name, error)))?;
    let input = open(file, &name)?;
    let progress = match input.is_compressed {
        true => Progress::hidden(),
        false => Progress::new(data.len(), report.options.summary),
    };
    from_reader(input, &name, threads_for(&data), progress, report)
}

fn open(reader: impl Read + Send + 'static, name: &str) -> Result<Input, Stop> {
    Input::open(reader)
        .map_err(|error| Stop::Error(CliError::context(format!("reading {name}"), error)))
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
    input: Input,
    name: &str,
    threads: usize,
    mut progress: Progress,
    report: &mut Report<'_>,
) -> Result<(), Stop> {
    let told = |error| Stop::Error(CliError::context(format!("reading {name}"), error));
    let capture = Capture::open(input.reader).map_err(|error| match error {
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
    time: TimeColumn,
    table: Option<FieldTable<'o>>,
    writer: Option<CaptureWriter>,
    coloring: Coloring,
    /// Output to print; written when it is long, and at the end.
    text: Vec<u8>,
    explained: bool,
    /// A packet or connection matched the filter.
    has_match: bool,
}

impl<'o> Report<'o> {
    fn new(options: &'o Options, coloring: Coloring, writer: Option<CaptureWriter>) -> Self {
        let has_table = options.fields.has_columns() && !options.is_json();
        let mut report = Self {
            options,
            dissector: Dissector::new(roce_dissect::Options::default()),
            line: SummaryLine::new(coloring),
            time: TimeColumn::new(options.time),
            table: has_table.then(|| options.fields.table()),
            writer,
            coloring,
            text: Vec::with_capacity(2 * WRITE_LEN),
            explained: false,
            has_match: false,
        };
        if let Some(table) = &report.table {
            table.write_header(&mut report.text);
        }
        report
    }

    /// Handles the next frame of the capture.
    fn frame(&mut self, analysis: &FrameAnalysis<'_>) -> Result<(), Stop> {
        let frame = analysis.frame();
        self.time.pass(frame.number, frame.time);
        let (options, line, text) = (self.options, &mut self.line, &mut self.text);
        let (time, table) = (&mut self.time, &mut self.table);
        let (is_written, mut passes) = (self.writer.is_some(), false);
        let (coloring, explained) = (self.coloring, &mut self.explained);
        let has_match = &mut self.has_match;
        self.dissector.follow(analysis, |packet| {
            if options.summary {
                return;
            }
            match options.explain {
                Some(number) if packet.frame.number == number => {
                    *explained = true;
                    line.write(packet, time, text);
                    show(options, packet, coloring, text);
                    tree::write_explanation(&packet.explain(), coloring, text);
                }
                Some(_) => {}
                None if !options.filter.takes(packet) => {}
                None if is_written => {
                    *has_match = true;
                    passes = true;
                }
                None if options.is_json() => {
                    *has_match = true;
                    json::write_packet(packet, options.verbose, text);
                }
                None => {
                    *has_match = true;
                    if let Some(table) = table {
                        return table.write(packet, text);
                    }
                    line.write(packet, time, text);
                    show(options, packet, coloring, text);
                }
            }
        });
        if let Some(writer) = self.writer.as_mut().filter(|_| passes) {
            writer.write(frame).map_err(Stop::writing)?;
        }
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
        let has_lines = self.table.is_none() && self.writer.is_none();
        if self.options.summary || self.options.explain.is_some() || !has_lines {
            eprintln!("roce: {damage}");
        } else if self.options.is_json() {
            json::write_damage(damage, &mut self.text);
        } else {
            self.line.write_damage(damage, &mut self.text);
        }
    }

    /// Writes the output so far.
    fn write_out(&mut self) -> Result<(), Stop> {
        if let Some(writer) = self.writer.as_mut().filter(|_| self.options.live.is_some()) {
            writer.flush().map_err(Stop::writing)?;
        }
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
        if let Some(writer) = &mut self.writer {
            writer.finish().map_err(Stop::writing)?;
            let (name, written, all) = (writer.name(), writer.frames(), totals.frames);
            eprintln!("roce: {written} of {all} frames are written to {name}");
        }
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

impl Options {
    fn is_json(&self) -> bool {
        self.json || self.format == Some(Format::Json)
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
