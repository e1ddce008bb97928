//! LAP: offers an alternate path.

use super::field::cm_message;
use super::{CmTimeout, CommunicationId};
use crate::{Gid, Qpn};

cm_message! {
    /// Offers an alternate path. RoCE has none.
    Lap {
        /// Communication id of the sender.
        local_id: CommunicationId = "local communication id", Hex, [0, 0, 32];
        /// Communication id of the receiver.
        remote_id: CommunicationId = "remote communication id", Hex, [4, 0, 32];
        /// Queue pair of the receiver.
        remote_qpn: Qpn = "remote QPN", Hex, [12, 0, 24];
        /// Time in which the receiver has to answer.
        remote_response_timeout: CmTimeout = "remote CM response timeout", Timeout, [15, 0, 5];
        /// LID of the sender.
        alternate_local_lid: u16 = "alternate local LID", Hex, [20, 0, 16];
        /// LID of the receiver.
        alternate_remote_lid: u16 = "alternate remote LID", Hex, [22, 0, 16];
        /// GID of the sender.
        alternate_local_gid: Gid = "alternate local GID", Gid, [24, 0, 128];
        /// GID of the receiver.
        alternate_remote_gid: Gid = "alternate remote GID", Gid, [40, 0, 128];
        /// Flow label, 20 bits.
        alternate_flow_label: u32 = "alternate flow label", Hex, [56, 0, 20];
        /// Traffic class.
        alternate_traffic_class: u8 = "alternate traffic class", Hex, [59, 0, 8];
        /// Hop limit.
        alternate_hop_limit: u8 = "alternate hop limit", Decimal, [60, 0, 8];
        /// Packet rate, 6 bits.
        alternate_packet_rate: u8 = "alternate packet rate", Decimal, [61, 2, 6];
        /// Service level, 4 bits.
        alternate_service_level: u8 = "alternate SL", Decimal, [62, 0, 4];
        /// The receiver is in the subnet of the sender.
        alternate_subnet_local: bool = "alternate subnet local", Flag, [62, 4, 1];
        /// ACK timeout of the sender's queue pair.
        alternate_ack_timeout: CmTimeout = "alternate local ACK timeout", Timeout, [63, 0, 5];
        /// Bytes for the peer's application.
        private_data: [u8; 168] = "private data", Bytes, [64, 0, 8 * 168];
    }
}
