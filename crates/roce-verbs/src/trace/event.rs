//! Events of a trace and their text form.

use std::fmt;

use roce_transport::{
    CompletionOperation, CompletionStatus, QpState, RequestFault, RetransmitCause, SrqHandle,
};
use roce_wire::{NakCode, Psn, Qpn, RnrTimer};

/// An event of a queue pair.
///
/// ```
/// use roce_verbs::{Qpn, QpState, TraceEvent, TraceKind};
/// let event = TraceEvent {
///     at: 1_000_002_003,
///     qpn: Qpn::new(17).unwrap(),
///     kind: TraceKind::StateChanged { from: QpState::Reset, to: QpState::Init },
/// };
/// assert_eq!(event.to_string(), "1.000002 qp=17 modify_qp RESET->INIT");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Time of the event in nanoseconds since the Unix epoch, on a clock that never goes backwards; see
    /// [`Trace::now`](crate::Trace::now).
    pub at: u64,
    /// The local queue pair. For [`TraceKind::Dropped`] the destination queue pair of the packet, for
    /// [`TraceKind::PostSrqRecv`] 0.
    pub qpn: Qpn,
    /// Kind and details.
    pub kind: TraceKind,
}

/// The kind of an event, with its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceKind {
    /// It changed its state, on request or after an error.
    StateChanged {
        /// State before.
        from: QpState,
        /// State afterwards.
        to: QpState,
    },
    /// A request was posted to the send queue.
    PostSend {
        /// The application's number for it.
        wr_id: u64,
        /// Operation of the request.
        operation: CompletionOperation,
        /// Bytes of the message.
        bytes: u64,
    },
    /// A receive was posted.
    PostRecv {
        /// The application's number for it.
        wr_id: u64,
    },
    /// A receive was posted to a shared receive queue.
    PostSrqRecv {
        /// The shared receive queue.
        srq: SrqHandle,
        /// The application's number for it.
        wr_id: u64,
    },
    /// A completion was added to its queue.
    Completed {
        /// The application's number for it.
        wr_id: u64,
        /// Operation of the request.
        operation: CompletionOperation,
        /// Status of the completion.
        status: CompletionStatus,
        /// As [`Completion::byte_len`](crate::Completion::byte_len).
        bytes: u32,
    },
    /// The application polled a completion.
    PollCq {
        /// The application's number for the request.
        wr_id: u64,
        /// Operation of the request.
        operation: CompletionOperation,
        /// Status of the completion.
        status: CompletionStatus,
        /// As [`Completion::byte_len`](crate::Completion::byte_len).
        bytes: u32,
    },
    /// Packets were sent as one frame.
    Transmitted {
        /// Number of packets.
        packets: usize,
    },
    /// Requests are retransmitted.
    Retransmit {
        /// First PSN that is sent again.
        from: Psn,
        /// Cause of the retransmission.
        cause: RetransmitCause,
    },
    /// A NAK was sent for a request of the peer.
    NakSent {
        /// PSN in the NAK.
        psn: Psn,
        /// Code of the NAK.
        code: NakCode,
    },
    /// A NAK of the peer arrived.
    NakReceived {
        /// PSN in the NAK.
        psn: Psn,
        /// Code of the NAK.
        code: NakCode,
    },
    /// An RNR NAK was sent: no receive is posted.
    RnrSent {
        /// PSN of the packet that needs a receive.
        psn: Psn,
    },
    /// An RNR NAK arrived: the peer has no receive posted.
    RnrReceived {
        /// PSN of the packet that needs a receive.
        psn: Psn,
        /// Wait that the peer asks for.
        timer: RnrTimer,
    },
    /// The peer has acknowledged all packets up to a PSN.
    Acknowledged {
        /// PSN of the last acknowledged packet.
        psn: Psn,
    },
    /// The send window has a new size.
    WindowResized {
        /// Most packets in flight.
        packets: u32,
    },
    /// A request of the peer was refused.
    Refused {
        /// PSN of the request.
        psn: Psn,
        /// Reason of the refusal.
        why: RequestFault,
    },
    /// A packet was dropped.
    Dropped {
        /// PSN of the packet.
        psn: Psn,
        /// Name of its counter in [`Device::counters`](crate::Device::counters).
        why: &'static str,
    },
}

/// A detail of an event; see [`TraceKind::fields`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceValue {
    /// A number.
    Number(u64),
    /// A word.
    Word(&'static str),
    /// A sentence.
    Text(String),
}

impl TraceKind {
    /// Returns the name of the event; that of its probe, if there is one.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::StateChanged { .. } => "modify_qp",
            Self::PostSend { .. } => "post_send",
            Self::PostRecv { .. } => "post_recv",
            Self::PostSrqRecv { .. } => "post_srq_recv",
            Self::Completed { .. } => "completed",
            Self::PollCq { .. } => "poll_cq",
            Self::Transmitted { .. } => "transmitted",
            Self::Retransmit { .. } => "retransmit",
            Self::NakSent { .. } => "nak_sent",
            Self::NakReceived { .. } => "nak_received",
            Self::RnrSent { .. } => "rnr_sent",
            Self::RnrReceived { .. } => "rnr_received",
            Self::Acknowledged { .. } => "acknowledged",
            Self::WindowResized { .. } => "window",
            Self::Refused { .. } => "refused",
            Self::Dropped { .. } => "dropped",
        }
    }

    /// Returns the details by name, in the order of the text form: for JSON and other formats.
    ///
    /// ```
    /// use roce_verbs::{TraceKind, TraceValue};
    /// let kind = TraceKind::PostRecv { wr_id: 7 };
    /// assert_eq!(kind.fields(), [("id", TraceValue::Number(7))]);
    /// assert_eq!(kind.to_string(), "post_recv id=7");
    /// ```
    pub fn fields(&self) -> Vec<(&'static str, TraceValue)> {
        use TraceValue::{Number, Text, Word};
        let psn = |psn: Psn| ("psn", Number(psn.get().into()));
        match *self {
            Self::StateChanged { from, to } => {
                vec![("from", Word(from.name())), ("to", Word(to.name()))]
            }
            Self::PostSend { wr_id, operation, bytes } => vec![
                ("id", Number(wr_id)),
                ("op", Word(operation.name())),
                ("bytes", Number(bytes)),
            ],
            Self::PostRecv { wr_id } => vec![("id", Number(wr_id))],
            Self::PostSrqRecv { srq, wr_id } => {
                vec![("srq", Number(srq.0.into())), ("id", Number(wr_id))]
            }
            Self::Completed { wr_id, operation, status, bytes }
            | Self::PollCq { wr_id, operation, status, bytes } => vec![
                ("id", Number(wr_id)),
                ("status", Word(status_word(status))),
                ("op", Word(operation.name())),
                ("bytes", Number(bytes.into())),
            ],
            Self::Transmitted { packets } => vec![("packets", Number(packets as u64))],
            Self::Retransmit { from, cause } => vec![psn(from), ("cause", Word(cause.name()))],
            Self::NakSent { psn: at, code } | Self::NakReceived { psn: at, code } => {
                vec![psn(at), ("code", Word(nak_word(code)))]
            }
            Self::RnrSent { psn: at } | Self::Acknowledged { psn: at } => vec![psn(at)],
            Self::RnrReceived { psn: at, timer } => {
                vec![psn(at), ("wait_us", Number(timer.duration().as_micros() as u64))]
            }
            Self::WindowResized { packets } => vec![("packets", Number(packets.into()))],
            Self::Refused { psn: at, why } => vec![psn(at), ("why", Text(why.to_string()))],
            Self::Dropped { psn: at, why } => vec![psn(at), ("why", Word(why))],
        }
    }
}

/// As `modify_qp RESET->INIT`, `post_send id=1 op=SEND bytes=64`, `poll_cq id=1 success
/// op=SEND bytes=64`.
impl fmt::Display for TraceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Self::StateChanged { from, to } = self {
            return write!(f, " {from}->{to}");
        }
        for (name, value) in self.fields() {
            match name {
                // The status is written without its name.
                "status" => write!(f, " {value}")?,
                _ => write!(f, " {name}={value}")?,
            }
        }
        Ok(())
    }
}

/// Seconds since the epoch with microseconds, queue pair, event.
impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.at / 1000;
        let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
        write!(f, "{seconds}.{rest:06} qp={} {}", self.qpn.get(), self.kind)
    }
}

impl fmt::Display for TraceValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Word(word) => f.write_str(word),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// Returns the name in libibverbs, with success in lower case.
const fn status_word(status: CompletionStatus) -> &'static str {
    match status {
        CompletionStatus::Success => "success",
        other => other.name(),
    }
}

const fn nak_word(code: NakCode) -> &'static str {
    match code {
        NakCode::PsnSequence => "psn-sequence",
        NakCode::InvalidRequest => "invalid-request",
        NakCode::RemoteAccess => "remote-access",
        NakCode::RemoteOperational => "remote-operational",
        NakCode::InvalidRdRequest => "invalid-rd-request",
        NakCode::Reserved(_) => "reserved",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(number: u32) -> Psn {
        Psn::new(number).unwrap()
    }

    #[test]
    fn every_event_is_one_line_that_begins_with_its_name() {
        let (operation, status) = (CompletionOperation::Send, CompletionStatus::Success);
        let cases = [
            (
                TraceKind::StateChanged { from: QpState::Init, to: QpState::ReadyToReceive },
                "modify_qp INIT->RTR",
            ),
            (
                TraceKind::PostSend { wr_id: 1, operation, bytes: 64 },
                "post_send id=1 op=SEND bytes=64",
            ),
            (
                TraceKind::PollCq { wr_id: 1, operation, status, bytes: 64 },
                "poll_cq id=1 success op=SEND bytes=64",
            ),
            (
                TraceKind::Completed {
                    wr_id: 2,
                    operation: CompletionOperation::Recv,
                    status: CompletionStatus::WorkRequestFlushed,
                    bytes: 0,
                },
                "completed id=2 WR_FLUSH_ERR op=RECV bytes=0",
            ),
            (TraceKind::PostSrqRecv { srq: SrqHandle(3), wr_id: 7 }, "post_srq_recv srq=3 id=7"),
            (TraceKind::Transmitted { packets: 3 }, "transmitted packets=3"),
            (
                TraceKind::Retransmit { from: psn(9), cause: RetransmitCause::SequenceNak },
                "retransmit psn=9 cause=sequence-nak",
            ),
            (
                TraceKind::NakSent { psn: psn(9), code: NakCode::PsnSequence },
                "nak_sent psn=9 code=psn-sequence",
            ),
            (
                TraceKind::RnrReceived { psn: psn(9), timer: RnrTimer::DEFAULT },
                "rnr_received psn=9 wait_us=640",
            ),
            (
                TraceKind::Refused { psn: psn(9), why: RequestFault::NotAllowed },
                "refused psn=9 why=\"the queue pair does not allow this access\"",
            ),
            (
                TraceKind::Dropped { psn: psn(9), why: "duplicate_response" },
                "dropped psn=9 why=duplicate_response",
            ),
        ];
        for (kind, line) in cases {
            assert_eq!(kind.to_string(), line);
            assert!(line.starts_with(kind.name()));
        }
    }
}
