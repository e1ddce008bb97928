//! REP: accepts a connection.

use super::field::cm_message;
use super::{CmTimeout, CommunicationId};
use crate::{Psn, Qpn};

cm_message! {
    /// Accepts a connection.
    Rep {
        /// Communication id of the sender.
        local_id: CommunicationId = "local communication id", Hex, [0, 0, 32];
        /// Communication id of the receiver.
        remote_id: CommunicationId = "remote communication id", Hex, [4, 0, 32];
        /// Q_Key of reliable datagrams.
        local_q_key: u32 = "local Q_Key", Hex, [8, 0, 32];
        /// Queue pair of the sender.
        local_qpn: Qpn = "local QPN", Hex, [12, 0, 24];
        /// End-to-end context of reliable datagrams, 24 bits.
        local_eecn: u32 = "local EECN", Hex, [16, 0, 24];
        /// PSN of the first request that the sender expects.
        starting_psn: Psn = "starting PSN", Hex, [20, 0, 24];
        /// READs and atomics that the sender's queue pair executes at a time.
        responder_resources: u8 = "responder resources", Decimal, [24, 0, 8];
        /// READs and atomics that the sender's queue pair has outstanding at a time.
        initiator_depth: u8 = "initiator depth", Decimal, [25, 0, 8];
        /// Time until the sender's queue pair acknowledges.
        target_ack_delay: CmTimeout = "target ACK delay", Timeout, [26, 0, 5];
        /// Whether the alternate path was accepted, 2 bits.
        failover_accepted: u8 = "failover accepted", Decimal, [26, 5, 2];
        /// The sender's queue pair counts credits.
        end_to_end_flow_control: bool = "end-to-end flow control", Flag, [26, 7, 1];
        /// RNR retry count of the receiver's queue pair, 3 bits.
        rnr_retry_count: u8 = "RNR retry count", Decimal, [27, 0, 3];
        /// The sender's queue pair takes receives from a shared receive queue.
        srq: bool = "SRQ", Flag, [27, 3, 1];
        /// GUID of the sender's device.
        local_ca_guid: u64 = "local CA GUID", Hex, [28, 0, 64];
        /// Bytes for the peer's application.
        private_data: [u8; 196] = "private data", Bytes, [36, 0, 8 * 196];
    }
}
