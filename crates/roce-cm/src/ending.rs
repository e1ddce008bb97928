//! Ends of connections: DREQ, DREP, REJ, and connections that the program gives up.

use roce_wire::Instant;

use roce_wire::management::{CommunicationId, Drep, Dreq, Rej, RejectReason};

use crate::addresses::DatagramAddresses;
use crate::connection::State;
use crate::counters::DropReason;
use crate::disposition::Disposition;
use crate::duplicates::RemoteKey;
use crate::error::AgentError;
use crate::event::Event;
use crate::messages;
use crate::outputs::Bytes;
use crate::parameters::RejectParameters;
use crate::tables::Tables;

/// Handles a DREQ.
pub(crate) fn handle_dreq(
    tables: &mut Tables,
    now: Instant,
    addresses: DatagramAddresses,
    transaction: u64,
    dreq: &Dreq,
) -> Result<(), Disposition> {
    let unknown = Disposition::Dropped(DropReason::UnknownId);
    let found = tables.find(addresses, dreq.remote_id, dreq.local_id);
    let connection = match found {
        Ok(id) => tables.connections.get_mut(&id).map(|it| (id, it)),
        Err(miss) if miss == unknown => None,
        Err(miss) => return Err(miss),
    };
    // The connection of a REQ without answer has no other end yet.
    let connection = connection.filter(|(_, it)| it.remote.is_some());
    //= rule cm-unknown-dreq: cm.c: cm_dreq_handler
    //# A DREQ for a connection that is unknown or in timewait is answered with DREP. (Here those of unknown
    //# connections share the limit of strays.)
    let Some((id, it)) = connection else {
        if !tables.strays.admits(now) {
            return Err(DropReason::Strays.into());
        }
        let drep = messages::drep(transaction, dreq.remote_id, dreq.local_id);
        tables.outputs.counters.unknown_dreq += 1;
        tables.outputs.send(addresses, 0, drep);
        return Ok(());
    };
    //= rule cm-dreq-queue-pair: cm.c: cm_dreq_handler
    //# A DREQ counts only if it names the queue pair of its receiver.
    if it.local_qpn != dreq.remote_qpn {
        return Err(DropReason::WrongQueuePair.into());
    }
    match it.state {
        //= rule cm-passive-drep: cm.c: cm_dreq_handler; cma.c: rdma_disconnect
        //# The DREP waits until the program disconnects, too, or destroys the connection.
        State::Established | State::RepSent => {
            it.state = State::DreqReceived;
            it.transaction = transaction;
            it.is_confirmed = true;
            it.sent = None;
            tables.stop_resending(id);
            tables.note_change(id);
            tables.tell_disconnected(id);
        }
        // Both ends disconnect at once. The program has nothing to add.
        State::DreqSent => {
            it.is_confirmed = true;
            tables.send_once(id, messages::drep(transaction, id, dreq.local_id));
            tables.tell_disconnected(id);
            tables.enter_timewait(now, id);
        }
        State::Timewait => {
            tables.outputs.counters.answered_again += 1;
            tables.send_once(id, messages::drep(transaction, id, dreq.local_id));
        }
        State::DreqReceived => return Err(DropReason::Duplicate.into()),
        State::ReqSent | State::ReqReceived | State::RepReceived | State::Idle => {
            return Err(DropReason::WrongState.into());
        }
    }
    Ok(())
}

/// Handles a DREP.
pub(crate) fn handle_drep(
    tables: &mut Tables,
    now: Instant,
    addresses: DatagramAddresses,
    drep: &Drep,
) -> Result<(), Disposition> {
    let id = tables.find(addresses, drep.remote_id, drep.local_id)?;
    if tables.connections.get(&id).is_none_or(|it| it.state != State::DreqSent) {
        return Err(DropReason::WrongState.into());
    }
    tables.tell_disconnected(id);
    tables.enter_timewait(now, id);
    Ok(())
}

/// Handles a REJ.
///
/// One that names our REQ's id ends the connection, whatever message it rejects: the peer that is
/// destroyed after its REP was lost rejects no REQ. (The kernel drops such a REJ and repeats its
/// REQ.)
pub(crate) fn handle_rej(
    tables: &mut Tables,
    now: Instant,
    addresses: DatagramAddresses,
    rej: &Rej,
) -> Result<(), Disposition> {
    let id = find_rejected(tables, addresses, rej)?;
    let Some(it) = tables.connections.get(&id) else {
        return Err(DropReason::UnknownId.into());
    };
    let is_stale = rej.reason == RejectReason::STALE_CONNECTION;
    let rejected =
        Event::Rejected { id, reason: rej.reason, private_data: rej.private_data.into() };
    match it.state {
        State::ReqSent | State::ReqReceived | State::RepSent if is_stale => {
            tables.tell(rejected);
            tables.enter_timewait(now, id);
        }
        State::ReqSent | State::ReqReceived | State::RepSent => {
            tables.tell(rejected);
            tables.become_idle(now, id, None);
        }
        State::RepReceived | State::Established => {
            tables.tell(rejected);
            tables.enter_timewait(now, id);
        }
        State::DreqSent => {
            tables.tell_disconnected(id);
            tables.enter_timewait(now, id);
        }
        State::DreqReceived | State::Timewait | State::Idle => {
            return Err(DropReason::WrongState.into());
        }
    }
    Ok(())
}

/// Returns the connection that a REJ is for.
fn find_rejected(
    tables: &Tables,
    addresses: DatagramAddresses,
    rej: &Rej,
) -> Result<CommunicationId, Disposition> {
    if rej.reason != RejectReason::TIMEOUT {
        return tables.find(addresses, rej.remote_id, rej.local_id);
    }
    let Some((guid, _)) = rej.info.split_first_chunk() else {
        return Err(DropReason::UnknownId.into());
    };
    let key = RemoteKey { ca_guid: u64::from_be_bytes(*guid), id: rej.local_id };
    let Some(id) = tables.remote_names.by_id(addresses.remote, key) else {
        // The sender knows no id of ours: another agent of this host may have the connection.
        return Err(Disposition::Stray);
    };
    tables.find(addresses, id, rej.local_id)
}

/// Disconnects an established connection, or confirms that the peer has disconnected it.
pub(crate) fn disconnect(
    tables: &mut Tables,
    now: Instant,
    id: CommunicationId,
) -> Result<(), AgentError> {
    let allows = |state| matches!(state, State::Established | State::DreqReceived);
    match tables.for_call(id, allows)?.state {
        State::Established => send_dreq(tables, now, id),
        _ => send_drep(tables, now, id),
    }
    Ok(())
}

/// Ends the connection that a peer has forgotten.
pub(crate) fn disconnect_stale(tables: &mut Tables, now: Instant, id: CommunicationId) {
    if tables.connections.get(&id).is_some_and(|it| it.state == State::Established) {
        send_dreq(tables, now, id);
    }
}

/// Sends a DREQ until it is answered.
pub(crate) fn send_dreq(tables: &mut Tables, now: Instant, id: CommunicationId) {
    let transaction = tables.new_transaction();
    let Some(it) = tables.connections.get_mut(&id) else { return };
    it.state = State::DreqSent;
    let dreq = messages::dreq(id, it, transaction);
    tables.note_change(id);
    tables.send_until_answered(now, id, dreq);
}

fn send_drep(tables: &mut Tables, now: Instant, id: CommunicationId) {
    if let Some(it) = tables.connections.get(&id) {
        let drep = messages::drep(it.transaction, id, it.remote_id());
        tables.send_once(id, drep);
        tables.enter_timewait(now, id);
    }
}

/// Refuses a request or a response, or takes back what the peer has not answered.
pub(crate) fn reject(
    tables: &mut Tables,
    now: Instant,
    id: CommunicationId,
    parameters: &RejectParameters<'_>,
) -> Result<(), AgentError> {
    let allows = |state| {
        use State::{RepReceived, RepSent, ReqReceived, ReqSent};
        matches!(state, ReqReceived | RepReceived | ReqSent | RepSent)
    };
    let connection = tables.for_call(id, allows)?;
    let state = connection.state;
    let data = messages::private_data(parameters.private_data)?;
    let rej = messages::rej(id, connection, parameters.reason, data);
    tables.settle_request(id);
    match state {
        State::ReqSent => take_back_req(tables, now, id),
        State::RepSent => take_back_rep(tables, now, id, rej),
        _ => {
            tables.send_once(id, rej.clone());
            tables.become_idle(now, id, Some(rej));
        }
    }
    Ok(())
}

/// Takes back the REQ of a connection. The REJ names it by the GUID: the peer's id is not known. (The kernel
/// does so where the identifier is destroyed; its REJ of `rdma_reject` finds nothing at the peer.)
fn take_back_req(tables: &mut Tables, now: Instant, id: CommunicationId) {
    let Some(it) = tables.connections.get(&id) else { return };
    // The peer knows nothing of a REQ that has not left.
    if it.resend.as_ref().is_none_or(|resend| resend.has_left) {
        let rej = messages::rej_timeout(&tables.config, id, it);
        tables.send_once(id, rej);
    }
    tables.become_idle(now, id, None);
}

/// Takes back the REP of a connection. The peer may hold the connection for established, and repeats nothing
/// then: if the REJ is lost, only a DREQ that is repeated tells it. (The kernel sends none.)
fn take_back_rep(tables: &mut Tables, now: Instant, id: CommunicationId, rej: Bytes) {
    tables.send_once(id, rej);
    let transaction = tables.new_transaction();
    let Some(it) = tables.connections.get_mut(&id) else { return };
    it.state = State::DreqSent;
    // As with the kernel, which enters timewait at once.
    it.is_taken_back = true;
    let dreq = messages::dreq(id, it, transaction);
    tables.note_change(id);
    // The peer that has the REJ may use its queue pair again before the DREQ leaves.
    tables.release_queue_pair(id);
    tables.repeat_until_answered(now, id, dreq);
}

/// Gives up the connection `id`: the program hears no more of it.
//= rule cm-destroy: cm.c: cm_destroy_id
//# The peer of a destroyed connection is told: with a REJ of reason 4 if it has not answered our
//# REQ, with a REJ of reason 28 before the connection is established, with DREQ afterwards, and
//# with DREP if it has sent DREQ.
pub(crate) fn destroy(tables: &mut Tables, now: Instant, id: CommunicationId) {
    tables.settle_request(id);
    tables.outputs.forget_events(id);
    let Some(it) = tables.connections.get_mut(&id) else { return };
    it.is_destroyed = true;
    if let Some(listener) = it.backlog_of.take() {
        tables.listeners.remove_waiting(listener);
    }
    match it.state {
        State::ReqSent => take_back_req(tables, now, id),
        State::ReqReceived | State::RepReceived => {
            let rej = messages::rej(id, it, RejectReason::CONSUMER, [0; 148]);
            tables.send_once(id, rej.clone());
            tables.become_idle(now, id, Some(rej));
        }
        State::RepSent => {
            let rej = messages::rej(id, it, RejectReason::CONSUMER, [0; 148]);
            take_back_rep(tables, now, id, rej);
        }
        State::Established => send_dreq(tables, now, id),
        State::DreqReceived => send_drep(tables, now, id),
        // Their exchange ends without the program.
        State::DreqSent | State::Timewait => {}
        State::Idle => tables.become_idle(now, id, None),
    }
}

/// Repeats the last message of a connection, or gives up.
pub(crate) fn handle_timeout(tables: &mut Tables, now: Instant, id: CommunicationId) {
    let Some(it) = tables.connections.get_mut(&id) else { return };
    if let Some(resend) = &mut it.resend
        && resend.left > 0
    {
        resend.left -= 1;
        resend.is_lengthened = false;
        tables.outputs.counters.resent += 1;
        tables.send_repeated(now, id);
        return;
    }
    tables.outputs.counters.unanswered += 1;
    match it.state {
        State::ReqSent | State::RepSent => {
            let rej = messages::rej_timeout(&tables.config, id, it);
            tables.send_once(id, rej);
            tables.tell(Event::Unreachable { id });
            tables.become_idle(now, id, None);
        }
        _ => {
            tables.tell_disconnected(id);
            tables.enter_timewait(now, id);
        }
    }
}
