//! DREP: confirms the end of a connection.

use super::CommunicationId;
use super::field::cm_message;

cm_message! {
    /// Confirms the end of a connection.
    Drep {
        /// Communication id of the sender.
        local_id: CommunicationId = "local communication id", Hex, [0, 0, 32];
        /// Communication id of the receiver.
        remote_id: CommunicationId = "remote communication id", Hex, [4, 0, 32];
        /// Bytes for the peer's application.
        private_data: [u8; 224] = "private data", Bytes, [8, 0, 8 * 224];
    }
}
