//! MRA: asks for patience.

use super::field::cm_message;
use super::{AnsweredMessage, CmTimeout, CommunicationId};

cm_message! {
    /// Asks the peer to wait longer for an answer.
    Mra {
        /// Communication id of the sender.
        local_id: CommunicationId = "local communication id", Hex, [0, 0, 32];
        /// Communication id of the receiver.
        remote_id: CommunicationId = "remote communication id", Hex, [4, 0, 32];
        /// Message that arrived.
        acknowledged: AnsweredMessage = "message acknowledged", AnsweredMessage, [8, 0, 2];
        /// Time that the application needs beyond the usual.
        service_timeout: CmTimeout = "service timeout", Timeout, [9, 0, 5];
        /// Bytes for the peer's application.
        private_data: [u8; 222] = "private data", Bytes, [10, 0, 8 * 222];
    }
}
