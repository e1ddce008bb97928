//! Bytes to RoCEv2 headers and back.
//!
//! Headers, the opcode table, PSN arithmetic, the ICRC, the outer headers and packet trains in one
//! frame. This crate has no clock, no socket and no state. Parsing never panics and never
//! allocates.
//!
//! The feature `std`, which is on by default, lets the CRC use the instructions that the processor has. Without it the
//! crate needs no operating system.
//!
//! In: [`Frame::parse`] reads the outer headers of an Ethernet frame,
//! [`Frame::packets`] walks the packets in it (one, or a train), and
//! [`Packet::verify_icrc`] turns a packet into one to act upon.
//!
//! Out: [`Headers::emit_around`] writes the headers before a payload already in place, and [`seal`]
//! writes the outer headers of a packet or a train and the ICRC of every packet.
//!
//! ```
//! use roce_wire::*;
//!
//! let outer = OuterHeaders::new(
//!     "10.9.0.2".parse().unwrap(),
//!     "10.9.0.1".parse().unwrap(),
//! );
//! let mut headers = Headers::new(Bth::new(
//!     opcode::RC_SEND_ONLY,
//!     Qpn::new(0x12).unwrap(),
//!     Psn::new(0x12_3456).unwrap(),
//! ));
//! headers.bth.ack_request = true;
//!
//! // The payload is in place; the headers go before it, pad and ICRC after it.
//! let mut frame = [0u8; 128];
//! let start = outer.len();
//! frame[start + headers.len()..][..5].copy_from_slice(b"hello");
//! let segment_len = headers.emit_around(&mut frame[start..], 5);
//! let frame = &mut frame[..start + segment_len];
//! seal(&outer, 0x1234, frame, segment_len, UdpChecksum::Zero).unwrap();
//!
//! let received = Frame::parse(frame).unwrap();
//! for packet in received.packets(None) {
//!     let packet = packet.unwrap().verify_icrc().unwrap();
//!     assert_eq!(packet.headers(), headers.with_pad(3));
//!     assert_eq!(packet.payload(), b"hello");
//! }
//! ```

#![forbid(unsafe_code)]
// Without an allocator no length from a peer can cause an allocation.
#![cfg_attr(not(test), no_std)]

mod aeth;
mod atomic;
mod bth;
mod congestion_mark;
mod deth;
mod display;
mod error;
mod feth;
mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gap_report;
mod gid;
mod grh;
mod header_len;
mod headers;
mod icrc;
mod identification;
mod immediate;
mod instant;
mod link;
mod mac;
pub mod management;
mod mtu;
mod network_header;
pub mod opcode;
mod outer;
mod packet;
mod packet_view;
mod packets;
mod payload_crc;
mod pfc;
mod psn;
mod qpn;
mod reth;
mod rnr;
mod seal;
#[cfg(test)]
mod tests;
mod v1;
mod vlan_tag;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use aeth::{Aeth, Credits, NakCode, Syndrome};
pub use atomic::{AtomicAckEth, AtomicEth};
pub use bth::{Bth, BthView, DEFAULT_PARTITION_KEY, Pad};
pub use congestion_mark::mark_congestion;
pub use deth::{Deth, GSI_Q_KEY};
pub use error::{BadIcrc, Layer, LenError, SealError, WireError};
pub use feth::{Feth, FlushExtent};
pub use frame::{Ecn, Frame, ParseOptions};
pub use gap_report::{GapReport, GapRun, MAX_GAP_REPORT_LEN, MAX_GAP_RUNS};
pub use gid::{Gid, GidParseError};
pub use grh::{GRH_LEN, Grh};
pub use header_len::{
    AETH_LEN, ATOMIC_ACK_ETH_LEN, ATOMIC_ETH_LEN, BTH_LEN, DETH_LEN, FETH_LEN, IMMEDIATE_LEN,
    INVALIDATE_KEY_LEN, RETH_LEN,
};
pub use headers::Headers;
pub use icrc::{ICRC_LEN, expected_icrc, expected_icrc_v1};
pub use identification::IdentificationSolver;
pub use immediate::{Immediate, InvalidateKey};
pub use instant::Instant;
pub use mac::{MacAddr, MacAddrParseError};
pub use mtu::PathMtu;
pub use opcode::{
    ATOMIC_WRITE_LEN, CNP_RESERVED_LEN, Ext, KnownOpcode, Opcode, OpcodeInfo, Operation, Position,
    Service, Trailer,
};
pub use outer::{OuterHeaders, source_port_for};
pub use packet::{Packet, Unverified, Verified};
pub use packet_view::PacketView;
pub use packets::Packets;
pub use payload_crc::PayloadCrc;
pub use pfc::{PFC_FRAME_LEN, PFC_PRIORITIES, PfcError, PfcFrame};
pub use psn::Psn;
pub use qpn::Qpn;
pub use reth::Reth;
pub use rnr::RnrTimer;
pub use seal::{Sealer, Sealing, UdpChecksum, seal};
pub use v1::{FrameV1, ROCE_V1_ETHER_TYPE};
pub use vlan_tag::VlanTag;

/// The UDP destination port of every RoCEv2 packet.
//= rule wire-udp-port: RoCEv2, clause not known; include/rdma/ib_verbs.h: ROCE_V2_UDP_DPORT
//# Packets are sent to UDP port 4791.
pub const ROCE_V2_PORT: u16 = 4791;
