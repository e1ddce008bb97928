//! Asynchronous events.

use roce_wire::Qpn;

use crate::{CqHandle, SrqHandle};

/// An asynchronous event of a queue pair or completion queue.
///
/// The engine raises those of queue pairs and completion queues; those of the port and its
/// addresses are here for the layer above, which has one queue for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A queue pair failed without a request to tell it by.
    QpFatal {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The peer sent an invalid request; the queue pair is in error.
    QpRequestError {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The peer's access to memory was refused; the queue pair is in error.
    QpAccessError {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The first packet came in before a queue pair of RC or UC was ready to send.
    CommunicationEstablished {
        /// The queue pair.
        qpn: Qpn,
    },
    /// A queue pair that was told to drain its send queue has done so.
    SendQueueDrained {
        /// The queue pair.
        qpn: Qpn,
    },
    /// A shared receive queue holds fewer receives than its limit, which is disarmed now.
    SrqLimitReached {
        /// The shared receive queue.
        srq: SrqHandle,
    },
    /// A queue pair in error has taken its last receive from a shared queue.
    LastWqeReached {
        /// The queue pair.
        qpn: Qpn,
    },
    /// A completion queue overflowed.
    CqError {
        /// The completion queue.
        cq: CqHandle,
    },
    /// The interface came up.
    PortActive,
    /// The interface went down.
    PortError,
    /// An address was added or removed.
    GidChange,
    /// The interface is gone: the device cannot send or receive any more. Open another device.
    DeviceFatal,
}

/// What an asynchronous event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventSource {
    /// A queue pair.
    QueuePair(Qpn),
    /// A completion queue.
    CompletionQueue(CqHandle),
    /// A shared receive queue.
    SharedReceiveQueue(SrqHandle),
    /// The port, or the device as a whole.
    Port,
}

impl AsyncEvent {
    /// Returns the object that the event is about.
    ///
    /// ```
    /// use roce_transport::{AsyncEvent, CqHandle, EventSource};
    ///
    /// let overflow = AsyncEvent::CqError { cq: CqHandle(7) };
    /// assert_eq!(overflow.source(), EventSource::CompletionQueue(CqHandle(7)));
    /// assert_eq!(AsyncEvent::GidChange.source(), EventSource::Port);
    /// ```
    pub fn source(&self) -> EventSource {
        match *self {
            Self::QpFatal { qpn }
            | Self::QpRequestError { qpn }
            | Self::QpAccessError { qpn }
            | Self::CommunicationEstablished { qpn }
            | Self::SendQueueDrained { qpn }
            | Self::LastWqeReached { qpn } => EventSource::QueuePair(qpn),
            Self::SrqLimitReached { srq } => EventSource::SharedReceiveQueue(srq),
            Self::CqError { cq } => EventSource::CompletionQueue(cq),
            Self::PortActive | Self::PortError | Self::GidChange | Self::DeviceFatal => {
                EventSource::Port
            }
        }
    }
}
