//! The active side of a connection: REQ sent → REP received → established.

use roce_wire::management::{AnsweredMessage, CmTimeout, CommunicationId, Mra, RejectReason, Rep};
use roce_wire::{Instant, Psn};

use crate::addresses::DatagramAddresses;
use crate::connection::{Connection, Role, State, ack_timeout};
use crate::counters::DropReason;
use crate::disposition::Disposition;
use crate::duplicates::RemoteKey;
use crate::ending;
use crate::error::AgentError;
use crate::event::{ConnectResponse, Event};
use crate::messages;
use crate::outputs::Bytes;
use crate::parameters::ConnectParameters;
use crate::tables::Tables;
use crate::timers::wait_of;

/// Asks for a connection.
pub(crate) fn connect(
    tables: &mut Tables,
    now: Instant,
    parameters: &ConnectParameters<'_>,
) -> Result<CommunicationId, AgentError> {
    let id = tables.identifiers.allocate().ok_or(AgentError::NoIds)?;
    let none = CmTimeout::from_code(0);
    let connection = Connection {
        role: Role::Active,
        state: State::ReqSent,
        addresses: parameters.addresses.datagram(),
        flow_label: parameters.addresses.flow_label(),
        traffic_class: parameters.traffic_class,
        transaction: tables.new_transaction(),
        remote: None,
        local_qpn: parameters.qpn,
        remote_qpn: None,
        transport_service: parameters.transport_service,
        rq_psn: tables.new_psn(),
        sq_psn: Psn::ZERO,
        responder_resources: parameters.responder_resources,
        initiator_depth: parameters.initiator_depth,
        retry_count: parameters.retry_count.min(7),
        rnr_retry_count: parameters.rnr_retry_count.min(7),
        path_mtu: parameters.path_mtu,
        ack_timeout: parameters
            .ack_timeout
            .unwrap_or_else(|| ack_timeout(none, tables.config.packet_life_time)),
        answer_time: tables.answer_time(),
        max_retries: tables.config.max_retries.min(15),
        sent: None,
        resend: None,
        backlog_of: None,
        is_unanswered: false,
        is_reported: false,
        is_confirmed: false,
        is_end_reported: false,
        is_taken_back: false,
        is_destroyed: false,
    };
    let req = match messages::req(&tables.config, id, &connection, parameters) {
        Ok(req) => req,
        Err(error) => {
            tables.identifiers.release(id);
            return Err(error);
        }
    };
    tables.connections.insert(id, connection);
    tables.note_change(id);
    tables.send_until_answered(now, id, req);
    Ok(id)
}

/// Handles a REP.
pub(crate) fn handle_rep(
    tables: &mut Tables,
    now: Instant,
    addresses: DatagramAddresses,
    transaction: u64,
    rep: &Rep,
) -> Result<(), Disposition> {
    let id = tables.find(addresses, rep.remote_id, rep.local_id)?;
    let Some(connection) = tables.connections.get(&id) else {
        return Err(DropReason::UnknownId.into());
    };
    if connection.state != State::ReqSent {
        return handle_repeated(tables, id);
    }
    let key = RemoteKey { ca_guid: rep.local_ca_guid, id: rep.local_id };
    if tables.remote_names.by_id(addresses.remote, key).is_some() {
        return Err(DropReason::Duplicate.into());
    }
    //= rule cm-stale-rep: cm.c: cm_rep_handler
    //# A REP from a queue pair that is the peer's in a live connection is rejected with the reason
    //# 10, and the old connection is ended with DREQ. (The kernel does not compare the addresses.)
    let names = &tables.remote_names;
    if let Some(old) = names.by_queue_pair(addresses.remote, rep.local_ca_guid, rep.local_qpn) {
        tables.outputs.counters.stale += 1;
        let stale = RejectReason::STALE_CONNECTION;
        let reply = messages::rej_of_rep(transaction, rep.local_id, rep.remote_id, stale);
        tables.send_once(id, reply);
        ending::disconnect_stale(tables, now, old);
        return Ok(());
    }
    tables.stop_resending(id);
    tables.remote_names.insert(addresses.remote, key, rep.local_qpn, id);
    let life_time = tables.config.packet_life_time;
    if let Some(it) = tables.connections.get_mut(&id) {
        it.state = State::RepReceived;
        it.remote = Some(key);
        it.remote_qpn = Some(rep.local_qpn);
        it.sq_psn = rep.starting_psn;
        it.responder_resources = rep.initiator_depth;
        it.initiator_depth = rep.responder_resources;
        it.rnr_retry_count = rep.rnr_retry_count;
        it.ack_timeout = it.ack_timeout.max(ack_timeout(rep.target_ack_delay, life_time));
        it.sent = None;
    }
    tables.note_change(id);
    let response = ConnectResponse {
        remote_qpn: rep.local_qpn,
        responder_resources: rep.initiator_depth,
        initiator_depth: rep.responder_resources,
        end_to_end_flow_control: rep.end_to_end_flow_control,
        rnr_retry_count: rep.rnr_retry_count,
        srq: rep.srq,
        private_data: rep.private_data.into(),
    };
    tables.tell(Event::ConnectResponse { id, response: Box::new(response) });
    Ok(())
}

/// Answers a REP after the first.
//= rule cm-repeated-rep: cm.c: cm_dup_rep_handler
//# A repeated REP is answered with RTU again once the connection is established, and with MRA while
//# the program thinks.
fn handle_repeated(tables: &mut Tables, id: CommunicationId) -> Result<(), Disposition> {
    let connection = tables.connections.get(&id).filter(|it| it.role == Role::Active);
    let Some(it) = connection else {
        return Err(DropReason::WrongState.into());
    };
    let reply: Bytes = match (it.state, &it.sent) {
        (State::Established, Some(rtu)) => rtu.clone(),
        (State::RepReceived, _) if it.is_reported => messages::mra(id, it, AnsweredMessage::Rep),
        _ => return Err(DropReason::Duplicate.into()),
    };
    tables.outputs.counters.answered_again += 1;
    tables.send_once(id, reply);
    Ok(())
}

/// Confirms the peer's REP.
pub(crate) fn establish(
    tables: &mut Tables,
    id: CommunicationId,
    private_data: &[u8],
) -> Result<(), AgentError> {
    let connection = tables.for_call(id, |state| state == State::RepReceived)?;
    let rtu = messages::rtu(id, connection, private_data)?;
    tables.send_once(id, rtu.clone());
    if let Some(it) = tables.connections.get_mut(&id) {
        it.state = State::Established;
        it.sent = Some(rtu);
    }
    tables.note_change(id);
    Ok(())
}

/// Handles an MRA, which either side may send.
//= rule cm-mra: cm.c: cm_mra_handler
//# An MRA lets the sender of a REQ or REP wait for the named time longer. (The kernel waits so long after
//# each later repetition, too, and ignores further MRAs.)
pub(crate) fn handle_mra(
    tables: &mut Tables,
    now: Instant,
    addresses: DatagramAddresses,
    mra: &Mra,
) -> Result<(), Disposition> {
    let id = tables.find(addresses, mra.remote_id, mra.local_id)?;
    let wrong_state = DropReason::WrongState.into();
    let Some(it) = tables.connections.get_mut(&id) else {
        return Err(wrong_state);
    };
    let is_expected = matches!(
        (it.state, mra.acknowledged),
        (State::ReqSent, AnsweredMessage::Req) | (State::RepSent, AnsweredMessage::Rep)
    );
    let resend = it.resend.as_mut().filter(|it| is_expected && !it.is_lengthened);
    let Some(resend) = resend else {
        return Err(wrong_state);
    };
    resend.is_lengthened = true;
    let next = now + resend.every + wait_of(mra.service_timeout);
    // A repetition that waits is not needed.
    tables.request_windows.settle(id);
    tables.resends.set(id, next);
    Ok(())
}
