//! SIDR_REQ: asks for the queue pair of a service.

use super::field::cm_message;
use super::{CommunicationId, ServiceId};

cm_message! {
    /// Asks for the queue pair of a datagram service.
    SidrReq {
        /// Number of the request, chosen by its sender.
        request_id: CommunicationId = "request id", Hex, [0, 0, 32];
        /// Partition key.
        partition_key: u16 = "P_Key", Hex, [4, 0, 16];
        /// Service that is asked for.
        service_id: ServiceId = "service id", Hex, [8, 0, 64];
        /// Bytes for the peer's application.
        private_data: [u8; 216] = "private data", Bytes, [16, 0, 8 * 216];
    }
}
