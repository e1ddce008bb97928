//! Connections whose process has died.

use std::time::Duration;

use roce_wire::management::{CmTimeout, RejectReason, TransportService};
use roce_wire::{Instant, PathMtu, Psn};

use crate::connection::{Connection, Role, State};
use crate::ending;
use crate::messages;
use crate::record::ConnectionRecord;
use crate::tables::Tables;

/// Time between repetitions of the DREQ of a connection whose process has died.
const RESEND_INTERVAL: Duration = Duration::from_millis(250);
/// Repetitions.
const MAX_RESENDS: u8 = 15;
/// Code of the timewait afterwards: 2 s.
const TIMEWAIT: CmTimeout = CmTimeout::from_code(19);

/// Ends the connection of a record. If that is under way, sends what has no answer again.
pub(crate) fn end(tables: &mut Tables, now: Instant, record: &ConnectionRecord) {
    let id = record.id;
    if let Some(it) = tables.connections.get(&id) {
        // The DREQ may have overtaken the REP, and was answered as one of an unknown connection.
        if record.state == State::RepSent {
            let rej = messages::rej(id, it, RejectReason::CONSUMER, [0; 148]);
            tables.send_once(id, rej);
        }
        return;
    }
    if let (Some(remote), Some(qpn)) = (record.remote, record.remote_qpn) {
        tables.remote_names.insert(record.addresses.remote, remote, qpn, id);
    }
    let is_passive = matches!(record.state, State::ReqReceived | State::RepSent);
    let connection = Connection {
        role: if is_passive { Role::Passive } else { Role::Active },
        state: record.state,
        addresses: record.addresses,
        flow_label: 0,
        traffic_class: record.traffic_class,
        transaction: record.transaction,
        remote: record.remote,
        local_qpn: record.local_qpn,
        remote_qpn: record.remote_qpn,
        transport_service: TransportService::Rc,
        rq_psn: Psn::ZERO,
        sq_psn: Psn::ZERO,
        responder_resources: 0,
        initiator_depth: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        path_mtu: PathMtu::B256,
        ack_timeout: TIMEWAIT,
        answer_time: RESEND_INTERVAL,
        max_retries: MAX_RESENDS,
        sent: None,
        resend: None,
        backlog_of: None,
        is_unanswered: false,
        is_reported: false,
        is_confirmed: false,
        is_end_reported: false,
        is_taken_back: false,
        is_destroyed: true,
    };
    tables.connections.insert(id, connection);
    tables.note_change(id);
    match record.state {
        // The process may have died before its DREQ arrived.
        State::DreqSent => ending::send_dreq(tables, now, id),
        _ => ending::destroy(tables, now, id),
    }
}
