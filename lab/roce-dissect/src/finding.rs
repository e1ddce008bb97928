//! Findings about packets: errors, losses, completed messages.

use std::fmt;
use std::time::Duration;

use roce_wire::{Ecn, NakCode, Opcode, Operation, Psn, RnrTimer, WireError};

/// A finding about a packet.
///
/// [`name`](Self::name) is stable and meant for programs, `Display` for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// The capture truncated the frame.
    Truncated {
        /// Captured bytes.
        captured: u32,
        /// Bytes on the wire.
        original: u32,
    },
    /// A header is incomplete or has an impossible value.
    Wire(WireError),
    /// The IP length does not fit the frame.
    IpLength {
        /// Length in the IP header, with the header, in bytes.
        promised: u32,
        /// Bytes in the frame from the IP header on.
        have: u32,
    },
    /// The UDP length does not fit the IP length.
    UdpLength {
        /// UDP length with its header, in bytes.
        udp: u32,
        /// Bytes of the IP payload.
        ip: u32,
    },
    /// The IPv4 header checksum is wrong.
    Ipv4Checksum {
        /// Value in the packet.
        carried: u16,
        /// Correct value.
        expected: u16,
    },
    /// The UDP checksum is wrong.
    UdpChecksum {
        /// Value in the packet.
        carried: u16,
        /// Correct value.
        expected: u16,
    },
    /// The packet is an IP fragment; RoCE packets are never fragmented.
    Fragment,
    /// The ICRC is wrong.
    Icrc {
        /// Value in the packet, first byte lowest.
        carried: u32,
        /// Correct value.
        expected: u32,
    },
    /// The ICRC was not checked.
    IcrcUnchecked(IcrcSkipped),
    /// Reserved bits are not zero; receivers ignore this.
    ReservedBits {
        /// Field.
        place: &'static str,
        /// The bits.
        value: u32,
    },
    /// Pad bytes are not zero; receivers ignore this.
    PadNotZero,
    /// A First or Middle packet does not carry exactly one path MTU.
    NotOneMtu {
        /// Payload bytes.
        len: u32,
        /// Path MTU, if known.
        mtu: Option<u16>,
    },
    /// The payload exceeds the path MTU.
    AboveMtu {
        /// Payload bytes.
        len: u32,
        /// Path MTU.
        mtu: u16,
    },
    /// A Last packet has no payload.
    EmptyLast,
    /// The message length differs from the RETH.
    MessageLength {
        /// Length in the RETH.
        promised: u64,
        /// Bytes received.
        carried: u64,
    },
    /// The opcode may not follow the previous one.
    OpcodeSequence {
        /// Previous opcode; `None` if no message was open.
        before: Option<Opcode>,
    },
    /// Packets before this one are missing.
    Gap {
        /// First missing PSN.
        expected: Psn,
        /// Number of missing packets from there on.
        missing: u32,
    },
    /// The packet follows a gap that is still open: the receiver keeps it, or drops it.
    BehindGap {
        /// First missing PSN.
        expected: Psn,
    },
    /// The receiver has the packet already.
    Duplicate {
        /// Number of packets before the expected PSN.
        behind: u32,
    },
    /// The packet was sent before.
    Retransmission,
    /// The responder sends a NAK.
    Nak(NakCode),
    /// The responder sends an RNR NAK.
    Rnr(RnrTimer),
    /// The AETH syndrome is reserved.
    ReservedSyndrome(u8),
    /// The packet acknowledges a PSN that was never sent.
    GhostAck {
        /// PSNs after the last one sent.
        ahead: u32,
    },
    /// The message sequence number is not the number of messages that the responder completed.
    MessageCount {
        /// Value in the packet.
        msn: u32,
        /// Minimum correct value.
        first: u32,
        /// Maximum correct value; equal to `first` if no other message was in progress.
        last: u32,
    },
    /// The response matches no captured request.
    Unrequested,
    /// Requests were outstanding, and no packet was captured for this time.
    Stall(Duration),
    /// A router marked the packet: congestion experienced (ECN).
    CongestionMarked,
    /// Congestion notification: the receiver is asked to reduce its rate.
    CongestionNotified,
    /// The first CNP for a sender of which the capture has no marked packet, though it has the
    /// sender's packets from their start or for longer than a CNP takes.
    CnpWithoutMark {
        /// The sender's packets are ECN-capable. Switches mark no others.
        is_capable: bool,
    },
    /// More CNPs for a sender than receivers send.
    CnpRate {
        /// Number of CNPs.
        cnps: u32,
        /// Time in which they came.
        time: Duration,
    },
    /// The CNP itself is ECN-capable or marked; CNPs are sent as Not-ECT.
    CnpEcn(Ecn),
    /// The packet is marked, though such packets of its sender are Not-ECT, which no switch marks.
    MarkWithoutEct,
    /// An unreliable message is lost because one of its packets is.
    MessageLost,
    /// The packet ends a message.
    MessageEnd {
        /// Operation of the message.
        operation: Operation,
        /// Length of the message in bytes.
        bytes: u64,
        /// Number of packets.
        packets: u32,
        /// Time from the first packet to the last; for a READ from the request.
        took: Duration,
    },
    /// The packet acknowledges requests.
    Acknowledges {
        /// Number of newly acknowledged packets.
        packets: u32,
        /// Time since the last of them was sent, if it was sent once.
        after: Option<Duration>,
    },
    /// The packet is the response to a READ or an atomic.
    Answers {
        /// Frame number of the request.
        request: u64,
        /// Time since the request.
        after: Duration,
    },
    /// First captured packet of this queue pair; earlier packets are unknown.
    Joined,
}

/// Reason why an ICRC was not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IcrcSkipped {
    /// Part of the packet was not captured.
    Truncated,
    /// The ICRC is not defined over IPv4 options.
    Ipv4Options,
    /// The ICRC is not defined over IPv6 extension headers.
    Ipv6Extensions,
    /// The packet is an IP fragment.
    Fragment,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Normal operation.
    Info,
    /// Unusual, but harmless.
    Notice,
    /// An error or a loss.
    Problem,
}

impl Finding {
    /// Returns the severity.
    pub const fn severity(&self) -> Severity {
        match self {
            Self::MessageEnd { .. }
            | Self::Acknowledges { .. }
            | Self::Answers { .. }
            | Self::Joined => Severity::Info,
            Self::Truncated { .. }
            | Self::IcrcUnchecked(_)
            | Self::ReservedBits { .. }
            | Self::PadNotZero
            | Self::CongestionMarked
            | Self::CongestionNotified
            | Self::CnpWithoutMark { .. }
            | Self::CnpRate { .. }
            | Self::CnpEcn(_) => Severity::Notice,
            _ => Severity::Problem,
        }
    }

    /// The names of all findings but those of short or invalid headers, which begin with `drop_`.
    pub const NAMES: &[&str] = &[
        "truncated",
        "ip_length",
        "udp_length",
        "ipv4_checksum",
        "udp_checksum",
        "fragment",
        "icrc",
        "icrc_unchecked",
        "reserved_bits",
        "pad_not_zero",
        "not_one_mtu",
        "above_mtu",
        "empty_last",
        "message_length",
        "opcode_sequence",
        "gap",
        "behind_gap",
        "duplicate",
        "retransmission",
        "nak",
        "rnr",
        "reserved_syndrome",
        "ghost_ack",
        "message_count",
        "unrequested",
        "stall",
        "congestion_marked",
        "congestion_notified",
        "cnp_without_mark",
        "cnp_rate",
        "cnp_ecn",
        "mark_without_ect",
        "message_lost",
        "message_end",
        "acknowledges",
        "answers",
        "joined",
    ];

    /// Returns a stable name for programs; `docs/dissect.md` lists them.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "truncated",
            Self::Wire(error) => error.counter(),
            Self::IpLength { .. } => "ip_length",
            Self::UdpLength { .. } => "udp_length",
            Self::Ipv4Checksum { .. } => "ipv4_checksum",
            Self::UdpChecksum { .. } => "udp_checksum",
            Self::Fragment => "fragment",
            Self::Icrc { .. } => "icrc",
            Self::IcrcUnchecked(_) => "icrc_unchecked",
            Self::ReservedBits { .. } => "reserved_bits",
            Self::PadNotZero => "pad_not_zero",
            Self::NotOneMtu { .. } => "not_one_mtu",
            Self::AboveMtu { .. } => "above_mtu",
            Self::EmptyLast => "empty_last",
            Self::MessageLength { .. } => "message_length",
            Self::OpcodeSequence { .. } => "opcode_sequence",
            Self::Gap { .. } => "gap",
            Self::BehindGap { .. } => "behind_gap",
            Self::Duplicate { .. } => "duplicate",
            Self::Retransmission => "retransmission",
            Self::Nak(_) => "nak",
            Self::Rnr(_) => "rnr",
            Self::ReservedSyndrome(_) => "reserved_syndrome",
            Self::GhostAck { .. } => "ghost_ack",
            Self::MessageCount { .. } => "message_count",
            Self::Unrequested => "unrequested",
            Self::Stall(_) => "stall",
            Self::CongestionMarked => "congestion_marked",
            Self::CongestionNotified => "congestion_notified",
            Self::CnpWithoutMark { .. } => "cnp_without_mark",
            Self::CnpRate { .. } => "cnp_rate",
            Self::CnpEcn(_) => "cnp_ecn",
            Self::MarkWithoutEct => "mark_without_ect",
            Self::MessageLost => "message_lost",
            Self::MessageEnd { .. } => "message_end",
            Self::Acknowledges { .. } => "acknowledges",
            Self::Answers { .. } => "answers",
            Self::Joined => "joined",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { captured, original } => {
                write!(f, "only {captured} of {original} bytes captured")
            }
            Self::Wire(error) => write!(f, "{error}"),
            Self::IpLength { promised, have } => {
                write!(f, "IP length {promised}, but the frame has {have} bytes")
            }
            Self::UdpLength { udp, ip } => write!(f, "UDP length {udp}, but IP carries {ip} bytes"),
            Self::Ipv4Checksum { carried, expected } => {
                write!(f, "IPv4 checksum {carried:#06x}, expected {expected:#06x}")
            }
            Self::UdpChecksum { carried, expected } => {
                write!(f, "UDP checksum {carried:#06x}, expected {expected:#06x}")
            }
            Self::Fragment => f.write_str("IP fragment"),
            Self::Icrc { carried, expected } => {
                write!(f, "ICRC {carried:#010x}, expected {expected:#010x}")
            }
            Self::IcrcUnchecked(why) => write!(f, "ICRC not checked: {why}"),
            Self::ReservedBits { place, value } => write!(f, "reserved bits {value:#x} in {place}"),
            Self::PadNotZero => f.write_str("pad is not zero"),
            Self::NotOneMtu { len, mtu: Some(mtu) } => {
                write!(f, "{len} bytes, not a whole path MTU of {mtu}")
            }
            Self::NotOneMtu { len, mtu: None } => {
                write!(f, "{len} bytes, not a whole path MTU")
            }
            Self::AboveMtu { len, mtu } => write!(f, "{len} bytes, above the path MTU of {mtu}"),
            Self::EmptyLast => f.write_str("the last packet of a message is empty"),
            Self::MessageLength { promised, carried } => {
                write!(f, "message of {carried} bytes, {promised} announced")
            }
            Self::OpcodeSequence { before: Some(before) } => match before.info() {
                Some(_) => write!(f, "may not follow {}", name_of(before)),
                None => write!(f, "may not follow opcode {:#04x}", before.0),
            },
            Self::OpcodeSequence { before: None } => f.write_str("no message is open"),
            Self::Gap { expected, missing: 1 } => write!(f, "gap: {expected} is missing"),
            Self::Gap { expected, missing } => {
                write!(f, "gap: {missing} packets from {expected} on are missing")
            }
            Self::BehindGap { expected } => {
                write!(f, "kept or dropped: {expected} is still missing")
            }
            Self::Duplicate { behind } => write!(f, "duplicate, {behind} behind"),
            Self::Retransmission => f.write_str("retransmission"),
            Self::Nak(code) => write!(f, "NAK: {code}"),
            Self::Rnr(timer) => {
                write!(f, "receiver not ready, wait {}", DisplayDuration(timer.duration()))
            }
            Self::ReservedSyndrome(byte) => write!(f, "reserved syndrome {byte:#04x}"),
            Self::GhostAck { ahead } => {
                write!(f, "acknowledges a PSN that was never sent, {ahead} ahead")
            }
            Self::MessageCount { msn, first, last } if first == last => {
                write!(f, "counts {msn} messages, expected {first}")
            }
            Self::MessageCount { msn, first, last } => {
                write!(f, "counts {msn} messages, expected {first} to {last}")
            }
            Self::Unrequested => f.write_str("response without a captured request"),
            Self::Stall(long) => write!(f, "after a stall of {}", DisplayDuration(long)),
            Self::CongestionMarked => f.write_str("ECN: congestion experienced"),
            Self::CongestionNotified => f.write_str("congestion notification"),
            Self::CnpWithoutMark { is_capable: true } => f.write_str(
                "no packet of this queue pair was marked before, at this point of the path",
            ),
            Self::CnpWithoutMark { is_capable: false } => {
                f.write_str("this queue pair sends Not-ECT packets, and no switch marks them")
            }
            Self::CnpRate { cnps, time } => {
                write!(f, "{cnps} CNPs in {}, more than one in 4 µs", DisplayDuration(time))
            }
            Self::CnpEcn(Ecn::CongestionExperienced) => f.write_str("a CNP that is marked itself"),
            Self::CnpEcn(_) => f.write_str("a CNP that is ECN-capable itself"),
            Self::MarkWithoutEct => f.write_str("marked, though its sender sends Not-ECT"),
            Self::MessageLost => f.write_str("message lost"),
            Self::MessageEnd { operation, bytes, packets, took } => {
                message_end(f, operation, bytes, packets, took)
            }
            Self::Acknowledges { packets, after } => {
                match packets {
                    1 => f.write_str("acks 1 packet")?,
                    many => write!(f, "acks {many} packets")?,
                }
                after.map_or(Ok(()), |after| write!(f, " after {}", DisplayDuration(after)))
            }
            Self::Answers { request, after } => {
                write!(f, "response to #{request} after {}", DisplayDuration(after))
            }
            Self::Joined => f.write_str("first packet seen"),
        }
    }
}

fn name_of(opcode: Opcode) -> &'static str {
    roce_wire::KnownOpcode::new(opcode).map_or("an unknown opcode", |known| known.name())
}

fn message_end(
    f: &mut fmt::Formatter<'_>,
    operation: Operation,
    bytes: u64,
    packets: u32,
    took: Duration,
) -> fmt::Result {
    let what = match operation {
        Operation::Send => "SEND",
        Operation::Write => "WRITE",
        Operation::ReadResponse | Operation::ReadRequest => "READ",
        _ => "message",
    };
    write!(f, "{what} of {bytes} bytes in {packets} packets")?;
    if took.is_zero() {
        return Ok(());
    }
    let bits_per_second = bytes as f64 * 8.0 / took.as_secs_f64();
    write!(f, ", {}, {}", DisplayDuration(took), DisplayRate(bits_per_second))
}

impl fmt::Display for IcrcSkipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the packet is truncated",
            Self::Ipv4Options => "not defined over IPv4 options",
            Self::Ipv6Extensions => "not defined over IPv6 extension headers",
            Self::Fragment => "a fragment",
        })
    }
}

/// Displays a duration with three significant digits: `12.3 µs`.
///
/// ```
/// use roce_dissect::DisplayDuration;
/// use std::time::Duration;
/// assert_eq!(DisplayDuration(Duration::from_nanos(12_345)).to_string(), "12.3 µs");
/// assert_eq!(DisplayDuration(Duration::from_millis(1500)).to_string(), "1.50 s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisplayDuration(pub Duration);

impl fmt::Display for DisplayDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos() as f64;
        let (value, unit) = match nanos {
            n if n < 999.5 => return write!(f, "{n:.0} ns"),
            n if n < 999.5e3 => (n / 1e3, "µs"),
            n if n < 999.5e6 => (n / 1e6, "ms"),
            n => (n / 1e9, "s"),
        };
        three_digits(f, value, unit)
    }
}

/// Displays a rate in bits per second with three significant digits: `6.19 Gb/s`.
///
/// ```
/// assert_eq!(roce_dissect::DisplayRate(6.19e9).to_string(), "6.19 Gb/s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DisplayRate(pub f64);

impl fmt::Display for DisplayRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            rate if rate < 999.5e3 => (rate / 1e3, "kb/s"),
            rate if rate < 999.5e6 => (rate / 1e6, "Mb/s"),
            rate => (rate / 1e9, "Gb/s"),
        };
        three_digits(f, value, unit)
    }
}

fn three_digits(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    match value {
        v if v < 9.995 => write!(f, "{v:.2} {unit}"),
        v if v < 99.95 => write!(f, "{v:.1} {unit}"),
        v => write!(f, "{v:.0} {unit}"),
    }
}
