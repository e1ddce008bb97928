//! REQ: asks for a connection.

use super::field::cm_message;
use super::{CmTimeout, CommunicationId, ServiceId, TransportService};
use crate::{Gid, Psn, Qpn};

cm_message! {
    /// Asks for a connection of two queue pairs.
    //= rule cm-req: InfiniBand 12.6; cm.c: cm_format_req
    //# A REQ names the service, the queue pair of its sender, how that is to be connected, and the path.
    Req {
        /// Communication id of the sender.
        local_id: CommunicationId = "local communication id", Hex, [0, 0, 32];
        /// Vendor whose enhanced connection establishment the sender offers; 0 without.
        vendor_id: u32 = "vendor id", Hex, [5, 0, 24];
        /// Service that is asked for.
        service_id: ServiceId = "service id", Hex, [8, 0, 64];
        /// GUID of the sender's device.
        local_ca_guid: u64 = "local CA GUID", Hex, [16, 0, 64];
        /// Q_Key of reliable datagrams.
        local_q_key: u32 = "local Q_Key", Hex, [28, 0, 32];
        /// Queue pair of the sender.
        local_qpn: Qpn = "local QPN", Hex, [32, 0, 24];
        /// READs and atomics that the sender's queue pair executes at a time.
        responder_resources: u8 = "responder resources", Decimal, [35, 0, 8];
        /// End-to-end context of reliable datagrams, 24 bits.
        local_eecn: u32 = "local EECN", Hex, [36, 0, 24];
        /// READs and atomics that the sender's queue pair has outstanding at a time.
        initiator_depth: u8 = "initiator depth", Decimal, [39, 0, 8];
        /// End-to-end context of reliable datagrams, 24 bits.
        remote_eecn: u32 = "remote EECN", Hex, [40, 0, 24];
        /// Time in which the receiver has to answer.
        remote_response_timeout: CmTimeout = "remote CM response timeout", Timeout, [43, 0, 5];
        /// Service of the queue pairs.
        transport_service: TransportService = "transport service", TransportService, [43, 5, 2];
        /// The sender's queue pair counts credits.
        end_to_end_flow_control: bool = "end-to-end flow control", Flag, [43, 7, 1];
        /// PSN of the first request that the sender expects.
        starting_psn: Psn = "starting PSN", Hex, [44, 0, 24];
        /// Time in which the sender answers.
        local_response_timeout: CmTimeout = "local CM response timeout", Timeout, [47, 0, 5];
        /// Retry count of both queue pairs, 3 bits.
        retry_count: u8 = "retry count", Decimal, [47, 5, 3];
        /// Partition key.
        partition_key: u16 = "P_Key", Hex, [48, 0, 16];
        /// Code of the path MTU, 4 bits: see [`PathMtu::from_code`](crate::PathMtu::from_code).
        path_mtu: u8 = "path MTU", PathMtu, [50, 0, 4];
        /// The channel of reliable datagrams exists.
        rdc_exists: bool = "RDC exists", Flag, [50, 4, 1];
        /// RNR retry count of the receiver's queue pair, 3 bits.
        rnr_retry_count: u8 = "RNR retry count", Decimal, [50, 5, 3];
        /// How often the receiver may repeat its REP, 4 bits.
        max_cm_retries: u8 = "max CM retries", Decimal, [51, 0, 4];
        /// The sender's queue pair takes receives from a shared receive queue.
        srq: bool = "SRQ", Flag, [51, 4, 1];
        /// Service that [`TransportService::Extended`] stands for, 3 bits.
        extended_transport: u8 = "extended transport", Decimal, [51, 5, 3];
        /// Primary path: LID of the sender; not used on RoCE.
        primary_local_lid: u16 = "primary local LID", Hex, [52, 0, 16];
        /// Primary path: LID of the receiver; not used on RoCE.
        primary_remote_lid: u16 = "primary remote LID", Hex, [54, 0, 16];
        /// Primary path: GID of the sender.
        primary_local_gid: Gid = "primary local GID", Gid, [56, 0, 128];
        /// Primary path: GID of the receiver.
        primary_remote_gid: Gid = "primary remote GID", Gid, [72, 0, 128];
        /// Primary path: flow label, 20 bits.
        primary_flow_label: u32 = "primary flow label", Hex, [88, 0, 20];
        /// Primary path: packet rate, 6 bits.
        primary_packet_rate: u8 = "primary packet rate", Decimal, [91, 2, 6];
        /// Primary path: traffic class.
        primary_traffic_class: u8 = "primary traffic class", Hex, [92, 0, 8];
        /// Primary path: hop limit.
        primary_hop_limit: u8 = "primary hop limit", Decimal, [93, 0, 8];
        /// Primary path: service level, 4 bits.
        primary_service_level: u8 = "primary SL", Decimal, [94, 0, 4];
        /// Primary path: the receiver is in the subnet of the sender.
        primary_subnet_local: bool = "primary subnet local", Flag, [94, 4, 1];
        /// Primary path: ACK timeout of the sender's queue pair.
        primary_ack_timeout: CmTimeout = "primary local ACK timeout", Timeout, [95, 0, 5];
        /// Alternate path: LID of the sender; not used on RoCE.
        alternate_local_lid: u16 = "alternate local LID", Hex, [96, 0, 16];
        /// Alternate path: LID of the receiver; not used on RoCE.
        alternate_remote_lid: u16 = "alternate remote LID", Hex, [98, 0, 16];
        /// Alternate path: GID of the sender.
        alternate_local_gid: Gid = "alternate local GID", Gid, [100, 0, 128];
        /// Alternate path: GID of the receiver.
        alternate_remote_gid: Gid = "alternate remote GID", Gid, [116, 0, 128];
        /// Alternate path: flow label, 20 bits.
        alternate_flow_label: u32 = "alternate flow label", Hex, [132, 0, 20];
        /// Alternate path: packet rate, 6 bits.
        alternate_packet_rate: u8 = "alternate packet rate", Decimal, [135, 2, 6];
        /// Alternate path: traffic class.
        alternate_traffic_class: u8 = "alternate traffic class", Hex, [136, 0, 8];
        /// Alternate path: hop limit.
        alternate_hop_limit: u8 = "alternate hop limit", Decimal, [137, 0, 8];
        /// Alternate path: service level, 4 bits.
        alternate_service_level: u8 = "alternate SL", Decimal, [138, 0, 4];
        /// Alternate path: the receiver is in the subnet of the sender.
        alternate_subnet_local: bool = "alternate subnet local", Flag, [138, 4, 1];
        /// Alternate path: ACK timeout of the sender's queue pair.
        alternate_ack_timeout: CmTimeout = "alternate local ACK timeout", Timeout, [139, 0, 5];
        /// Bytes for the peer's application.
        private_data: [u8; 92] = "private data", Bytes, [140, 0, 8 * 92];
    }
}
