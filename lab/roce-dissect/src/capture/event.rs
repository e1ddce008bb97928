//! The items of a capture.

use std::fmt;

use crate::{LinkType, RawFrame, Timestamp};

/// Next item of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A frame.
    Frame(RawFrame<'a>),
    /// A damaged part of the file; reading continues after it.
    Damage(Damage),
}

/// A damaged part of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Kind of the damage.
    pub kind: DamageKind,
    /// Bytes skipped up to the next intact part or the end of the file.
    pub skipped: u64,
}

/// Kind of damage to a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageKind {
    /// The file ends within a packet or block.
    Cut,
    /// A packet header has an impossible value.
    PacketHeader,
    /// A block length is impossible, or not repeated at the end of the block.
    BlockLength,
    /// A block is too short for its fields.
    BlockContent,
    /// A packet names an interface that was not described.
    Interface(u32),
    /// The section has more than 65 536 interfaces.
    TooManyInterfaces,
    /// A section has an unknown byte order or version.
    Section,
}

/// A parsed item; frames refer to the buffer memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    Frame(Place),
    Damage(Damage),
}

/// Position of a frame in the buffer memory, with its metadata.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) number: u64,
    pub(super) time: Timestamp,
    pub(super) link: LinkType,
    pub(super) original_len: u32,
    /// Offset of the first byte.
    pub(super) at: usize,
    pub(super) len: usize,
}

impl Found {
    /// Converts to an event with the bytes of the frame in `memory`.
    pub(super) fn event<'a>(&self, memory: &'a [u8]) -> Event<'a> {
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

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the file is damaged at byte {}: ", self.offset)?;
        match self.kind {
            DamageKind::Cut => f.write_str("it ends within a packet")?,
            DamageKind::PacketHeader => f.write_str("a packet header has an impossible value")?,
            DamageKind::BlockLength => f.write_str("a block length is impossible")?,
            DamageKind::BlockContent => f.write_str("a block is too short for its fields")?,
            DamageKind::Interface(number) => write!(f, "interface {number} was not described")?,
            DamageKind::TooManyInterfaces => f.write_str("too many interfaces")?,
            DamageKind::Section => f.write_str("a section of unknown byte order or version")?,
        }
        match self.skipped {
            0 => Ok(()),
            skipped => write!(f, "; {skipped} bytes skipped"),
        }
    }
}

/// Maximum length of a frame, as in libpcap. A longer one is a sign of damage.
pub(super) const MAX_FRAME_LEN: usize = 256 << 10;
