//! Attributes of a connection's queue pair.

use std::net::IpAddr;

use roce_wire::management::{CmTimeout, CommunicationId, TransportService};
use roce_wire::{PathMtu, Psn, Qpn};

use crate::connection::{Connection, State};
use crate::error::AgentError;
use crate::messages::HOP_LIMIT;
use crate::tables::Tables;

/// Attributes for the state INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitAttributes {
    /// The peer may write.
    pub remote_write: bool,
    /// The peer may read.
    pub remote_read: bool,
    /// The peer may execute atomics.
    pub remote_atomic: bool,
}

/// Attributes for the state RTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtrAttributes {
    /// Our address.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
    /// Flow label.
    pub flow_label: u32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Path MTU.
    pub path_mtu: PathMtu,
    /// The peer's queue pair.
    pub dest_qpn: Qpn,
    /// PSN of the first request that is expected.
    pub rq_psn: Psn,
    /// What a reliable connection needs in addition.
    pub reliable: Option<ReliableRtrAttributes>,
}

/// Attributes for the state RTR that only reliable connections have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReliableRtrAttributes {
    /// READs and atomics that are executed at a time.
    pub max_dest_rd_atomic: u8,
    /// Code of the RNR timer; 0 is 655 ms.
    pub min_rnr_timer: u8,
}

/// Attributes for the state RTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtsAttributes {
    /// PSN of the first request that is sent.
    pub sq_psn: Psn,
    /// What a reliable connection needs in addition.
    pub reliable: Option<ReliableRtsAttributes>,
}

/// Attributes for the state RTS that only reliable connections have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReliableRtsAttributes {
    /// READs and atomics that are outstanding at a time.
    pub max_rd_atomic: u8,
    /// Retry count.
    pub retry_count: u8,
    /// RNR retry count.
    pub rnr_retry: u8,
    /// ACK timeout.
    pub ack_timeout: CmTimeout,
}

fn is_reliable(connection: &Connection) -> bool {
    connection.transport_service == TransportService::Rc
}

fn with_peer(state: State) -> bool {
    matches!(state, State::ReqReceived | State::RepSent | State::RepReceived | State::Established)
}

/// Returns the attributes for INIT.
//= rule cm-qp-init: cm.c: cm_init_qp_init_attr
//# A connection lets its peer write, and with responder resources also read and execute atomics.
pub(crate) fn init(tables: &Tables, id: CommunicationId) -> Result<InitAttributes, AgentError> {
    let it = tables.for_call(id, |state| state == State::ReqSent || with_peer(state))?;
    let has_resources = it.responder_resources > 0;
    Ok(InitAttributes {
        remote_write: true,
        remote_read: has_resources,
        remote_atomic: has_resources,
    })
}

/// Returns the attributes for RTR.
//= rule cm-qp-rtr: cm.c: cm_init_qp_rtr_attr
//# RTR takes path, MTU, the peer's queue pair, our PSN and, for reliable connections, the responder
//# resources and an RNR timer with the code 0.
pub(crate) fn rtr(tables: &Tables, id: CommunicationId) -> Result<RtrAttributes, AgentError> {
    let it = tables.for_call(id, with_peer)?;
    let dest_qpn = it.remote_qpn;
    let dest_qpn = dest_qpn.ok_or(AgentError::WrongState { id, state: it.state.name() })?;
    Ok(RtrAttributes {
        local: it.addresses.local,
        remote: it.addresses.remote,
        flow_label: it.flow_label,
        traffic_class: it.traffic_class,
        hop_limit: HOP_LIMIT,
        path_mtu: it.path_mtu,
        dest_qpn,
        rq_psn: it.rq_psn,
        reliable: is_reliable(it).then_some(ReliableRtrAttributes {
            max_dest_rd_atomic: it.responder_resources,
            min_rnr_timer: 0,
        }),
    })
}

/// Returns the attributes for RTS.
//= rule cm-qp-rts: cm.c: cm_init_qp_rts_attr
//# RTS takes the peer's PSN and, for reliable connections, the initiator depth, both retry counts
//# and the ACK timeout.
pub(crate) fn rts(tables: &Tables, id: CommunicationId) -> Result<RtsAttributes, AgentError> {
    let it = tables.for_call(id, with_peer)?;
    Ok(RtsAttributes {
        sq_psn: it.sq_psn,
        reliable: is_reliable(it).then_some(ReliableRtsAttributes {
            max_rd_atomic: it.initiator_depth,
            retry_count: it.retry_count,
            rnr_retry: it.rnr_retry_count,
            ack_timeout: it.ack_timeout,
        }),
    })
}
