//! Timeline of a world.

use std::fmt;

use bytes::Bytes;
use roce_transport::{
    AsyncEvent, Completion, CompletionOperation, Instant, QpState, RequestFault, RetransmitCause,
    SendOperation, WrData,
};
use roce_wire::{NakCode, Psn, Qpn, RnrTimer};

/// Packets of a [`World`](crate::World) in the order of transmission, and events in order of time.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Packets; the index is the packet's number, from 0.
    pub packets: Vec<PacketRecord>,
    /// Events of the hosts.
    pub events: Vec<Event>,
}

/// A packet sent from host to host.
#[derive(Clone, Debug)]
pub struct PacketRecord {
    /// Index of the sending host.
    pub from: usize,
    /// Index of the receiving host.
    pub to: usize,
    /// Time at which the first bit was sent.
    pub sent: Instant,
    /// Times at which the last bit arrived: two if the network duplicated the packet, none if it
    /// is lost or in flight.
    pub arrivals: Vec<Instant>,
    /// The network lost the packet.
    pub lost: bool,
    /// The network corrupted the packet.
    pub damaged: bool,
    /// The network set a congestion mark (CE).
    pub marked: bool,
    /// The packet is a retransmission.
    pub again: bool,
    /// Number of events of the timeline before the packet.
    pub events_before: usize,
    /// Frame as sent, from the Ethernet header to the ICRC.
    pub frame: Bytes,
    /// Length of the packets of a train, if the frame carries several.
    pub segment_len: Option<usize>,
}

/// An event on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time.
    pub at: Instant,
    /// Index of the host.
    pub host: usize,
    /// Queue pair, if the event concerns one.
    pub qpn: Option<Qpn>,
    /// Kind.
    pub kind: EventKind,
}

/// Kind of an event; its `Display` is the text that the lab prints.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EventKind {
    /// A work request was posted: its `wr_id` and a description.
    Posted {
        wr_id: u64,
        what: String,
    },
    /// A work request was completed.
    Completed(Completion),
    StateChanged {
        from: QpState,
        to: QpState,
    },
    /// The engine will send a NAK.
    NakSent {
        psn: Psn,
        code: NakCode,
    },
    NakReceived {
        psn: Psn,
        code: NakCode,
    },
    /// No receive is posted, so the engine will send an RNR NAK.
    RnrSent {
        psn: Psn,
    },
    RnrReceived {
        psn: Psn,
        timer: RnrTimer,
    },
    /// The engine will retransmit requests from this PSN on.
    Retransmit {
        to: Psn,
        why: RetransmitCause,
    },
    /// All requests up to this PSN are acknowledged.
    Acknowledged {
        up_to: Psn,
    },
    /// The send window changed to this number of packets.
    WindowResized {
        packets: u32,
    },
    /// The engine rejected a request of the peer.
    Refused {
        psn: Psn,
        why: RequestFault,
    },
    /// The engine dropped a packet; `why` is the counter's name.
    Dropped {
        psn: Psn,
        why: &'static str,
    },
    /// A frame was dropped before the engine.
    FrameRefused {
        why: String,
    },
    /// The engine raised an asynchronous event.
    Async(AsyncEvent),
    /// An action of the program on the host.
    Program {
        what: String,
    },
    /// An action of the lesson's script.
    Scripted {
        what: String,
    },
}

impl Timeline {
    /// Returns the time of the last packet or event.
    pub fn end(&self) -> Instant {
        let packets = self
            .packets
            .iter()
            .flat_map(|packet| packet.arrivals.iter().copied().chain([packet.sent]));
        packets.chain(self.events.iter().map(|event| event.at)).max().unwrap_or_default()
    }
}

impl EventKind {
    /// Returns the class name for a style sheet.
    pub const fn class(&self) -> &'static str {
        match self {
            Self::Posted { .. } => "posted",
            Self::Completed(completion) => match completion.status {
                roce_transport::CompletionStatus::Success => "completed",
                _ => "failed",
            },
            Self::StateChanged { .. } => "state",
            Self::NakSent { .. } | Self::RnrSent { .. } | Self::Refused { .. } => "trouble",
            Self::NakReceived { .. } | Self::RnrReceived { .. } | Self::Retransmit { .. } => {
                "trouble"
            }
            Self::Dropped { .. } | Self::FrameRefused { .. } => "dropped",
            Self::Acknowledged { .. } | Self::WindowResized { .. } => "minor",
            Self::Async(_) => "state",
            Self::Program { .. } => "program",
            Self::Scripted { .. } => "scripted",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Posted { wr_id, what } => write!(f, "posts WR {wr_id}: {what}"),
            Self::Completed(completion) => completed(f, completion),
            Self::StateChanged { from, to } => write!(f, "queue pair {from} -> {to}"),
            Self::NakSent { psn, code } => write!(f, "sends NAK {code} for PSN {}", psn.get()),
            Self::NakReceived { psn, code } => {
                write!(f, "receives NAK {code} for PSN {}", psn.get())
            }
            Self::RnrSent { psn } => {
                write!(f, "sends RNR NAK for PSN {}: no receive posted", psn.get())
            }
            Self::RnrReceived { psn, timer } => {
                write!(
                    f,
                    "receives RNR NAK for PSN {}: retries in {:?}",
                    psn.get(),
                    timer.duration()
                )
            }
            Self::Retransmit { to, why } => {
                let why = match why.name() {
                    "ack-timeout" => "ACK timeout",
                    "sequence-nak" => "the peer expects it",
                    "rnr-timeout" => "the RNR wait is over",
                    "implied-nak" => "a response is missing",
                    "tail-probe" => "probe timeout, sends one packet",
                    "probe-timeout" => "no response to the probe",
                    other => other,
                };
                write!(f, "retransmits from PSN {}: {why}", to.get())
            }
            Self::Acknowledged { up_to } => {
                write!(f, "all packets up to PSN {} are acknowledged", up_to.get())
            }
            Self::WindowResized { packets } => {
                write!(f, "send window changes to {packets} packets")
            }
            Self::Refused { psn, why } => write!(f, "rejects PSN {}: {why}", psn.get()),
            Self::Dropped { psn, why } => write!(f, "drops PSN {}: {why}", psn.get()),
            Self::FrameRefused { why } => write!(f, "drops a frame: {why}"),
            Self::Async(event) => f.write_str(match event {
                AsyncEvent::QpFatal { .. } => "event: queue pair error",
                AsyncEvent::QpRequestError { .. } => "event: invalid request of the peer",
                AsyncEvent::QpAccessError { .. } => "event: access violation of the peer",
                AsyncEvent::CommunicationEstablished { .. } => "event: communication established",
                AsyncEvent::SendQueueDrained { .. } => "event: the send queue is drained",
                AsyncEvent::SrqLimitReached { .. } => "event: the shared queue is below its limit",
                AsyncEvent::LastWqeReached { .. } => "event: takes no more shared receives",
                AsyncEvent::CqError { .. } => "event: a completion queue overflowed",
                other => return write!(f, "event: {other:?}"),
            }),
            Self::Program { what } | Self::Scripted { what } => f.write_str(what),
        }
    }
}

fn completed(f: &mut fmt::Formatter<'_>, completion: &Completion) -> fmt::Result {
    let Completion { wr_id, status, operation, byte_len, immediate, .. } = completion;
    let received = immediate.filter(|_| operation.is_receive());
    let operation = match operation {
        CompletionOperation::Send => "SEND",
        CompletionOperation::Write => "WRITE",
        CompletionOperation::Read => "READ",
        CompletionOperation::CompareSwap => "compare-and-swap",
        CompletionOperation::FetchAdd => "fetch-and-add",
        CompletionOperation::AtomicWrite => "ATOMIC WRITE",
        CompletionOperation::Flush => "FLUSH",
        CompletionOperation::BindWindow => "bind",
        CompletionOperation::LocalInvalidate => "invalidate",
        CompletionOperation::Recv => "receive",
        CompletionOperation::RecvWithImmediate => "receive with immediate",
        _ => "work",
    };
    write!(f, "completion of WR {wr_id}: {operation} {}", status.name())?;
    if *status == roce_transport::CompletionStatus::Success {
        write!(f, ", {byte_len} bytes")?;
        if let Some(immediate) = received {
            write!(f, ", immediate {:#010x}", u32::from_be_bytes(immediate))?;
        }
        if let Some(source) = completion.source_qpn {
            write!(f, ", from queue pair {:#x}", source.get())?;
        }
    }
    Ok(())
}

/// Returns the description of a request.
pub(crate) fn describe(operation: &SendOperation, data: &WrData) -> String {
    let len = data.len();
    let at = |remote: &roce_transport::RemoteAddr| {
        format!("at {:#x} under key {:#x}", remote.addr, remote.rkey)
    };
    match operation {
        SendOperation::Send { immediate: Some(immediate), .. } => {
            format!("SEND {len} bytes with immediate {:#010x}", u32::from_be_bytes(*immediate))
        }
        SendOperation::Send { .. } => format!("SEND {len} bytes"),
        SendOperation::Write { remote, immediate: None } => {
            format!("WRITE {len} bytes {}", at(remote))
        }
        SendOperation::Write { remote, immediate: Some(immediate) } => format!(
            "WRITE {len} bytes {} with immediate {:#010x}",
            at(remote),
            u32::from_be_bytes(*immediate)
        ),
        SendOperation::Read { remote } => format!("READ {len} bytes {}", at(remote)),
        SendOperation::CompareSwap { remote, compare, swap } => {
            format!("compare-and-swap {compare} by {swap} {}", at(remote))
        }
        SendOperation::FetchAdd { remote, add } => format!("fetch-and-add {add} {}", at(remote)),
        SendOperation::AtomicWrite { remote, value } => {
            format!("ATOMIC WRITE {value} {}", at(remote))
        }
        SendOperation::Flush { remote, len, .. } => format!("FLUSH {len} bytes {}", at(remote)),
        SendOperation::LocalInvalidate { key } => format!("invalidate key {key:#x}"),
        SendOperation::BindWindow(to) => {
            format!("bind window key {:#x} to {} bytes at {:#x}", to.rkey(), to.len, to.addr)
        }
    }
}
