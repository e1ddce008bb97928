//! What an application is told: completions.

use core::fmt;

use roce_wire::Qpn;

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Number that the application gave the request.
    pub wr_id: u64,
    /// The queue pair.
    pub qpn: Qpn,
    /// Result.
    pub status: CompletionStatus,
    /// Operation of the request.
    pub operation: CompletionOperation,
    /// Bytes received, for receives and READs; bytes of the request otherwise. Undefined unless the
    /// status is success.
    pub byte_len: u32,
    /// Immediate data of the peer.
    pub immediate: Option<[u8; 4]>,
    /// The key that the peer's SEND with invalidate named.
    pub invalidated_key: Option<u32>,
    /// The peer solicited an event.
    pub solicited: bool,
}

/// How a work request ended; names and numbers of `ibv_wc_status`.
///
/// ```
/// use roce_transport::CompletionStatus;
/// assert_eq!(CompletionStatus::RetryExceeded.code(), 12);
/// assert_eq!(CompletionStatus::RetryExceeded.name(), "RETRY_EXC_ERR");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum CompletionStatus {
    /// The request succeeded.
    Success = 0,
    /// A message was longer than the receive posted for it.
    LocalLengthError = 1,
    /// The request cannot be carried out by this queue pair.
    LocalQpOperationError = 2,
    /// An SGE may not be used.
    LocalProtectionError = 4,
    /// Another request failed, or the queue pair was taken down, before this one was done.
    WorkRequestFlushed = 5,
    /// A memory window could not be bound.
    MemoryWindowBindError = 6,
    /// The peer's response does not match the request.
    BadResponse = 7,
    /// The peer's access to local memory failed while a receive was in use.
    LocalAccessError = 8,
    /// The peer called the request invalid, or sent an invalid one.
    RemoteInvalidRequest = 9,
    /// The peer refused access to its memory.
    RemoteAccessError = 10,
    /// The peer failed for reasons of its own.
    RemoteOperationError = 11,
    /// No response arrived after all retransmissions.
    RetryExceeded = 12,
    /// The peer had no receive posted after all RNR retries.
    RnrRetryExceeded = 13,
    /// Something inside failed beyond repair.
    FatalError = 19,
    /// Something failed that has no other name.
    GeneralError = 21,
}

/// Operation of a completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CompletionOperation {
    /// A SEND of ours.
    Send,
    /// A WRITE of ours.
    Write,
    /// A READ of ours.
    Read,
    /// A compare-and-swap of ours.
    CompareSwap,
    /// A fetch-and-add of ours.
    FetchAdd,
    /// A key of our own was invalidated.
    LocalInvalidate,
    /// A SEND of the peer's was received.
    Recv,
    /// A WRITE with immediate of the peer's was received.
    RecvWithImmediate,
}

impl CompletionOperation {
    /// The number in `ibv_wc_opcode`.
    pub const fn code(self) -> u8 {
        match self {
            Self::Send => 0,
            Self::Write => 1,
            Self::Read => 2,
            Self::CompareSwap => 3,
            Self::FetchAdd => 4,
            Self::LocalInvalidate => 6,
            Self::Recv => 128,
            Self::RecvWithImmediate => 129,
        }
    }

    /// The name in `ibv_wc_opcode`, without `IBV_WC_`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::Write => "RDMA_WRITE",
            Self::Read => "RDMA_READ",
            Self::CompareSwap => "COMP_SWAP",
            Self::FetchAdd => "FETCH_ADD",
            Self::LocalInvalidate => "LOCAL_INV",
            Self::Recv => "RECV",
            Self::RecvWithImmediate => "RECV_RDMA_WITH_IMM",
        }
    }
}

impl fmt::Display for CompletionOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl CompletionStatus {
    /// The number in `ibv_wc_status`.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name in `ibv_wc_status`, without `IBV_WC_`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::LocalLengthError => "LOC_LEN_ERR",
            Self::LocalQpOperationError => "LOC_QP_OP_ERR",
            Self::LocalProtectionError => "LOC_PROT_ERR",
            Self::WorkRequestFlushed => "WR_FLUSH_ERR",
            Self::MemoryWindowBindError => "MW_BIND_ERR",
            Self::BadResponse => "BAD_RESP_ERR",
            Self::LocalAccessError => "LOC_ACCESS_ERR",
            Self::RemoteInvalidRequest => "REM_INV_REQ_ERR",
            Self::RemoteAccessError => "REM_ACCESS_ERR",
            Self::RemoteOperationError => "REM_OP_ERR",
            Self::RetryExceeded => "RETRY_EXC_ERR",
            Self::RnrRetryExceeded => "RNR_RETRY_EXC_ERR",
            Self::FatalError => "FATAL_ERR",
            Self::GeneralError => "GENERAL_ERR",
        }
    }
}

impl fmt::Display for CompletionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
