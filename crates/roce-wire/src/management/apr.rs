//! APR: answers an offer of an alternate path.

use super::CommunicationId;
use super::field::cm_message;

cm_message! {
    /// Answers a [`Lap`](super::Lap).
    Apr {
        /// Communication id of the sender.
        local_id: CommunicationId = "local communication id", Hex, [0, 0, 32];
        /// Communication id of the receiver.
        remote_id: CommunicationId = "remote communication id", Hex, [4, 0, 32];
        /// Bytes of additional information.
        info_length: u8 = "info length", Decimal, [8, 0, 8];
        /// Whether the path was accepted.
        status: u8 = "status", Decimal, [9, 0, 8];
        /// Additional information, which depends on the status.
        info: [u8; 72] = "additional information", Bytes, [12, 0, 8 * 72];
        /// Bytes for the peer's application.
        private_data: [u8; 148] = "private data", Bytes, [84, 0, 8 * 148];
    }
}
