//! Capture files: pcap and pcapng, from anything that can be read.
//!
//! A small reader of our own, for three reasons that were looked at: `pcap-file` takes every
//! pcapng timestamp for nanoseconds, whatever the file says (most files count microseconds); it
//! gives up at the first block that is damaged, where this one looks for the next that is not;
//! and it builds a list of options for every packet, where this one allocates nothing.

mod batch;
mod buffer;
mod pcap;
mod pcapng;

use std::fmt;
use std::io::{self, Read};

pub use self::batch::Batch;
use self::buffer::{Buffer, Halt};
use self::pcap::Pcap;
use self::pcapng::PcapNg;
use crate::{LinkType, RawFrame, Timestamp};

/// A capture that is read frame by frame, in bounded memory.
///
/// ```
/// use roce_dissect::{Capture, Event};
///
/// let mut file = Vec::new();
/// file.extend(0xa1b2_c3d4u32.to_le_bytes()); // pcap, microseconds
/// file.extend([2, 0, 4, 0]); // version
/// file.extend([0; 8]);
/// file.extend(65_535u32.to_le_bytes());
/// file.extend(1u32.to_le_bytes()); // Ethernet
/// file.extend([7u32, 5, 4, 60].map(u32::to_le_bytes).concat());
/// file.extend([1, 2, 3, 4]);
///
/// let mut capture = Capture::open(&file[..])?;
/// let Some(Event::Frame(frame)) = capture.next_event()? else { panic!() };
/// assert_eq!((frame.number, frame.bytes, frame.original_len), (1, &[1, 2, 3, 4][..], 60));
/// assert_eq!(frame.time.0, 7_000_005_000);
/// assert!(capture.next_event()?.is_none());
/// # Ok::<(), roce_dissect::CaptureError>(())
/// ```
#[derive(Debug)]
pub struct Capture<R> {
    buffer: Buffer<R>,
    format: Format,
    frames: u64,
}

#[derive(Debug)]
enum Format {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

/// What comes next in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A frame.
    Frame(RawFrame<'a>),
    /// A part of the file that makes no sense; reading goes on behind it.
    Damage(Damage),
}

/// A part of a capture that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins, in bytes from the start of the file.
    pub offset: u64,
    /// What is wrong with it.
    pub kind: DamageKind,
    /// Bytes left out until something made sense again, or the file ended.
    pub skipped: u64,
}

/// What is wrong with a part of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageKind {
    /// The file ends in the middle of something.
    Cut,
    /// A packet header says what cannot be.
    PacketHeader,
    /// A block's length is impossible, or not repeated at its end.
    BlockLength,
    /// A block is too short for what it has to hold.
    BlockContent,
    /// A packet names an interface that was not described.
    Interface(u32),
    /// More interfaces than anybody has.
    TooManyInterfaces,
    /// A section in an unknown byte order or version.
    Section,
}

/// What was found, and where it stands in the memory that was read into.
#[derive(Clone, Copy, Debug)]
enum Found {
    Frame(Place),
    Damage(Damage),
}

/// A frame, without its bytes.
#[derive(Clone, Copy, Debug)]
struct Place {
    number: u64,
    time: Timestamp,
    link: LinkType,
    original_len: u32,
    /// Of its first byte.
    at: usize,
    len: usize,
}

/// Why a capture cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The operating system's reason.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is none.
    #[error("{0}")]
    NotACapture(NotACapture),
}

/// What a file is that is no capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotACapture {
    /// Nothing.
    Empty,
    /// A capture that ends before its first packet can begin.
    Cut,
    /// Compressed by this program.
    Compressed(&'static str),
    /// Something else, which begins with these bytes.
    Unknown([u8; 4]),
}

impl<R: Read> Capture<R> {
    /// Reads the head of a capture.
    ///
    /// # Errors
    /// [`CaptureError::NotACapture`] where it is none, or the reader's reason.
    pub fn open(reader: R) -> Result<Self, CaptureError> {
        let mut buffer = Buffer::new(reader);
        buffer.fill(4).map_err(io::Error::from)?;
        let no_capture = |reason| Err(CaptureError::NotACapture(reason));
        let magic = match *buffer.bytes() {
            [] => return no_capture(NotACapture::Empty),
            [a, b, c, d, ..] => [a, b, c, d],
            ref short => {
                let mut magic = [0; 4];
                magic[..short.len()].copy_from_slice(short);
                magic
            }
        };
        let format = match magic {
            [0x1f, 0x8b, ..] => return no_capture(NotACapture::Compressed("gunzip")),
            [0x28, 0xb5, 0x2f, 0xfd] => return no_capture(NotACapture::Compressed("zstd -d")),
            [0xfd, b'7', b'z', b'X'] => return no_capture(NotACapture::Compressed("xz -d")),
            pcapng::SECTION => Format::PcapNg(PcapNg::default()),
            magic if Pcap::knows(magic) => {
                match Pcap::open(&mut buffer).map_err(io::Error::from)? {
                    Some(pcap) => Format::Pcap(pcap),
                    None => return no_capture(NotACapture::Cut),
                }
            }
            magic => return no_capture(NotACapture::Unknown(magic)),
        };
        Ok(Self { buffer, format, frames: 0 })
    }

    /// The next frame, or the next part that makes no sense; `None` at the end.
    ///
    /// # Errors
    /// The reader's reason.
    pub fn next_event(&mut self) -> io::Result<Option<Event<'_>>> {
        let found = self.find()?;
        Ok(found.map(|found| found.event(self.buffer.memory())))
    }

    /// Fills `batch` with what comes next: all frames that are whole in what one reading brought.
    /// False at the end, with nothing in the batch.
    ///
    /// It reads only while it has found nothing, so a frame that arrives is not kept waiting for
    /// others. Damage is handed over in its place among the frames.
    ///
    /// # Errors
    /// The reader's reason, with nothing in the batch.
    ///
    /// ```
    /// use roce_dissect::{Batch, Capture, Dissector, Event, FrameAnalysis, Options};
    /// # let file = [&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0][..], &[0; 12], &[1, 0, 0, 0]].concat();
    ///
    /// let mut capture = Capture::open(&file[..])?;
    /// let mut dissector = Dissector::new(Options::default());
    /// let mut batch = Batch::new();
    /// while capture.next_batch(&mut batch)? {
    ///     // This may be done in several threads, each with a batch of its own …
    ///     let analyses: Vec<FrameAnalysis<'_>> = batch.events().filter_map(|event| match event {
    ///         Event::Frame(frame) => Some(FrameAnalysis::of(frame)),
    ///         Event::Damage(_) => None,
    ///     }).collect();
    ///     // … and this is done in the order of the batches.
    ///     for analysis in &analyses {
    ///         dissector.follow(analysis, |packet| println!("{}", packet.summary_line()));
    ///     }
    /// }
    /// # Ok::<(), roce_dissect::CaptureError>(())
    /// ```
    pub fn next_batch(&mut self, batch: &mut Batch) -> io::Result<bool> {
        batch.found.clear();
        self.buffer.take_over(std::mem::take(&mut batch.memory));
        loop {
            match self.find() {
                Ok(Some(found)) => {
                    self.buffer.lend();
                    batch.found.push(found);
                }
                Ok(None) | Err(Halt::Lent) => break,
                Err(Halt::Io(error)) => return Err(error),
            }
        }
        batch.memory = self.buffer.give_away();
        batch.offset = self.buffer.offset();
        Ok(!batch.found.is_empty())
    }

    #[inline]
    fn find(&mut self) -> Result<Option<Found>, Halt> {
        let number = self.frames + 1;
        let found = match &mut self.format {
            Format::Pcap(pcap) => pcap.find(&mut self.buffer, number)?,
            Format::PcapNg(pcapng) => pcapng.find(&mut self.buffer, number)?,
        };
        self.frames += u64::from(matches!(found, Some(Found::Frame(_))));
        Ok(found)
    }

    /// Bytes of the file that were read so far.
    pub fn offset(&self) -> u64 {
        self.buffer.offset()
    }
}

impl Found {
    /// With the bytes of the frame, which stand in `memory`.
    fn event<'a>(&self, memory: &'a [u8]) -> Event<'a> {
        match *self {
            Self::Damage(damage) => Event::Damage(damage),
            Self::Frame(Place { number, time, link, original_len, at, len }) => {
                let bytes = &memory[at..at + len];
                let segment_len = None;
                Event::Frame(RawFrame { number, time, link, original_len, bytes, segment_len })
            }
        }
    }
}

impl From<Halt> for io::Error {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Io(error) => error,
            // Frames are lent out while a batch is filled, and at no other time.
            Halt::Lent => Self::other("frames of the capture are lent out"),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the file is damaged at byte {}: ", self.offset)?;
        match self.kind {
            DamageKind::Cut => f.write_str("it ends in the middle of a packet")?,
            DamageKind::PacketHeader => f.write_str("a packet header says what cannot be")?,
            DamageKind::BlockLength => f.write_str("a block's length is impossible")?,
            DamageKind::BlockContent => f.write_str("a block is too short for what it holds")?,
            DamageKind::Interface(number) => write!(f, "interface {number} was not described")?,
            DamageKind::TooManyInterfaces => f.write_str("too many interfaces")?,
            DamageKind::Section => f.write_str("a section of unknown byte order or version")?,
        }
        match self.skipped {
            0 => Ok(()),
            skipped => write!(f, "; {skipped} bytes left out"),
        }
    }
}

impl fmt::Display for NotACapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("not a capture: it is empty"),
            Self::Cut => f.write_str("not a capture: it ends before its first packet"),
            Self::Compressed(program) => {
                write!(f, "not a capture but compressed: pipe it through `{program}`")
            }
            Self::Unknown([a, b, c, d]) => write!(
                f,
                "not a capture: it begins with {a:02x} {b:02x} {c:02x} {d:02x}, as no pcap or \
                 pcapng file does"
            ),
        }
    }
}

/// A longer packet is a sign of damage. The most that libpcap writes is 256 KiB.
const LONGEST_FRAME: usize = 256 << 10;

#[cfg(test)]
mod tests;
