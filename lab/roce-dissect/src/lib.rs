//! Dissector for RoCE captures: packets, checks, connections.
//!
//! Input: frames from a capture file ([`Capture`] reads pcap and pcapng) or any other source.
//! Output: a [`Packet`] for each packet in a frame, its [`Finding`]s, and the connections that
//! the packets belong to.
//!
//! The fast path reads each packet once and does not allocate. The tree of layers and fields
//! ([`Packet::layers`]) and the text of [`Packet::explain`] are built on request.
//!
//! ```
//! use roce_dissect::{Dissector, Options, RawFrame};
//! use roce_wire::*;
//!
//! let outer = OuterHeaders::new("10.9.0.2".parse()?, "10.9.0.1".parse()?);
//! let headers = Headers::new(Bth::new(
//!     opcode::RC_SEND_ONLY,
//!     Qpn::new(0x12).unwrap(),
//!     Psn::new(7).unwrap(),
//! ));
//! let mut frame = [0; 62];
//! frame[54..58].copy_from_slice(b"ping");
//! headers.emit_around(&mut frame[42..], 4);
//! seal(&outer, 1, &mut frame, 20, UdpChecksum::Zero)?;
//!
//! let mut dissector = Dissector::new(Options::default());
//! let mut seen = 0;
//! dissector.handle_frame(RawFrame::ethernet(1, &frame), |packet| {
//!     seen += 1;
//!     let layers = packet.layers();
//!     assert_eq!(layers.last().unwrap().name, "ICRC");
//!     let bth = layers.iter().find(|layer| layer.name == "BTH").unwrap();
//!     assert_eq!(bth.field("PSN").unwrap().value.to_string(), "0x000007");
//! });
//! assert_eq!(seen, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod capture;
mod dissection;
mod dissector;
mod explain;
mod filter;
mod finding;
mod flow;
mod flow_context;
mod frame;
mod frame_analysis;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod layer;
mod link;
mod named_field;
mod options;
mod outer;
mod packet;
mod pause;
mod segment;
mod summary;
mod time;
mod tree;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use capture::{Batch, Capture, CaptureError, Damage, DamageKind, Event, NotACapture};
pub use dissection::Dissection;
pub use dissector::{Dissector, Totals};
pub use explain::{Action, Explanation};
pub use filter::{Filter, FilterError};
pub use finding::{DisplayDuration, DisplayRate, Finding, IcrcSkipped, Severity};
pub use flow::{Connection, Connections, DirectionCounts, FlowEnd, Reaction, RoundTrips};
pub use flow_context::{FlowContext, FlowState};
pub use frame::{LinkType, RawFrame};
pub use frame_analysis::FrameAnalysis;
pub use layer::{Field, Layer, Value};
pub use named_field::{
    FieldKind, FieldPlace, FieldValue, FieldWriteError, NamedField, PacketFields,
};
pub use options::Options;
pub use packet::{
    Checksum, Icrc, Offsets, Other, Packet, PacketKind, Pause, PauseKind, Roce, RoceVersion,
    TrainPlace,
};
pub use summary::{Management, PacketSummary};
pub use time::Timestamp;
