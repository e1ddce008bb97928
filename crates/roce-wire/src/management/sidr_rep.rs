//! SIDR_REP: answers with the queue pair of a service.

use super::field::cm_message;
use super::{CommunicationId, ServiceId, SidrStatus};
use crate::Qpn;

cm_message! {
    /// Answers a [`SidrReq`](super::SidrReq) with a queue pair, or a reason why there is none.
    SidrRep {
        /// Number of the request.
        request_id: CommunicationId = "request id", Hex, [0, 0, 32];
        /// Whether queue pair and Q_Key are valid.
        status: SidrStatus = "status", SidrStatus, [4, 0, 8];
        /// Bytes of additional information.
        info_length: u8 = "info length", Decimal, [5, 0, 8];
        /// Queue pair of the service.
        qpn: Qpn = "QPN", Hex, [8, 0, 24];
        /// Service that was asked for.
        service_id: ServiceId = "service id", Hex, [12, 0, 64];
        /// Q_Key of that queue pair.
        q_key: u32 = "Q_Key", Hex, [20, 0, 32];
        /// Additional information, which depends on the status.
        info: [u8; 72] = "additional information", Bytes, [24, 0, 8 * 72];
        /// Bytes for the peer's application.
        private_data: [u8; 136] = "private data", Bytes, [96, 0, 8 * 136];
    }
}
