//! When faults of verbs happen.

use super::names::is_called;

/// A call, or the delivery of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VerbMoment {
    /// A device is opened.
    OpenDevice,
    /// Attributes of a device are asked for.
    QueryDevice,
    /// Attributes of a port are.
    QueryPort,
    /// A row of the GID table is, or all of it.
    QueryGid,
    /// A protection domain is made.
    AllocPd,
    /// A protection domain is given up.
    DeallocPd,
    /// Memory is registered.
    RegMr,
    /// A region is given up.
    DeregMr,
    /// A memory window is made.
    AllocMw,
    /// A completion channel is made.
    CreateCompChannel,
    /// A completion queue is made.
    CreateCq,
    /// A completion queue gets another size.
    ResizeCq,
    /// A shared receive queue is made.
    CreateSrq,
    /// An address handle is made.
    CreateAh,
    /// A queue pair is made.
    CreateQp,
    /// Attributes of a queue pair are changed.
    ModifyQp,
    /// A request is posted to a send queue; of a list each counts.
    PostSend,
    /// A receive is posted to a queue pair; of a list each counts.
    PostRecv,
    /// A receive is posted to a shared receive queue; of a list each counts.
    PostSrqRecv,
    /// A request of either queue is about to complete with success.
    Completion,
    /// A request of a send queue is.
    SendCompletion,
    /// A receive is.
    RecvCompletion,
}

/// Kinds, their names, and those of the counters of calls that failed.
const MOMENTS: [(VerbMoment, &str, &str); 22] = [
    (VerbMoment::OpenDevice, "open-device", "fault_failed_open_device"),
    (VerbMoment::QueryDevice, "query-device", "fault_failed_query_device"),
    (VerbMoment::QueryPort, "query-port", "fault_failed_query_port"),
    (VerbMoment::QueryGid, "query-gid", "fault_failed_query_gid"),
    (VerbMoment::AllocPd, "alloc-pd", "fault_failed_alloc_pd"),
    (VerbMoment::DeallocPd, "dealloc-pd", "fault_failed_dealloc_pd"),
    (VerbMoment::RegMr, "reg-mr", "fault_failed_reg_mr"),
    (VerbMoment::DeregMr, "dereg-mr", "fault_failed_dereg_mr"),
    (VerbMoment::AllocMw, "alloc-mw", "fault_failed_alloc_mw"),
    (VerbMoment::CreateCompChannel, "create-comp-channel", "fault_failed_create_comp_channel"),
    (VerbMoment::CreateCq, "create-cq", "fault_failed_create_cq"),
    (VerbMoment::ResizeCq, "resize-cq", "fault_failed_resize_cq"),
    (VerbMoment::CreateSrq, "create-srq", "fault_failed_create_srq"),
    (VerbMoment::CreateAh, "create-ah", "fault_failed_create_ah"),
    (VerbMoment::CreateQp, "create-qp", "fault_failed_create_qp"),
    (VerbMoment::ModifyQp, "modify-qp", "fault_failed_modify_qp"),
    (VerbMoment::PostSend, "post-send", "fault_failed_post_send"),
    (VerbMoment::PostRecv, "post-recv", "fault_failed_post_recv"),
    (VerbMoment::PostSrqRecv, "post-srq-recv", "fault_failed_post_srq_recv"),
    (VerbMoment::Completion, "completion", "fault_failed_completion"),
    (VerbMoment::SendCompletion, "send-completion", "fault_failed_send_completion"),
    (VerbMoment::RecvCompletion, "recv-completion", "fault_failed_recv_completion"),
];

impl VerbMoment {
    /// Every kind.
    pub fn all() -> impl Iterator<Item = Self> {
        MOMENTS.iter().map(|(moment, ..)| *moment)
    }

    pub(super) fn named(word: &str) -> Option<Self> {
        let singular = word.strip_suffix('s').unwrap_or(word);
        let named = |(_, name, _): &&(_, &str, _)| {
            is_called(name, "ibv_", word) || is_called(name, "ibv_", singular)
        };
        MOMENTS.iter().find(named).map(|(moment, ..)| *moment)
    }

    fn entry(self) -> (&'static str, &'static str) {
        let entry = MOMENTS.iter().find(|(moment, ..)| *moment == self);
        entry.map_or(("", ""), |(_, name, counter)| (name, counter))
    }

    /// Returns the name in sentences, such as `post-send`.
    pub fn name(self) -> &'static str {
        self.entry().0
    }

    /// Returns the name of the counter of failures.
    ///
    /// ```
    /// assert_eq!(roce_faults::VerbMoment::RegMr.counter(), "fault_failed_reg_mr");
    /// ```
    pub fn counter(self) -> &'static str {
        self.entry().1
    }

    /// Returns true for completions, which have a status and no `errno`.
    pub const fn is_completion(self) -> bool {
        matches!(self, Self::Completion | Self::SendCompletion | Self::RecvCompletion)
    }

    /// Returns true if it happens to a queue pair that exists.
    pub const fn has_queue_pair(self) -> bool {
        matches!(self, Self::ModifyQp | Self::PostSend | Self::PostRecv) || self.is_completion()
    }

    /// Returns true if `other` is of this kind.
    pub fn includes(self, other: Self) -> bool {
        self == other || (self == Self::Completion && other.is_completion())
    }
}
