//! What a statement sends.

use std::net::IpAddr;

use roce_wire::KnownOpcode;

use super::limits::{parse_count, parse_rate};
use crate::{Change, NameError, find_opcode, parse_payload};

/// Packets to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendStep {
    /// What the packet is made of.
    pub source: PacketSource,
    /// Fields to set, in this order.
    pub changes: Vec<Change>,
    /// Payload of a packet of an opcode.
    pub payload: Vec<u8>,
    /// Destination; `None`: that of the command, or of the captured packet.
    pub to: Option<IpAddr>,
    /// How many packets.
    pub count: u32,
    /// Packets per second; `None`: [`DEFAULT_RATE`](Self::DEFAULT_RATE).
    pub rate: Option<u32>,
    /// The ICRC is wrong.
    pub has_wrong_icrc: bool,
}

/// What a packet is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketSource {
    /// An opcode with zeroed headers.
    Opcode(KnownOpcode),
    /// A packet of a capture.
    Capture {
        /// Name of the file.
        file: String,
        /// Number of the frame, from 1.
        frame: u64,
    },
}

impl SendStep {
    /// Packets per second of a step that gives no rate.
    pub const DEFAULT_RATE: u32 = 1000;

    /// Returns the step that sends one packet without changes.
    pub const fn new(source: PacketSource) -> Self {
        Self {
            source,
            changes: Vec::new(),
            payload: Vec::new(),
            to: None,
            count: 1,
            rate: None,
            has_wrong_icrc: false,
        }
    }

    /// Parses `OPCODE NAME=VALUE …`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let source = words.next().ok_or("nothing to send: write an opcode such as rc_send_only")?;
        let mut step = Self::new(source.parse().map_err(|it: NameError| it.to_string())?);
        let mut has_payload = false;
        for word in words {
            match word.split_once('=') {
                Some(("payload", value)) => {
                    step.payload = parse_payload(value).map_err(|it| it.to_string())?;
                    has_payload = true;
                }
                Some(("count", value)) => step.count = parse_count(value)?,
                Some(("rate", value)) => step.rate = Some(parse_rate(value)?),
                Some(("to", value)) => {
                    let address = value.parse().map_err(|_| format!("{value:?} is no IP address"));
                    step.to = Some(address?);
                }
                Some(("icrc", "wrong")) => step.has_wrong_icrc = true,
                Some(("icrc", "right")) => step.has_wrong_icrc = false,
                Some(("icrc", _)) => {
                    return Err("icrc is right or wrong; icrc.icrc=0x… sets its value".to_owned());
                }
                _ => step.changes.push(word.parse().map_err(|it: NameError| it.to_string())?),
            }
        }
        if has_payload && matches!(step.source, PacketSource::Capture { .. }) {
            return Err("a captured packet keeps its payload; payload.bytes=… changes bytes of it"
                .to_owned());
        }
        Ok(step)
    }
}

impl std::str::FromStr for PacketSource {
    type Err = NameError;

    /// Parses an opcode, or `FILE:N` for a frame of a capture.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let capture = text.rsplit_once(':').and_then(|(file, frame)| {
            let frame = frame.parse().ok().filter(|frame| *frame > 0)?;
            (!file.is_empty()).then(|| Self::Capture { file: file.to_owned(), frame })
        });
        match capture {
            Some(capture) => Ok(capture),
            None => find_opcode(text).map(Self::Opcode),
        }
    }
}
