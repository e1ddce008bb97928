//! The messages of a connection.

use roce_wire::management::{
    AnsweredMessage, CMA_HEADER_LEN, CmMessage, CmTimeout, CommunicationId, Drep, Dreq, Mra, Rej,
    RejectReason, Rep, Req, Rtu, ServiceId,
};
use roce_wire::{DEFAULT_PARTITION_KEY, Gid};

use crate::addresses::ConnectionAddresses;
use crate::config::AgentConfig;
use crate::connection::{Connection, State};
use crate::error::AgentError;
use crate::outputs::{Bytes, encoded};
use crate::parameters::{AcceptParameters, ConnectParameters, NO_QPN};

/// Time that an MRA asks the peer to wait.
//= rule cm-mra-time: cma.c: CMA_CM_MRA_SETTING
//# A side whose program thinks asks its peer to wait for a time with the code 24.
const MRA_SERVICE_TIMEOUT: CmTimeout = CmTimeout::from_code(24);

/// LID of the addresses of a path through routers, as every path on RoCE.
const PERMISSIVE_LID: u16 = 0xffff;

pub(crate) const HOP_LIMIT: u8 = 64;

/// Returns private data as a field of `N` bytes.
pub(crate) fn private_data<const N: usize>(bytes: &[u8]) -> Result<[u8; N], AgentError> {
    let mut field = [0; N];
    let error = AgentError::PrivateData { len: bytes.len(), max: N };
    field.get_mut(..bytes.len()).ok_or(error)?.copy_from_slice(bytes);
    Ok(field)
}

/// Returns the private data of a request: the addresses of rdma_cm, and `bytes`.
pub(crate) fn request_data<const N: usize>(
    addresses: &ConnectionAddresses,
    bytes: &[u8],
) -> Result<[u8; N], AgentError> {
    let header = addresses.header().ok_or(AgentError::MixedAddresses)?;
    let max = N - CMA_HEADER_LEN;
    if bytes.len() > max {
        return Err(AgentError::PrivateData { len: bytes.len(), max });
    }
    private_data(&[&header.to_bytes(), bytes].concat())
}

/// Returns the REQ of `connection`.
pub(crate) fn req(
    config: &AgentConfig,
    id: CommunicationId,
    connection: &Connection,
    parameters: &ConnectParameters<'_>,
) -> Result<Bytes, AgentError> {
    let request = Req {
        local_id: id,
        service_id: ServiceId::from_port(parameters.space, parameters.addresses.remote.port()),
        local_ca_guid: config.ca_guid,
        local_qpn: parameters.qpn,
        responder_resources: parameters.responder_resources,
        initiator_depth: parameters.initiator_depth,
        remote_response_timeout: config.response_timeout,
        transport_service: parameters.transport_service,
        end_to_end_flow_control: parameters.end_to_end_flow_control,
        starting_psn: connection.rq_psn,
        local_response_timeout: config.response_timeout,
        retry_count: connection.retry_count,
        partition_key: DEFAULT_PARTITION_KEY,
        path_mtu: parameters.path_mtu.code(),
        rnr_retry_count: parameters.rnr_retry_count.min(7),
        max_cm_retries: config.max_retries.min(15),
        srq: parameters.srq,
        primary_local_lid: PERMISSIVE_LID,
        primary_remote_lid: PERMISSIVE_LID,
        primary_local_gid: Gid::from(parameters.addresses.local.ip()),
        primary_remote_gid: Gid::from(parameters.addresses.remote.ip()),
        primary_flow_label: connection.flow_label,
        primary_traffic_class: parameters.traffic_class,
        primary_hop_limit: HOP_LIMIT,
        primary_ack_timeout: connection.ack_timeout,
        private_data: request_data(&parameters.addresses, parameters.private_data)?,
        ..Req::default()
    };
    Ok(encoded(connection.transaction, CmMessage::Req(request)))
}

/// Returns the REP of `connection`.
pub(crate) fn rep(
    config: &AgentConfig,
    id: CommunicationId,
    connection: &Connection,
    parameters: &AcceptParameters<'_>,
) -> Result<Bytes, AgentError> {
    let reply = Rep {
        local_id: id,
        remote_id: connection.remote_id(),
        local_qpn: parameters.qpn,
        starting_psn: connection.rq_psn,
        responder_resources: parameters.responder_resources,
        initiator_depth: parameters.initiator_depth,
        target_ack_delay: config.target_ack_delay,
        end_to_end_flow_control: parameters.end_to_end_flow_control,
        rnr_retry_count: parameters.rnr_retry_count.min(7),
        srq: parameters.srq,
        local_ca_guid: config.ca_guid,
        private_data: private_data(parameters.private_data)?,
        ..Rep::default()
    };
    Ok(encoded(connection.transaction, CmMessage::Rep(reply)))
}

/// Returns the RTU of `connection`.
pub(crate) fn rtu(
    id: CommunicationId,
    connection: &Connection,
    data: &[u8],
) -> Result<Bytes, AgentError> {
    let (local_id, remote_id) = (id, connection.remote_id());
    let message = Rtu { local_id, remote_id, private_data: private_data(data)? };
    Ok(encoded(connection.transaction, CmMessage::Rtu(message)))
}

/// Returns the MRA to the peer's last message.
pub(crate) fn mra(
    id: CommunicationId,
    connection: &Connection,
    answered: AnsweredMessage,
) -> Bytes {
    let message = Mra {
        local_id: id,
        remote_id: connection.remote_id(),
        acknowledged: answered,
        service_timeout: MRA_SERVICE_TIMEOUT,
        ..Mra::default()
    };
    encoded(connection.transaction, CmMessage::Mra(message))
}

/// Returns the REJ that `connection` sends in its state.
//= rule cm-rej-ids: cm.c: cm_format_rej
//# A REJ of a request that the program has not taken carries 0 as its sender's communication id. It
//# names the message that it rejects, or another one if the sender has answered already.
pub(crate) fn rej(
    id: CommunicationId,
    connection: &Connection,
    reason: RejectReason,
    data: [u8; 148],
) -> Bytes {
    let (local_id, rejected) = match connection.state {
        State::ReqReceived if !connection.is_reported => {
            (CommunicationId::default(), AnsweredMessage::Req)
        }
        State::ReqReceived => (id, AnsweredMessage::Req),
        State::RepReceived => (id, AnsweredMessage::Rep),
        _ => (id, AnsweredMessage::Other),
    };
    let remote_id = connection.remote_id();
    let message =
        Rej { local_id, remote_id, rejected, reason, private_data: data, ..Rej::default() };
    encoded(connection.transaction, CmMessage::Rej(message))
}

/// Returns the REJ by which `connection` gives up waiting for its peer.
//= rule cm-rej-timeout: InfiniBand, clause not known; cm.c: cm_acquire_rejected_id
//# A side that gives up waiting sends a REJ with the reason 4, and the GUID of its device as additional
//# information: its peer finds the connection by that and by the sender's communication id.
pub(crate) fn rej_timeout(
    config: &AgentConfig,
    id: CommunicationId,
    connection: &Connection,
) -> Bytes {
    let guid = config.ca_guid.to_be_bytes();
    let mut info = [0; 72];
    info[..guid.len()].copy_from_slice(&guid);
    let message = Rej {
        local_id: id,
        remote_id: connection.remote_id(),
        rejected: AnsweredMessage::Other,
        info_length: guid.len() as u8,
        reason: RejectReason::TIMEOUT,
        info,
        ..Rej::default()
    };
    encoded(connection.transaction, CmMessage::Rej(message))
}

/// Returns the REJ to a request that has no connection.
pub(crate) fn rej_of_req(
    transaction: u64,
    remote_id: CommunicationId,
    reason: RejectReason,
) -> Bytes {
    let rejected = AnsweredMessage::Req;
    let message = Rej { remote_id, rejected, reason, ..Rej::default() };
    encoded(transaction, CmMessage::Rej(message))
}

/// Returns the REJ to a REP that becomes no connection.
pub(crate) fn rej_of_rep(
    transaction: u64,
    remote_id: CommunicationId,
    local_id: CommunicationId,
    reason: RejectReason,
) -> Bytes {
    let rejected = AnsweredMessage::Rep;
    let message = Rej { local_id, remote_id, rejected, reason, ..Rej::default() };
    encoded(transaction, CmMessage::Rej(message))
}

/// Returns the DREQ of `connection`.
pub(crate) fn dreq(id: CommunicationId, connection: &Connection, transaction: u64) -> Bytes {
    let message = Dreq {
        local_id: id,
        remote_id: connection.remote_id(),
        remote_qpn: connection.remote_qpn.unwrap_or(NO_QPN),
        ..Dreq::default()
    };
    encoded(transaction, CmMessage::Dreq(message))
}

/// Returns a DREP.
pub(crate) fn drep(
    transaction: u64,
    local_id: CommunicationId,
    remote_id: CommunicationId,
) -> Bytes {
    encoded(transaction, CmMessage::Drep(Drep { local_id, remote_id, ..Drep::default() }))
}
