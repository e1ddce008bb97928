//! Capture files: pcap and pcapng, from anything that can be read.
//!
//! A small reader of our own, for three reasons that were looked at: `pcap-file` takes every
//! pcapng timestamp for nanoseconds, whatever the file says (most files count microseconds); it
//! gives up at the first block that is damaged, where this one looks for the next that is not;
//! and it builds a list of options for every packet, where this one allocates nothing.

mod buffer;
mod pcap;
mod pcapng;

use std::fmt;
use std::io;

use self::buffer::Buffer;
pub use self::buffer::{CHUNK_LEN, CHUNK_ROOM, Chunks};
use self::pcap::Pcap;
use self::pcapng::PcapNg;
use crate::RawFrame;

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

impl<R: Chunks> Capture<R> {
    /// Reads the head of a capture.
    ///
    /// # Errors
    /// [`CaptureError::NotACapture`] where it is none, or the reader's reason.
    pub fn open(reader: R) -> Result<Self, CaptureError> {
        let mut buffer = Buffer::new(reader);
        buffer.fill(4)?;
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
            magic if Pcap::knows(magic) => match Pcap::open(&mut buffer)? {
                Some(pcap) => Format::Pcap(pcap),
                None => return no_capture(NotACapture::Cut),
            },
            magic => return no_capture(NotACapture::Unknown(magic)),
        };
        Ok(Self { buffer, format, frames: 0 })
    }

    /// The next frame, or the next part that makes no sense; `None` at the end.
    ///
    /// # Errors
    /// The reader's reason.
    pub fn next_event(&mut self) -> io::Result<Option<Event<'_>>> {
        let number = self.frames + 1;
        let event = match &mut self.format {
            Format::Pcap(pcap) => pcap.next_event(&mut self.buffer, number)?,
            Format::PcapNg(pcapng) => pcapng.next_event(&mut self.buffer, number)?,
        };
        self.frames += u64::from(matches!(event, Some(Event::Frame(_))));
        Ok(event)
    }

    /// Bytes of the file that were read so far.
    pub fn offset(&self) -> u64 {
        self.buffer.offset()
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
