//! Frames that pass the filter, written to a capture file (`-w`).

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use roce_dissect::{LinkType, RawFrame};

/// The file, shared with the writer of its format, which gives no access to it.
#[derive(Clone)]
struct Output(Arc<Mutex<BufWriter<Box<dyn Write + Send>>>>);

/// A capture file that is written.
pub(crate) struct CaptureWriter {
    name: String,
    output: Output,
    format: Format,
    frames: u64,
}

enum Format {
    /// The writer begins with the first frame, whose link type is that of the file.
    Pcap(Option<(LinkType, PcapWriter<Output>)>),
    /// Link types by the number of their interface.
    PcapNg { writer: PcapNgWriter<Output>, links: Vec<LinkType> },
}

impl CaptureWriter {
    /// Creates the file: pcap if its name ends so, else pcapng. `-` is standard output.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let name = path.display().to_string();
        let file: Box<dyn Write + Send> = match name.as_str() {
            "-" => Box::new(io::stdout()),
            _ => Box::new(File::create(path)?),
        };
        let file = BufWriter::with_capacity(WRITE_LEN, file);
        let output = Output(Arc::new(Mutex::new(file)));
        let format = match path.extension().is_some_and(|extension| extension == "pcap") {
            true => Format::Pcap(None),
            false => {
                let writer = PcapNgWriter::with_endianness(output.clone(), Endianness::Little);
                Format::PcapNg { writer: writer.map_err(io_error)?, links: Vec::new() }
            }
        };
        Ok(Self { name, output, format, frames: 0 })
    }

    /// Returns the name of the file.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of frames written.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Writes a frame as it was captured.
    pub(crate) fn write(&mut self, frame: &RawFrame<'_>) -> io::Result<()> {
        self.frames += 1;
        let timestamp = Duration::from_nanos(frame.time.0);
        let data = Cow::Borrowed(frame.bytes);
        // A damaged file may say less.
        let original_len = frame.original_len.max(frame.bytes.len() as u32);
        match &mut self.format {
            Format::Pcap(begun) => {
                let (link, writer) = match begun {
                    Some(begun) => begun,
                    None => begun.insert((frame.link, begin(frame.link, &self.output)?)),
                };
                if *link != frame.link {
                    let text = format!(
                        "a pcap file has one link type, and frame {} has another; write a file \
                         whose name ends in .pcapng",
                        frame.number
                    );
                    return Err(io::Error::other(text));
                }
                let packet = PcapPacket { timestamp, orig_len: original_len, data };
                writer.write_packet(&packet).map(drop).map_err(io_error)
            }
            Format::PcapNg { writer, links } => {
                let known = links.iter().position(|link| *link == frame.link);
                let interface = match known {
                    Some(interface) => interface,
                    None => {
                        let block = InterfaceDescriptionBlock {
                            linktype: DataLink::from(frame.link.code()),
                            snaplen: 0,
                            options: vec![InterfaceDescriptionOption::IfTsResol(9)],
                        };
                        writer.write_pcapng_block(block).map_err(io_error)?;
                        links.push(frame.link);
                        links.len() - 1
                    }
                };
                let block = EnhancedPacketBlock {
                    interface_id: interface as u32,
                    timestamp,
                    original_len,
                    data,
                    options: Vec::new(),
                };
                writer.write_pcapng_block(block).map(drop).map_err(io_error)
            }
        }
    }

    /// Writes what is buffered.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// Ends the file. A pcap file without frames has the link type of Ethernet.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if let Format::Pcap(begun @ None) = &mut self.format {
            *begun = Some((LinkType::Ethernet, begin(LinkType::Ethernet, &self.output)?));
        }
        self.flush()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

impl std::fmt::Debug for CaptureWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CaptureWriter").field("name", &self.name).finish_non_exhaustive()
    }
}

fn begin(link: LinkType, output: &Output) -> io::Result<PcapWriter<Output>> {
    let header = PcapHeader {
        datalink: DataLink::from(link.code()),
        snaplen: MAX_FRAME_LEN,
        ts_resolution: TsResolution::NanoSecond,
        endianness: Endianness::Little,
        ..PcapHeader::default()
    };
    PcapWriter::with_header(output.clone(), header).map_err(io_error)
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        error => io::Error::other(error),
    }
}

/// Bytes per write.
const WRITE_LEN: usize = 64 << 10;

/// The longest frame that a capture may have.
const MAX_FRAME_LEN: u32 = 256 << 10;
