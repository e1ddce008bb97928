//! A captured frame and its link type.

use std::fmt;

use crate::Timestamp;

/// A captured frame, not parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrame<'a> {
    /// Number in the capture, from 1.
    pub number: u64,
    /// Capture time.
    pub time: Timestamp,
    /// Link type, which says what `bytes` begin with.
    pub link: LinkType,
    /// Length on the wire in bytes; more than `bytes` holds if the capture truncated the frame.
    pub original_len: u32,
    /// Captured bytes.
    pub bytes: &'a [u8],
    /// UDP payload bytes of each packet but the last, if the source knows that the frame is a
    /// train. Capture files do not record this; the dissector then finds the packets by their
    /// PSNs and ICRCs.
    pub segment_len: Option<usize>,
}

impl<'a> RawFrame<'a> {
    /// Returns a complete Ethernet frame at time zero, for tests and simulations.
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

    /// Returns true if the capture truncated the frame.
    pub const fn is_truncated(&self) -> bool {
        (self.bytes.len() as u64) < self.original_len as u64
    }
}

/// Link type: the header that a captured frame begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet,
    /// Linux "cooked" version 1, written by older versions of `tcpdump -i any`.
    LinuxCooked,
    /// Linux "cooked" version 2, written by current versions.
    LinuxCooked2,
    /// An IP header.
    RawIp,
    /// An unsupported link type, by its number in the capture.
    Other(u32),
}

impl LinkType {
    /// Returns the link type of a `LINKTYPE_` number.
    pub const fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Ethernet,
            113 => Self::LinuxCooked,
            276 => Self::LinuxCooked2,
            // 101 is the official number; some systems wrote 12 and 14; 228 is IPv4 alone and 229
            // IPv6 alone.
            101 | 12 | 14 | 228 | 229 => Self::RawIp,
            other => Self::Other(other),
        }
    }
}

impl LinkType {
    /// Returns the `LINKTYPE_` number.
    ///
    /// ```
    /// use roce_dissect::LinkType;
    /// assert_eq!(LinkType::from_code(LinkType::LinuxCooked2.code()), LinkType::LinuxCooked2);
    /// ```
    pub const fn code(self) -> u32 {
        match self {
            Self::Ethernet => 1,
            Self::LinuxCooked => 113,
            Self::LinuxCooked2 => 276,
            Self::RawIp => 101,
            Self::Other(code) => code,
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
