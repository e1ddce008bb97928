//! DREQ: ends a connection.

use super::CommunicationId;
use super::field::cm_message;
use crate::Qpn;

cm_message! {
    /// Ends a connection.
    Dreq {
        /// Communication id of the sender.
        local_id: CommunicationId = "local communication id", Hex, [0, 0, 32];
        /// Communication id of the receiver.
        remote_id: CommunicationId = "remote communication id", Hex, [4, 0, 32];
        /// Queue pair of the receiver.
        remote_qpn: Qpn = "remote QPN", Hex, [8, 0, 24];
        /// Bytes for the peer's application.
        private_data: [u8; 220] = "private data", Bytes, [12, 0, 8 * 220];
    }
}
