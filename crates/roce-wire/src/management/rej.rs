//! REJ: refuses a connection, or gives it up.

use super::field::cm_message;
use super::{AnsweredMessage, CommunicationId, RejectReason};

cm_message! {
    /// Refuses a connection, or gives it up before it is established.
    Rej {
        /// Communication id of the sender; 0 if it has given the connection none.
        local_id: CommunicationId = "local communication id", Hex, [0, 0, 32];
        /// Communication id of the receiver; 0 if the sender knows none.
        remote_id: CommunicationId = "remote communication id", Hex, [4, 0, 32];
        /// Message that is rejected.
        rejected: AnsweredMessage = "message rejected", AnsweredMessage, [8, 0, 2];
        /// Bytes of additional information, 7 bits.
        info_length: u8 = "info length", Decimal, [9, 0, 7];
        /// Reason.
        reason: RejectReason = "reason", RejectReason, [10, 0, 16];
        /// Additional information, which depends on the reason.
        info: [u8; 72] = "additional information", Bytes, [12, 0, 8 * 72];
        /// Bytes for the peer's application.
        private_data: [u8; 148] = "private data", Bytes, [84, 0, 8 * 148];
    }
}
