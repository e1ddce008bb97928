//! What is found about a packet: what is wrong with it, what happened, what it completed.

use std::fmt;
use std::time::Duration;

use roce_wire::{NakCode, Opcode, Operation, Psn, RnrTimer, WireError};

/// One thing found about a packet.
///
/// [`name`](Self::name) is stable and meant for programs, `Display` for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// The capture kept only a part of the frame.
    Truncated {
        /// Bytes that are here.
        captured: u32,
        /// Bytes that there were.
        original: u32,
    },
    /// A header did not fit, or says what cannot be.
    Wire(WireError),
    /// The IP header promises more bytes than the frame has.
    IpLength {
        /// Bytes that the IP header promises, itself included.
        promised: u32,
        /// Bytes that are there.
        have: u32,
    },
    /// The UDP length does not fit the length in the IP header.
    UdpLength {
        /// The UDP length, header included.
        udp: u32,
        /// What the IP header leaves for it.
        ip: u32,
    },
    /// The IPv4 header checksum is wrong.
    Ipv4Checksum {
        /// As it stands.
        carried: u16,
        /// As it should stand.
        expected: u16,
    },
    /// The UDP checksum is wrong.
    UdpChecksum {
        /// As it stands.
        carried: u16,
        /// As it should stand.
        expected: u16,
    },
    /// A fragment of an IP packet: RoCE has none.
    Fragment,
    /// The ICRC is wrong.
    Icrc {
        /// As it stands, first byte lowest.
        carried: u32,
        /// As it should stand.
        expected: u32,
    },
    /// The ICRC could not be checked.
    IcrcUnchecked(IcrcSkipped),
    /// Reserved bits that are not zero: receivers take no notice.
    ReservedBits {
        /// Where.
        place: &'static str,
        /// The bits.
        value: u32,
    },
    /// Pad bytes that are not zero: receivers take no notice.
    PadNotZero,
    /// The first or a middle packet of a message does not carry a whole path MTU.
    NotOneMtu {
        /// Payload bytes.
        len: u32,
        /// The path MTU, where it is known.
        mtu: Option<u16>,
    },
    /// More payload than the path MTU.
    AboveMtu {
        /// Payload bytes.
        len: u32,
        /// The path MTU.
        mtu: u16,
    },
    /// The last packet of a message carries nothing.
    EmptyLast,
    /// The bytes of the message are not as many as its first packet promised.
    MessageLength {
        /// What the RETH said.
        promised: u64,
        /// What came.
        carried: u64,
    },
    /// This opcode may not follow the one before it.
    OpcodeSequence {
        /// The one before; `None` when no message was open.
        before: Option<Opcode>,
    },
    /// Packets are missing in front of this one.
    Gap {
        /// What the receiver waits for.
        expected: Psn,
        /// How many are missing.
        missing: u32,
    },
    /// It comes behind a gap that is still open: the receiver drops it.
    BehindGap {
        /// What the receiver waits for.
        expected: Psn,
    },
    /// The receiver has had it.
    Duplicate {
        /// How many packets behind what the receiver expects.
        behind: u32,
    },
    /// It was seen before.
    Retransmission,
    /// The receiver refuses.
    Nak(NakCode),
    /// The receiver was not ready.
    Rnr(RnrTimer),
    /// An AETH whose syndrome nobody has defined.
    ReservedSyndrome(u8),
    /// It acknowledges what was never sent.
    GhostAck {
        /// How far beyond the last packet sent.
        ahead: u32,
    },
    /// The message sequence number is not the count of messages that the responder has done with.
    MessageCount {
        /// As it stands.
        msn: u32,
        /// The least that it should be.
        first: u32,
        /// The most, which is the same where nothing else was under way.
        last: u32,
    },
    /// It answers no request that was seen.
    Unrequested,
    /// Requests were outstanding, and nothing was seen for long.
    Stall(Duration),
    /// A router marked it: there is congestion on its way.
    CongestionMarked,
    /// Its receiver is asked to slow down.
    CongestionNotified,
    /// A message over an unreliable service lost a packet and with it its whole.
    MessageLost,
    /// It ends a message.
    MessageEnd {
        /// What the message was.
        operation: Operation,
        /// Its bytes.
        bytes: u64,
        /// Packets that carried it.
        packets: u32,
        /// From the first of them to the last; for a READ from the request.
        took: Duration,
    },
    /// It acknowledges requests.
    Acknowledges {
        /// How many packets it acknowledges for the first time.
        packets: u32,
        /// Since the last of them was sent, where it was sent once.
        after: Option<Duration>,
    },
    /// It answers a READ or an atomic.
    Answers {
        /// The number of the frame that asked.
        request: u64,
        /// Since it asked.
        after: Duration,
    },
    /// The first packet of this queue pair in the capture: what was before is not known.
    Joined,
}

/// Why an ICRC could not be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IcrcSkipped {
    /// Some of the packet is not in the capture.
    Truncated,
    /// The ICRC is not defined over IPv4 options.
    Ipv4Options,
    /// The ICRC is not defined over IPv6 extension headers.
    Ipv6Extensions,
    /// A fragment has no ICRC, or one over what is not here.
    Fragment,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The course of things.
    Info,
    /// Unusual, and no harm done.
    Notice,
    /// Something is wrong, or was lost.
    Problem,
}

impl Finding {
    /// How much it matters.
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
            | Self::CongestionNotified => Severity::Notice,
            _ => Severity::Problem,
        }
    }

    /// A stable name, for programs: `docs/dissect.md` lists them.
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
                write!(f, "IP promises {promised} bytes, {have} are there")
            }
            Self::UdpLength { udp, ip } => write!(f, "UDP length {udp}, IP leaves {ip}"),
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
                write!(f, "{len} bytes where a whole path MTU of {mtu} belongs")
            }
            Self::NotOneMtu { len, mtu: None } => {
                write!(f, "{len} bytes where a whole path MTU belongs")
            }
            Self::AboveMtu { len, mtu } => write!(f, "{len} bytes, above the path MTU of {mtu}"),
            Self::EmptyLast => f.write_str("the last packet of a message carries nothing"),
            Self::MessageLength { promised, carried } => {
                write!(f, "message of {carried} bytes, {promised} promised")
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
            Self::BehindGap { expected } => write!(f, "dropped: {expected} is still missing"),
            Self::Duplicate { behind } => write!(f, "duplicate, {behind} behind"),
            Self::Retransmission => f.write_str("retransmission"),
            Self::Nak(code) => write!(f, "NAK: {code}"),
            Self::Rnr(timer) => {
                write!(f, "receiver not ready, wait {}", DisplayDuration(timer.duration()))
            }
            Self::ReservedSyndrome(byte) => write!(f, "reserved syndrome {byte:#04x}"),
            Self::GhostAck { ahead } => {
                write!(f, "acknowledges what was never sent, {ahead} ahead")
            }
            Self::MessageCount { msn, first, last } if first == last => {
                write!(f, "counts {msn} messages, expected {first}")
            }
            Self::MessageCount { msn, first, last } => {
                write!(f, "counts {msn} messages, expected {first} to {last}")
            }
            Self::Unrequested => f.write_str("answers no request seen"),
            Self::Stall(long) => write!(f, "after a stall of {}", DisplayDuration(long)),
            Self::CongestionMarked => f.write_str("ECN: congestion met"),
            Self::CongestionNotified => f.write_str("slow down"),
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
                write!(f, "answers #{request} after {}", DisplayDuration(after))
            }
            Self::Joined => f.write_str("first seen"),
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
            Self::Truncated => "the packet is not all here",
            Self::Ipv4Options => "not defined over IPv4 options",
            Self::Ipv6Extensions => "not defined over IPv6 extension headers",
            Self::Fragment => "a fragment",
        })
    }
}

/// A duration with three digits that matter: `12.3 µs`.
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

/// Bits per second: `6.19 Gb/s`.
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
