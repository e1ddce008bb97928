//! What is wrong with a request of the peer's, and the NAK that tells the peer. NAKs of missing
//! packets and RNR NAKs are the responder's.

use roce_wire::NakCode;
use thiserror::Error;

use crate::{CompletionStatus, MemoryFault};

/// What the responder finds wrong with a request. The peer is told by a NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum RequestFault {
    /// The packet cannot follow the one before it.
    #[error("the opcode does not continue the open message")]
    OpcodeOutOfSequence,
    /// The payload's length fits neither path MTU nor message.
    #[error("a payload of {len} bytes fits neither path MTU nor message")]
    PayloadLength {
        /// Bytes of payload.
        len: usize,
    },
    /// No message is that long.
    #[error("{len} bytes are more than a message of 2^31 holds")]
    MessageTooLong {
        /// Bytes of the request.
        len: u64,
    },
    /// The queue pair does not allow this kind of access.
    #[error("the queue pair does not allow this access")]
    NotAllowed,
    /// More READs and atomics at a time than were agreed upon.
    #[error("more READs and atomics at a time than were agreed upon")]
    TooManyReads,
    /// The word of an atomic is not aligned.
    #[error("the word of an atomic is not aligned to 8 bytes")]
    Misaligned,
    /// The message is longer than the receive posted for it.
    #[error("the message is longer than the receive of {posted} bytes")]
    LongerThanReceive {
        /// Bytes of the receive.
        posted: u64,
    },
    /// The key does not give the right to the bytes, or their memory is not present.
    #[error("remote access refused: {0}")]
    RemoteMemory(MemoryFault),
    /// The receive names memory that may not be used.
    #[error("the posted receive cannot be used: {0}")]
    ReceiveMemory(MemoryFault),
}

impl RequestFault {
    /// Returns the NAK code that the responder sends for this fault.
    pub const fn nak_code(&self) -> NakCode {
        match self {
            //= rule rc-nak-invalid-request: InfiniBand 9.9.3; rxe_resp.c: do_class_ac_error
            //# A request that is malformed, not allowed or too long draws a NAK (invalid request),
            //# and the queue pair goes to ERROR.
            Self::OpcodeOutOfSequence
            | Self::PayloadLength { .. }
            | Self::MessageTooLong { .. }
            | Self::NotAllowed
            | Self::TooManyReads
            | Self::Misaligned
            | Self::LongerThanReceive { .. } => NakCode::InvalidRequest,
            //= rule rc-nak-remote-operational: InfiniBand 9.9.3; rxe_resp.c: do_class_ac_error
            //# A request that fails for a reason of the responder draws a NAK (remote operational
            //# error).
            // The peer's key is right: what is missing is on this side.
            Self::RemoteMemory(MemoryFault::NotPresent) | Self::ReceiveMemory(_) => {
                NakCode::RemoteOperational
            }
            //= rule rc-nak-remote-access: InfiniBand 9.9.3; rxe_resp.c: do_class_ac_error
            //# A key that does not give the right to the bytes draws a NAK (remote access error).
            Self::RemoteMemory(_) => NakCode::RemoteAccess,
        }
    }

    /// How the receive ends that the request was using, if it was using one.
    pub const fn receive_status(&self) -> CompletionStatus {
        match self {
            Self::LongerThanReceive { .. } => CompletionStatus::LocalLengthError,
            Self::ReceiveMemory(_) => CompletionStatus::LocalProtectionError,
            Self::RemoteMemory(_) => CompletionStatus::LocalAccessError,
            _ => CompletionStatus::RemoteInvalidRequest,
        }
    }
}

/// How a request ends that the peer refused with `code`.
//= also rc-nak-status
pub(crate) const fn status_of(code: NakCode) -> CompletionStatus {
    match code {
        NakCode::InvalidRequest => CompletionStatus::RemoteInvalidRequest,
        NakCode::RemoteAccess => CompletionStatus::RemoteAccessError,
        _ => CompletionStatus::RemoteOperationError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= test rc-nak-invalid-request
    #[test]
    fn a_message_too_long_is_the_peers_fault_and_our_length_error() {
        let fault = RequestFault::LongerThanReceive { posted: 3 };
        assert_eq!(fault.nak_code(), NakCode::InvalidRequest);
        assert_eq!(fault.receive_status(), CompletionStatus::LocalLengthError);
    }

    //= test rc-nak-remote-operational
    #[test]
    fn bad_receive_memory_is_not_blamed_on_the_peer() {
        let fault = RequestFault::ReceiveMemory(MemoryFault::UnknownKey);
        assert_eq!(fault.nak_code(), NakCode::RemoteOperational);
        assert_eq!(fault.receive_status(), CompletionStatus::LocalProtectionError);
    }

    //= test rc-nak-remote-access
    //= test rc-nak-remote-operational
    #[test]
    fn memory_that_is_not_present_is_not_blamed_on_the_peer() {
        let fault = RequestFault::RemoteMemory(MemoryFault::NotPresent);
        assert_eq!(fault.nak_code(), NakCode::RemoteOperational);
        let fault = RequestFault::RemoteMemory(MemoryFault::OutOfBounds);
        assert_eq!(fault.nak_code(), NakCode::RemoteAccess);
    }

    //= test rc-nak-status
    #[test]
    fn a_nak_without_a_meaning_ends_as_the_peers_failure() {
        assert_eq!(status_of(NakCode::Reserved(9)), CompletionStatus::RemoteOperationError);
        assert_eq!(status_of(NakCode::RemoteAccess), CompletionStatus::RemoteAccessError);
    }
}
