//! Statuses and events that faults of verbs have.

use core::fmt::{self, Display, Formatter};

use super::names::is_called;

/// Status of a completion that is made to fail.
///
/// ```
/// let status = roce_faults::FaultStatus::named("IBV_WC_RETRY_EXC_ERR").unwrap();
/// assert_eq!((status.code(), status.to_string().as_str()), (12, "retry-exceeded"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FaultStatus(u8);

/// Names, those of `ibv_wc_status`, and its numbers.
const STATUSES: [(&str, &str, u8); 13] = [
    ("local-length", "loc-len-err", 1),
    ("local-qp-operation", "loc-qp-op-err", 2),
    ("local-protection", "loc-prot-err", 4),
    ("flushed", "wr-flush-err", 5),
    ("bad-response", "bad-resp-err", 7),
    ("local-access", "loc-access-err", 8),
    ("remote-invalid-request", "rem-inv-req-err", 9),
    ("remote-access", "rem-access-err", 10),
    ("remote-operation", "rem-op-err", 11),
    ("retry-exceeded", "retry-exc-err", 12),
    ("rnr-retry-exceeded", "rnr-retry-exc-err", 13),
    ("fatal", "fatal-err", 19),
    ("general", "general-err", 21),
];

impl FaultStatus {
    /// Every status that a sentence may name.
    pub fn all() -> impl Iterator<Item = Self> {
        STATUSES.iter().map(|(.., code)| Self(*code))
    }

    /// Returns the status of this name, or of its name in `ibv_wc_status`; `None` if there is none.
    pub fn named(word: &str) -> Option<Self> {
        let named = |(name, official, _): &&(&str, &str, _)| {
            is_called(name, "", word) || is_called(official, "IBV_WC_", word)
        };
        STATUSES.iter().find(named).map(|(.., code)| Self(*code))
    }

    /// Returns the number in `ibv_wc_status`.
    pub const fn code(self) -> u8 {
        self.0
    }
}

impl Display for FaultStatus {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let named = STATUSES.iter().find(|(.., code)| *code == self.0);
        f.write_str(named.map_or("", |(name, ..)| name))
    }
}

/// An asynchronous event that is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultEventKind {
    /// The queue pair fails.
    QpFatal,
    /// It fails because of an invalid request of the peer.
    QpRequestError,
    /// It fails because of an access of the peer that was refused.
    QpAccessError,
    /// The send completion queue of the queue pair, or the completion's queue, overflows.
    CqError,
    /// The device fails with all queue pairs.
    DeviceFatal,
    /// The port goes down, for the program alone.
    PortError,
    /// The port comes up, for the program alone.
    PortActive,
    /// The GID table changes, for the program alone.
    GidChange,
}

/// Events, and their names in sentences and in `ibv_event_type`.
const EVENTS: [(FaultEventKind, &str, &str); 8] = [
    (FaultEventKind::QpFatal, "qp-fatal", "qp-fatal"),
    (FaultEventKind::QpRequestError, "qp-request-error", "qp-req-err"),
    (FaultEventKind::QpAccessError, "qp-access-error", "qp-access-err"),
    (FaultEventKind::CqError, "cq-error", "cq-err"),
    (FaultEventKind::DeviceFatal, "device-fatal", "device-fatal"),
    (FaultEventKind::PortError, "port-error", "port-err"),
    (FaultEventKind::PortActive, "port-active", "port-active"),
    (FaultEventKind::GidChange, "gid-change", "gid-change"),
];

impl FaultEventKind {
    /// Every event.
    pub fn all() -> impl Iterator<Item = Self> {
        EVENTS.iter().map(|(event, ..)| *event)
    }

    pub(super) fn named(word: &str) -> Option<Self> {
        let named = |(_, name, official): &&(_, &str, &str)| {
            is_called(name, "", word) || is_called(official, "IBV_EVENT_", word)
        };
        EVENTS.iter().find(named).map(|(event, ..)| *event)
    }

    /// Returns true if it happens to a queue pair.
    pub const fn has_queue_pair(self) -> bool {
        matches!(self, Self::QpFatal | Self::QpRequestError | Self::QpAccessError | Self::CqError)
    }
}

impl Display for FaultEventKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let named = EVENTS.iter().find(|(event, ..)| event == self);
        f.write_str(named.map_or("", |(_, name, _)| name))
    }
}
