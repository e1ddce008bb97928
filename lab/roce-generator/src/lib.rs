//! Packets for tests of cards, switches and stacks, without I/O.
//!
//! A [`Draft`] is a packet in the making: of an opcode, with zeroed headers, or of a captured packet.
//! [`Change`]s set its fields by the names of `roce dissect`, to any value. A [`Rewriting`] moves captured
//! packets to other addresses and queue pairs. [`Draft::finish`] writes the IPv4 checksum and the ICRC,
//! right or deliberately wrong. A [`Script`] is a text of packets to send and of [`Filter`]s that received
//! packets have to pass, or may not.
//!
//! ```
//! use roce_generator::{Change, Draft, find_opcode};
//! use roce_wire::OuterHeaders;
//!
//! let outer = OuterHeaders::new("10.9.0.1".parse()?, "10.9.0.2".parse()?);
//! let mut draft = Draft::of_opcode(find_opcode("rc_send_only")?, b"ping", &outer)?;
//! draft.change(&["qp=0x12".parse::<Change>()?, "psn=7".parse()?, "ipv4.ttl=1".parse()?])?;
//! draft.finish();
//!
//! let mut seen = String::new();
//! roce_dissect::Dissector::new(Default::default()).handle_frame(draft.frame(), |packet| {
//!     seen = packet.summary_line();
//! });
//! assert!(seen.contains("RC SEND Only qp 0x000012 psn 0x000007 4 bytes"), "{seen}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Filter`]: roce_dissect::Filter

#![forbid(unsafe_code)]

mod change;
mod draft;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod opcode_name;
mod payload;
mod rewriting;
mod script;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use change::{Change, Series};
pub use draft::Draft;
pub use error::{ChangeError, DraftError, NameError};
pub use opcode_name::find_opcode;
pub use payload::{MAX_PAYLOAD_LEN, parse_payload};
pub use rewriting::{AddressMapping, QueuePairMapping, Rewriting};
pub use script::{
    MAX_COUNT, MAX_RATE, MAX_TIME, PacketSource, Script, ScriptError, SendStep, Step, Variables,
    parse_count, parse_rate, parse_time,
};
