//! Both sides of the resolution of datagram services.

use roce_wire::Instant;

use roce_wire::management::{
    CMA_HEADER_LEN, CmMessage, CommunicationId, RejectReason, ServiceId, SidrRep, SidrReq,
};

use crate::addresses::{ConnectionAddresses, DatagramAddresses};
use crate::connection::Resend;
use crate::counters::DropReason;
use crate::disposition::Disposition;
use crate::error::AgentError;
use crate::event::{Event, ServiceRequest, ServiceResponse};
use crate::limits::MAX_REQUESTS;
use crate::messages::{private_data, request_data};
use crate::outputs::{Bytes, encoded};
use crate::parameters::{NO_QPN, ResolveParameters, ServiceAnswer};
use crate::request_checks::check_addresses;
use crate::resolution::{NO_LISTENER, Resolution, ResolutionState, ServiceKey};
use crate::tables::Tables;
use crate::timers::wait_of;

/// Asks for the queue pair of a service.
pub(crate) fn resolve(
    tables: &mut Tables,
    now: Instant,
    parameters: &ResolveParameters<'_>,
) -> Result<CommunicationId, AgentError> {
    let ends = &parameters.addresses;
    let data = request_data(ends, parameters.private_data)?;
    let id = tables.identifiers.allocate().ok_or(AgentError::NoIds)?;
    let message = SidrReq {
        request_id: id,
        partition_key: parameters.partition_key,
        service_id: ServiceId::from_port(parameters.space, ends.remote.port()),
        private_data: data,
    };
    let request = encoded(tables.new_transaction(), CmMessage::SidrReq(message));
    //= rule cm-sidr-resend: cma.c: cma_resolve_ib_udp
    //# A SIDR_REQ is repeated after the response timeout.
    let every = wait_of(tables.config.response_timeout);
    let left = tables.config.max_retries.min(15);
    let resend = Resend { every, left, has_left: false, is_lengthened: false };
    let (addresses, traffic_class) = (ends.datagram(), parameters.traffic_class);
    let state = ResolutionState::Asked { request, resend };
    tables.resolutions.insert(id, Resolution { addresses, traffic_class, state });
    tables.send_repeated(now, id);
    Ok(id)
}

/// Handles a SIDR_REP.
pub(crate) fn handle_sidr_rep(
    tables: &mut Tables,
    addresses: DatagramAddresses,
    rep: &SidrRep,
) -> Result<(), Disposition> {
    let id = rep.request_id;
    if !tables.identifiers.owns(id) {
        return Err(Disposition::Stray);
    }
    let Some(it) = tables.resolutions.get_mut(&id) else {
        return Err(DropReason::UnknownId.into());
    };
    if it.addresses.remote != addresses.remote {
        return Err(DropReason::WrongSource.into());
    }
    if !matches!(it.state, ResolutionState::Asked { .. }) {
        return Err(DropReason::WrongState.into());
    }
    it.state = ResolutionState::Over;
    tables.stop_resending(id);
    let response = ServiceResponse {
        status: rep.status,
        qpn: rep.qpn,
        q_key: rep.q_key,
        private_data: rep.private_data.into(),
    };
    tables.outputs.raise(Event::ServiceResponse { id, response: Box::new(response) });
    Ok(())
}

/// Handles a SIDR_REQ.
pub(crate) fn handle_sidr_req(
    tables: &mut Tables,
    now: Instant,
    addresses: DatagramAddresses,
    transaction: u64,
    req: &SidrReq,
) -> Result<(), Disposition> {
    let key = ServiceKey { addresses, request_id: req.request_id, transaction };
    if tables.service_requests.contains_key(&key) {
        return Err(DropReason::Duplicate.into());
    }
    //= rule cm-repeated-sidr: InfiniBand, clause not known
    //# A repeated SIDR_REQ is answered as the first one was. (The kernel forgets the answer, and
    //# makes a second request of it.)
    if let Some(reply) = tables.kept_answers.repeat(now, key) {
        let reply = Bytes::new(*reply);
        tables.outputs.counters.answered_again += 1;
        tables.outputs.send(addresses, 0, reply);
        return Ok(());
    }
    let Some((listener, port)) = tables.listeners.find(req.service_id, addresses.local) else {
        return Err(Disposition::Stray);
    };
    let header = match check_addresses(&tables.config, &req.private_data) {
        Ok(header) => header,
        Err(RejectReason(_)) => {
            tables.outputs.counters.refused += 1;
            let reply = sidr_rep(key, req.service_id, &ServiceAnswer::rejected(), [0; 136]);
            tables.outputs.send(addresses, 0, reply);
            return Ok(());
        }
    };
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
    tables.service_requests.insert(key, id);
    let service = req.service_id;
    let state = ResolutionState::Received { key, service, backlog_of: Some(listener) };
    tables.resolutions.insert(id, Resolution { addresses, traffic_class: 0, state });
    let request = ServiceRequest {
        addresses: ConnectionAddresses::of_request(&header, port),
        partition_key: req.partition_key,
        private_data: req.private_data[CMA_HEADER_LEN..].into(),
    };
    tables.outputs.raise(Event::ServiceRequest { listener, id, request: Box::new(request) });
    Ok(())
}

/// Answers the request of a peer.
pub(crate) fn answer(
    tables: &mut Tables,
    now: Instant,
    id: CommunicationId,
    answer: &ServiceAnswer<'_>,
) -> Result<(), AgentError> {
    let it = tables.resolutions.get_mut(&id).ok_or(AgentError::UnknownId(id))?;
    let ResolutionState::Received { key, service, backlog_of } = it.state else {
        return Err(AgentError::WrongState { id, state: it.state.name() });
    };
    let reply = sidr_rep(key, service, answer, private_data(answer.private_data)?);
    it.state = ResolutionState::Over;
    if let Some(listener) = backlog_of {
        tables.listeners.remove_waiting(listener);
    }
    tables.unanswered_requests -= 1;
    tables.service_requests.remove(&key);
    tables.outputs.send(it.addresses, it.traffic_class, reply.clone());
    if tables.kept_answers.keep(now, key, reply) {
        tables.outputs.counters.kept_reply_dropped += 1;
    }
    Ok(())
}

/// Gives up a resolution. The request of a peer is rejected.
pub(crate) fn destroy(tables: &mut Tables, now: Instant, id: CommunicationId) {
    // Refused unless the peer waits.
    let _ = answer(tables, now, id, &ServiceAnswer::rejected());
    tables.outputs.forget_events(id);
    tables.stop_resending(id);
    if tables.resolutions.remove(&id).is_some() {
        tables.identifiers.release(id);
    }
}

/// Repeats a request, or gives up.
pub(crate) fn handle_timeout(tables: &mut Tables, now: Instant, id: CommunicationId) {
    let Some(it) = tables.resolutions.get_mut(&id) else { return };
    let ResolutionState::Asked { resend, .. } = &mut it.state else { return };
    if resend.left > 0 {
        resend.left -= 1;
        tables.outputs.counters.resent += 1;
        tables.send_repeated(now, id);
    } else {
        it.state = ResolutionState::Over;
        tables.stop_resending(id);
        tables.outputs.counters.unanswered += 1;
        tables.outputs.raise(Event::Unreachable { id });
    }
}

/// Returns the answer for a port without listener.
pub(crate) fn without_listener(
    addresses: DatagramAddresses,
    transaction: u64,
    req: &SidrReq,
) -> Bytes {
    let key = ServiceKey { addresses, request_id: req.request_id, transaction };
    let answer = ServiceAnswer { status: NO_LISTENER, qpn: NO_QPN, q_key: 0, private_data: &[] };
    sidr_rep(key, req.service_id, &answer, [0; 136])
}

fn sidr_rep(
    key: ServiceKey,
    service_id: ServiceId,
    answer: &ServiceAnswer<'_>,
    private_data: [u8; 136],
) -> Bytes {
    let message = SidrRep {
        request_id: key.request_id,
        status: answer.status,
        qpn: answer.qpn,
        service_id,
        q_key: answer.q_key,
        private_data,
        ..SidrRep::default()
    };
    encoded(key.transaction, CmMessage::SidrRep(message))
}
