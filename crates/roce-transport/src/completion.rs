//! What an application is told: completions.

use roce_wire::Qpn;

use crate::value_table::value_table;

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
    /// Immediate data: that of the peer in the completion of a receive, and that of the request in the
    /// completion of a SEND or WRITE: rxe, mlx4 and mlx5 tell that this had some, too.
    pub immediate: Option<[u8; 4]>,
    /// The key that the peer's SEND with invalidate named.
    pub invalidated_key: Option<u32>,
    /// The queue pair that sent a datagram; `None` for other services. The 40 bytes in front of the
    /// datagram are then its GRH: zeros and the IPv4 header, or the IPv6 header.
    pub source_qpn: Option<Qpn>,
    /// The datagram came over IPv6. False for other services.
    pub is_over_ipv6: bool,
    /// The peer solicited an event.
    pub solicited: bool,
    /// The requests of its work queue that are done with it.
    pub retired: Retired,
}

impl Completion {
    /// Returns a completion of which only that is told which every operation has, and which retires no
    /// request.
    #[inline]
    pub const fn new(
        wr_id: u64,
        qpn: Qpn,
        operation: CompletionOperation,
        status: CompletionStatus,
        byte_len: u32,
    ) -> Self {
        Self {
            wr_id,
            qpn,
            status,
            operation,
            byte_len,
            immediate: None,
            invalidated_key: None,
            source_qpn: None,
            is_over_ipv6: false,
            solicited: false,
            retired: Retired::new(0, 0),
        }
    }
}

/// Requests that no longer count against the capacity of their work queue, once the program has taken
/// the completion that this is part of: the request that has completed, and those before it that had
/// no completion of their own.
///
/// The endpoint gives the place of a request to a later one as soon as the request is done. A driver
/// that keeps it until the program knows of that counts by these.
///
/// ```
/// use roce_transport::Retired;
///
/// let retired = Retired::new(7, 3);
/// assert_eq!((retired.queue(), retired.count()), (7, 3));
/// assert_eq!(size_of::<Retired>(), 7); // it takes what padding a completion has
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retired {
    queue: [u8; 3],
    count: [u8; 4],
}

impl Retired {
    /// Most numbers of work queues.
    pub const MAX_QUEUES: u32 = 1 << 24;

    /// Requests, `count` of them, of the work queue that its driver has given this number; see
    /// [`WorkQueueNumbers`](crate::WorkQueueNumbers). A number is taken modulo
    /// [`MAX_QUEUES`](Self::MAX_QUEUES).
    #[inline]
    pub const fn new(queue: u32, count: u32) -> Self {
        let [a, b, c, _] = queue.to_le_bytes();
        Self { queue: [a, b, c], count: count.to_le_bytes() }
    }

    /// Returns the number of the work queue.
    #[inline]
    pub const fn queue(self) -> u32 {
        let [a, b, c] = self.queue;
        u32::from_le_bytes([a, b, c, 0])
    }

    /// Returns how many requests.
    #[inline]
    pub const fn count(self) -> u32 {
        u32::from_le_bytes(self.count)
    }
}

value_table! {
    /// How a work request ended; names and numbers of `ibv_wc_status`.
    ///
    /// ```
    /// use roce_transport::CompletionStatus;
    /// assert_eq!(CompletionStatus::RetryExceeded.code(), 12);
    /// assert_eq!(CompletionStatus::RetryExceeded.name(), "RETRY_EXC_ERR");
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum CompletionStatus {
        /// The request succeeded.
        Success = 0, "SUCCESS";
        /// A message was longer than the receive posted for it.
        LocalLengthError = 1, "LOC_LEN_ERR";
        /// The request cannot be carried out by this queue pair.
        LocalQpOperationError = 2, "LOC_QP_OP_ERR";
        /// An SGE may not be used.
        LocalProtectionError = 4, "LOC_PROT_ERR";
        /// Another request failed, or the queue pair was taken down, before this one was done.
        WorkRequestFlushed = 5, "WR_FLUSH_ERR";
        /// A memory window could not be bound.
        MemoryWindowBindError = 6, "MW_BIND_ERR";
        /// The peer's response does not match the request.
        BadResponse = 7, "BAD_RESP_ERR";
        /// The peer's access to local memory failed while a receive was in use.
        LocalAccessError = 8, "LOC_ACCESS_ERR";
        /// The peer called the request invalid, or sent an invalid one.
        RemoteInvalidRequest = 9, "REM_INV_REQ_ERR";
        /// The peer refused access to its memory.
        RemoteAccessError = 10, "REM_ACCESS_ERR";
        /// The peer failed for reasons of its own.
        RemoteOperationError = 11, "REM_OP_ERR";
        /// No response arrived after all retransmissions.
        RetryExceeded = 12, "RETRY_EXC_ERR";
        /// The peer had no receive posted after all RNR retries.
        RnrRetryExceeded = 13, "RNR_RETRY_EXC_ERR";
        /// Something inside failed beyond repair.
        FatalError = 19, "FATAL_ERR";
        /// Something failed that has no other name.
        GeneralError = 21, "GENERAL_ERR";
    }
    /// The number in `ibv_wc_status`.
    code;
    /// The name in `ibv_wc_status`, without `IBV_WC_`.
    name;
}

value_table! {
    /// Operation of a completed request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum CompletionOperation {
        /// A SEND of ours.
        Send = 0, "SEND";
        /// A WRITE of ours.
        Write = 1, "RDMA_WRITE";
        /// A READ of ours.
        Read = 2, "RDMA_READ";
        /// A compare-and-swap of ours.
        CompareSwap = 3, "COMP_SWAP";
        /// A fetch-and-add of ours.
        FetchAdd = 4, "FETCH_ADD";
        /// A memory window of our own was bound.
        BindWindow = 5, "BIND_MW";
        /// A key of our own was invalidated.
        LocalInvalidate = 6, "LOCAL_INV";
        /// A FLUSH of ours.
        Flush = 8, "FLUSH";
        /// An ATOMIC WRITE of ours.
        AtomicWrite = 9, "ATOMIC_WRITE";
        /// A SEND of the peer's was received.
        Recv = 128, "RECV";
        /// A WRITE with immediate of the peer's was received.
        RecvWithImmediate = 129, "RECV_RDMA_WITH_IMM";
    }
    /// The number in `ibv_wc_opcode`.
    code;
    /// The name in `ibv_wc_opcode`, without `IBV_WC_`.
    name;
}

impl CompletionOperation {
    /// Returns true if the request was a receive.
    ///
    /// ```
    /// use roce_transport::CompletionOperation;
    /// assert!(CompletionOperation::RecvWithImmediate.is_receive());
    /// assert!(!CompletionOperation::Send.is_receive());
    /// ```
    pub const fn is_receive(self) -> bool {
        matches!(self, Self::Recv | Self::RecvWithImmediate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_takes_48_bytes() {
        assert_eq!(size_of::<Completion>(), 48);
    }
}
