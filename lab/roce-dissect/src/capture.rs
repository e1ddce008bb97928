//! Reader for capture files: pcap and pcapng, from any [`Read`].
//!
//! The crate `pcap-file` was not usable for three reasons. It takes every pcapng timestamp for
//! nanoseconds, although most files count microseconds. It stops at the first damaged block,
//! where this reader searches for the next intact one. It allocates a list of options for every
//! packet, where this reader allocates nothing.

mod batch;
mod buffer;
mod event;
mod pcap;
mod pcapng;

use std::fmt;
use std::io::{self, Read};

pub use self::batch::Batch;
use self::buffer::{Buffer, Halt};
use self::event::Found;
pub use self::event::{Damage, DamageKind, Event};
use self::pcap::Pcap;
use self::pcapng::PcapNg;

/// A reader of capture files, frame by frame, in bounded memory.
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

/// Reason why a file cannot be read as a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The read failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not a capture.
    #[error("{0}")]
    NotACapture(NotACapture),
}

/// Content of a file that is not a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotACapture {
    /// Empty file.
    Empty,
    /// A capture that ends within its file header.
    Cut,
    /// A compressed file; the value is the program that decompresses it.
    Compressed(&'static str),
    /// Unknown format that begins with these bytes.
    Unknown([u8; 4]),
}

impl<R: Read> Capture<R> {
    /// Reads the file header of a capture.
    ///
    /// # Errors
    /// [`CaptureError::NotACapture`] if the file is not a capture; [`CaptureError::Io`] if the read
    /// fails.
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

    /// Returns the next frame or damaged part; `None` at the end of the file.
    ///
    /// # Errors
    /// The error of the reader.
    pub fn next_event(&mut self) -> io::Result<Option<Event<'_>>> {
        let found = self.find()?;
        Ok(found.map(|found| found.event(self.buffer.memory())))
    }

    /// Fills `batch` with the next items: all complete frames of one read. Returns false at the end
    /// of the file, with an empty batch.
    ///
    /// It reads only until it has one item, so an arriving frame does not wait for further ones.
    /// Damage appears in file order among the frames.
    ///
    /// # Errors
    /// The error of the reader, with an empty batch.
    ///
    /// ```
    /// use roce_dissect::{Batch, Capture, Dissector, Event, FrameAnalysis, Options};
    /// # let file = [&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0][..], &[0; 12], &[1, 0, 0, 0]].concat();
    ///
    /// let mut capture = Capture::open(&file[..])?;
    /// let mut dissector = Dissector::new(Options::default());
    /// let mut batch = Batch::new();
    /// while capture.next_batch(&mut batch)? {
    ///     // Several threads may do this, each with its own batch …
    ///     let analyses: Vec<FrameAnalysis<'_>> = batch.events().filter_map(|event| match event {
    ///         Event::Frame(frame) => Some(FrameAnalysis::of(frame)),
    ///         Event::Damage(_) => None,
    ///     }).collect();
    ///     // … and one thread does this in the order of the batches.
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

    /// Returns the number of bytes read so far.
    pub fn offset(&self) -> u64 {
        self.buffer.offset()
    }
}

impl From<Halt> for io::Error {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Io(error) => error,
            // Frames are lent only while a batch is filled.
            Halt::Lent => Self::other("frames of the capture are lent out"),
        }
    }
}

impl fmt::Display for NotACapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("not a capture: the file is empty"),
            Self::Cut => f.write_str("not a capture: the file ends within its header"),
            Self::Compressed(program) => {
                write!(f, "the capture is compressed: pipe it through `{program}`")
            }
            Self::Unknown([a, b, c, d]) => write!(
                f,
                "not a capture: the file begins with {a:02x} {b:02x} {c:02x} {d:02x}, which is \
                 neither pcap nor pcapng"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
