//! The passive side of a connection: REQ received → REP sent → established.

use roce_wire::management::{
    AnsweredMessage, CMA_HEADER_LEN, CommunicationId, RejectReason, Req, Rtu,
};
use roce_wire::{Instant, PathMtu};

use crate::addresses::{ConnectionAddresses, DatagramAddresses};
use crate::connection::{Connection, Role, State};
use crate::counters::DropReason;
use crate::disposition::Disposition;
use crate::duplicates::RemoteKey;
use crate::ending;
use crate::error::AgentError;
use crate::event::{ConnectRequest, Event};
use crate::limits::MAX_REQUESTS;
use crate::listener::ListenerHandle;
use crate::messages;
use crate::outputs::Bytes;
use crate::parameters::{AcceptParameters, NO_QPN};
use crate::request_checks::check_req;
use crate::tables::Tables;
use crate::timers::wait_of;

/// Handles a REQ.
pub(crate) fn handle_req(
    tables: &mut Tables,
    now: Instant,
    addresses: DatagramAddresses,
    transaction: u64,
    req: &Req,
) -> Result<(), Disposition> {
    let key = RemoteKey { ca_guid: req.local_ca_guid, id: req.local_id };
    let traffic_class = req.primary_traffic_class;
    if let Some(id) = tables.remote_names.by_id(addresses.remote, key) {
        return handle_repeated(tables, id);
    }
    if let Some(reply) = tables.kept_rejects.repeat(now, (key, transaction)) {
        let reply = Bytes::new(*reply);
        tables.outputs.counters.answered_again += 1;
        tables.outputs.send(addresses, traffic_class, reply);
        return Ok(());
    }
    //= rule cm-stale: cm.c: cm_match_req
    //# A REQ from a queue pair that is the peer's in a live connection is rejected with the reason
    //# 10, and the old connection is ended with DREQ. (The kernel does not compare the addresses.)
    let names = &tables.remote_names;
    if let Some(old) = names.by_queue_pair(addresses.remote, req.local_ca_guid, req.local_qpn) {
        tables.outputs.counters.stale += 1;
        let reply = messages::rej_of_req(transaction, req.local_id, RejectReason::STALE_CONNECTION);
        tables.outputs.send(addresses, traffic_class, reply);
        ending::disconnect_stale(tables, now, old);
        return Ok(());
    }
    let Some((listener, port)) = tables.listeners.find(req.service_id, addresses.local) else {
        return Err(Disposition::Stray);
    };
    match check_req(&tables.config, req) {
        Ok((header, path_mtu)) => {
            let ends = ConnectionAddresses::of_request(&header, port);
            add_request(tables, now, listener, key, addresses, transaction, req, path_mtu, ends)
        }
        Err(reason) => {
            tables.outputs.counters.refused += 1;
            let reply = messages::rej_of_req(transaction, req.local_id, reason);
            tables.outputs.send(addresses, traffic_class, reply);
            Ok(())
        }
    }
}

/// Answers a REQ for whose connection there is an entry.
//= rule cm-repeated-req: cm.c: cm_dup_req_handler
//# A repeated REQ is answered with MRA while the program thinks, with a REJ of reason 10 in
//# timewait, and else not at all.
fn handle_repeated(tables: &mut Tables, id: CommunicationId) -> Result<(), Disposition> {
    let connection = tables.connections.get(&id).filter(|it| it.role == Role::Passive);
    let Some(it) = connection else {
        return Err(DropReason::WrongState.into());
    };
    let reply = match it.state {
        State::ReqReceived if it.is_reported => messages::mra(id, it, AnsweredMessage::Req),
        State::Timewait => {
            let stale = RejectReason::STALE_CONNECTION;
            messages::rej_of_req(it.transaction, it.remote_id(), stale)
        }
        _ => return Err(DropReason::Duplicate.into()),
    };
    tables.outputs.counters.answered_again += 1;
    tables.send_once(id, reply);
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn add_request(
    tables: &mut Tables,
    now: Instant,
    listener: ListenerHandle,
    key: RemoteKey,
    addresses: DatagramAddresses,
    transaction: u64,
    req: &Req,
    path_mtu: PathMtu,
    ends: ConnectionAddresses,
) -> Result<(), Disposition> {
    if !tables.has_space(listener) {
        return Err(DropReason::BacklogFull.into());
    }
    if tables.unanswered_requests >= MAX_REQUESTS {
        return Err(DropReason::RequestsFull.into());
    }
    tables.make_space(now, listener);
    let Some(id) = tables.identifiers.allocate() else {
        return Err(DropReason::RequestsFull.into());
    };
    tables.listeners.add_waiting(listener);
    tables.unanswered_requests += 1;
    tables.remote_names.insert(addresses.remote, key, req.local_qpn, id);
    let rq_psn = tables.new_psn();
    let connection = Connection {
        role: Role::Passive,
        state: State::ReqReceived,
        addresses,
        flow_label: req.primary_flow_label,
        traffic_class: req.primary_traffic_class,
        transaction,
        remote: Some(key),
        // The program names it when it accepts.
        local_qpn: NO_QPN,
        remote_qpn: Some(req.local_qpn),
        transport_service: req.transport_service,
        rq_psn,
        sq_psn: req.starting_psn,
        //= rule cm-resources: cm.c: cm_req_handler; cm.c: cm_rep_handler
        //# The responder resources of one end follow from the initiator depth of the other.
        responder_resources: req.initiator_depth,
        initiator_depth: req.responder_resources,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        path_mtu,
        ack_timeout: req.primary_ack_timeout,
        //= rule cm-passive-resend: cm.c: cm_req_handler
        //# The passive side repeats its messages after the local response timeout of the REQ, as
        //# often as the REQ says.
        answer_time: wait_of(req.local_response_timeout),
        max_retries: req.max_cm_retries,
        sent: None,
        resend: None,
        backlog_of: Some(listener),
        is_unanswered: true,
        is_reported: false,
        is_confirmed: false,
        is_end_reported: false,
        is_taken_back: false,
        is_destroyed: false,
    };
    let request = ConnectRequest {
        addresses: ends,
        transport_service: req.transport_service,
        remote_qpn: req.local_qpn,
        responder_resources: connection.responder_resources,
        initiator_depth: connection.initiator_depth,
        end_to_end_flow_control: req.end_to_end_flow_control,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        srq: req.srq,
        private_data: req.private_data[CMA_HEADER_LEN..].into(),
    };
    tables.connections.insert(id, connection);
    tables.note_change(id);
    tables.tell(Event::ConnectRequest { listener, id, request: Box::new(request) });
    Ok(())
}

/// Handles an RTU.
pub(crate) fn handle_rtu(
    tables: &mut Tables,
    addresses: DatagramAddresses,
    rtu: &Rtu,
) -> Result<(), Disposition> {
    let id = tables.find(addresses, rtu.remote_id, rtu.local_id)?;
    if tables.connections.get(&id).is_none_or(|it| it.state != State::RepSent) {
        return Err(DropReason::WrongState.into());
    }
    become_established(tables, id);
    Ok(())
}

/// Establishes a connection whose REP was sent.
pub(crate) fn become_established(tables: &mut Tables, id: CommunicationId) {
    tables.stop_resending(id);
    if let Some(it) = tables.connections.get_mut(&id) {
        it.state = State::Established;
        it.is_confirmed = true;
        it.sent = None;
    }
    tables.note_change(id);
    tables.tell(Event::Established { id });
}

/// Accepts a request.
pub(crate) fn accept(
    tables: &mut Tables,
    now: Instant,
    id: CommunicationId,
    parameters: &AcceptParameters<'_>,
) -> Result<(), AgentError> {
    let connection = tables.for_call(id, |state| state == State::ReqReceived)?;
    let rep = messages::rep(&tables.config, id, connection, parameters)?;
    tables.settle_request(id);
    if let Some(it) = tables.connections.get_mut(&id) {
        it.state = State::RepSent;
        it.local_qpn = parameters.qpn;
        it.responder_resources = parameters.responder_resources;
        it.initiator_depth = parameters.initiator_depth;
    }
    tables.note_change(id);
    tables.send_until_answered(now, id, rep);
    Ok(())
}
