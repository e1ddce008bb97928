//! What happened in a world, and when.

use std::fmt;

use bytes::Bytes;
use roce_transport::{
    AsyncEvent, Completion, CompletionOperation, Instant, QpState, RequestFault, RetransmitCause,
};
use roce_wire::{NakCode, Psn, Qpn, RnrTimer};

/// Everything that happened in a [`World`](crate::World): packets in the order in which they
/// left, events in the order in which they happened.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Every packet; its number is its place, from 0.
    pub packets: Vec<PacketRecord>,
    /// Everything that the hosts did or noticed.
    pub events: Vec<Event>,
}

/// A packet on its way from host to host.
#[derive(Clone, Debug)]
pub struct PacketRecord {
    /// Who sent it: place of the host in the world.
    pub from: usize,
    /// Whom it was sent to.
    pub to: usize,
    /// When its first bit left.
    pub sent: Instant,
    /// When its last bit arrived: once as a rule, twice when the network copied it, never when
    /// it was lost or is still on its way.
    pub arrivals: Vec<Instant>,
    /// The network lost it.
    pub lost: bool,
    /// The network changed it on the way.
    pub damaged: bool,
    /// A packet of this PSN and kind had been sent before.
    pub again: bool,
    /// How many events of the timeline had happened when it was handed to the link.
    pub events_before: usize,
    /// The frame as it was sent, from the Ethernet header to the ICRC.
    pub frame: Bytes,
}

/// Something that a host did or noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Instant,
    /// Place of the host in the world.
    pub host: usize,
    /// The queue pair concerned, where there is one.
    pub qpn: Option<Qpn>,
    /// What.
    pub kind: EventKind,
}

/// What a host did or noticed. As text it is what the lab prints.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EventKind {
    /// Work was posted: its number, and what it is in words.
    Posted {
        wr_id: u64,
        what: String,
    },
    /// Work was completed.
    Completed(Completion),
    StateChanged {
        from: QpState,
        to: QpState,
    },
    /// A NAK was decided upon.
    NakSent {
        psn: Psn,
        code: NakCode,
    },
    NakReceived {
        psn: Psn,
        code: NakCode,
    },
    /// The peer was told that no receive is posted.
    RnrSent {
        psn: Psn,
    },
    RnrReceived {
        psn: Psn,
        timer: RnrTimer,
    },
    /// Requests will be sent again from here on.
    Retransmit {
        to: Psn,
        why: RetransmitCause,
    },
    /// All requests up to this one are acknowledged.
    Acknowledged {
        up_to: Psn,
    },
    /// The send window has a new size, in packets.
    WindowResized {
        packets: u32,
    },
    /// A request of the peer's was refused.
    Refused {
        psn: Psn,
        why: RequestFault,
    },
    /// A packet was dropped, under the name of a counter.
    Dropped {
        psn: Psn,
        why: &'static str,
    },
    /// A frame never reached the engine.
    FrameRefused {
        why: String,
    },
    /// The engine raised an event that nobody had asked for.
    Async(AsyncEvent),
    /// The program on the host did something.
    Program {
        what: String,
    },
    /// The script did something to the world.
    Scripted {
        what: String,
    },
}

impl Timeline {
    /// The last moment at which anything happened.
    pub fn end(&self) -> Instant {
        let packets = self
            .packets
            .iter()
            .flat_map(|packet| packet.arrivals.iter().copied().chain([packet.sent]));
        packets.chain(self.events.iter().map(|event| event.at)).max().unwrap_or_default()
    }
}

impl EventKind {
    /// One word for a style sheet: how much someone who looks on should care.
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
            Self::Posted { wr_id, what } => write!(f, "posts work {wr_id}: {what}"),
            Self::Completed(completion) => completed(f, completion),
            Self::StateChanged { from, to } => write!(f, "queue pair {from} -> {to}"),
            Self::NakSent { psn, code } => write!(f, "decides on NAK {code}, at PSN {}", psn.get()),
            Self::NakReceived { psn, code } => {
                write!(f, "reads NAK {code}, at PSN {}", psn.get())
            }
            Self::RnrSent { psn } => {
                write!(f, "has no receive posted for PSN {}: not ready", psn.get())
            }
            Self::RnrReceived { psn, timer } => {
                write!(f, "shall try PSN {} again in {:?}", psn.get(), timer.duration())
            }
            Self::Retransmit { to, why } => {
                let why = match why.name() {
                    "ack-timeout" => "the peer stayed silent",
                    "sequence-nak" => "the peer misses it",
                    "rnr-timeout" => "the wait that the peer asked for is over",
                    "implied-nak" => "an answer is missing before one that came",
                    "tail-probe" => {
                        "nothing was heard for a while, and one packet may draw an answer"
                    }
                    "probe-timeout" => "nothing was heard in spite of a probe",
                    other => other,
                };
                write!(f, "goes back to PSN {}: {why}", to.get())
            }
            Self::Acknowledged { up_to } => {
                write!(f, "knows that all up to PSN {} has arrived", up_to.get())
            }
            Self::WindowResized { packets } => write!(f, "send window is {packets} packets now"),
            Self::Refused { psn, why } => write!(f, "refuses PSN {}: {why}", psn.get()),
            Self::Dropped { psn, why } => write!(f, "drops PSN {}: {why}", psn.get()),
            Self::FrameRefused { why } => write!(f, "drops a frame: {why}"),
            Self::Async(event) => f.write_str(match event {
                AsyncEvent::QpFatal { .. } => "event: the queue pair failed",
                AsyncEvent::QpRequestError { .. } => "event: the peer sent an invalid request",
                AsyncEvent::QpAccessError { .. } => "event: the peer's access was refused",
                AsyncEvent::CommunicationEstablished { .. } => "event: communication established",
                AsyncEvent::SendQueueDrained { .. } => "event: the send queue is drained",
                AsyncEvent::CqError { .. } => "event: a completion queue overflowed",
                other => return write!(f, "event: {other:?}"),
            }),
            Self::Program { what } | Self::Scripted { what } => f.write_str(what),
        }
    }
}

fn completed(f: &mut fmt::Formatter<'_>, completion: &Completion) -> fmt::Result {
    let Completion { wr_id, status, operation, byte_len, immediate, .. } = completion;
    let operation = match operation {
        CompletionOperation::Send => "SEND",
        CompletionOperation::Write => "WRITE",
        CompletionOperation::Read => "READ",
        CompletionOperation::CompareSwap => "compare-and-swap",
        CompletionOperation::FetchAdd => "fetch-and-add",
        CompletionOperation::LocalInvalidate => "invalidate",
        CompletionOperation::Recv => "receive",
        CompletionOperation::RecvWithImmediate => "receive with immediate",
        _ => "work",
    };
    write!(f, "completion of work {wr_id}: {operation} {}", status.name())?;
    if *status == roce_transport::CompletionStatus::Success {
        write!(f, ", {byte_len} bytes")?;
        if let Some(immediate) = immediate {
            write!(f, ", immediate {:#010x}", u32::from_be_bytes(*immediate))?;
        }
    }
    Ok(())
}
