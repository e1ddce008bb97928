//! A frame as a capture holds it, and what kind of link it was seen on.

use std::fmt;

use crate::Timestamp;

/// A frame as it was captured; nothing in it has been looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrame<'a> {
    /// Its place in the capture, from 1.
    pub number: u64,
    /// When it was seen.
    pub time: Timestamp,
    /// What `bytes` begin with.
    pub link: LinkType,
    /// Bytes it had on the wire; more than are here where the capture cut it short.
    pub original_len: u32,
    /// What was kept of it.
    pub bytes: &'a [u8],
    /// Where the one who captured it knew that it is a train: UDP payload bytes of each packet
    /// but the last. A capture file never says so, and the packets are then told apart by their
    /// lengths and ICRCs.
    pub segment_len: Option<usize>,
}

impl<'a> RawFrame<'a> {
    /// A whole Ethernet frame at a time of zero, such as a test or a simulation makes.
    pub const fn ethernet(number: u64, bytes: &'a [u8]) -> Self {
        Self {
            number,
            time: Timestamp(0),
            link: LinkType::Ethernet,
            original_len: bytes.len() as u32,
            bytes,
            segment_len: None,
        }
    }

    /// Did the capture cut it short?
    pub const fn is_truncated(&self) -> bool {
        (self.bytes.len() as u64) < self.original_len as u64
    }
}

/// What a captured frame begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet,
    /// Linux "cooked", version 1: what `tcpdump -i any` wrote.
    LinuxCooked,
    /// Linux "cooked", version 2: what it writes now.
    LinuxCooked2,
    /// An IP header.
    RawIp,
    /// Something that is not read here: the number from the capture.
    Other(u32),
}

impl LinkType {
    /// By the number that capture files use.
    pub const fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Ethernet,
            113 => Self::LinuxCooked,
            276 => Self::LinuxCooked2,
            // 101 is the official one; 12 and 14 are what some systems wrote for it; 228 and 229
            // are IPv4 alone and IPv6 alone.
            101 | 12 | 14 | 228 | 229 => Self::RawIp,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ethernet => f.write_str("Ethernet"),
            Self::LinuxCooked => f.write_str("Linux cooked v1"),
            Self::LinuxCooked2 => f.write_str("Linux cooked v2"),
            Self::RawIp => f.write_str("raw IP"),
            Self::Other(code) => write!(f, "link type {code}"),
        }
    }
}
