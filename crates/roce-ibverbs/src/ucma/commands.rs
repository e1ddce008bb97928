//! What commands do. `roce_abi::rdma_cm::Command` says which there are, and reads them.

use std::ffi::c_int;
use std::net::IpAddr;
use std::time::Duration;

use libc::{EINVAL, ENODEV, ENOMEM, EOPNOTSUPP};
use roce_abi::rdma_cm::{
    Command, Plain, RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP, SocketAddress,
    rdma_ucm_conn_param, rdma_ucm_create_id_resp, rdma_ucm_destroy_id_resp, rdma_ucm_migrate_resp,
};
use roce_abi::{IBV_EVENT_COMM_EST, IBV_QPT_RC};
use roce_verbs::Qpn;
use roce_verbs::cm::{ConnectionParameters, Error, Id, JoinMode, PortSpace, RejectReason};

use super::channel::{Channel, RaisedEvent};
use super::events;
use super::joins::JoinedGroup;
use super::memory;
use super::options;
use super::process::{self, Lookup, Process};
use super::queries::{self, Addresses, ip};

/// Carries out a command other than that for the next event.
///
/// # Errors
/// An `errno` value.
pub(super) fn carry_out(
    process: &'static Process,
    channel: &Channel,
    command: Command,
) -> Result<(), c_int> {
    // Without the lock: opening a device takes a while.
    let find = |number| {
        let state = process.state();
        state.ids.find(number, channel.cookie).map(|identifier| identifier.id.clone())
    };
    let addresses = |number| {
        let state = process.state();
        let identifier = state.ids.find(number, channel.cookie)?;
        let addresses = Addresses::of(&identifier.id, identifier.ib_address);
        Ok::<_, c_int>((identifier.id.clone(), addresses))
    };
    match command {
        Command::CreateId { uid, port_space, qp_type, response } => {
            let number = create(process, channel, uid, port_space, qp_type)?;
            memory::respond(response, &rdma_ucm_create_id_resp { id: number }.to_vec())
        }
        Command::DestroyId { id, response } => {
            let reported = destroy(process, channel, id)?;
            let reported = rdma_ucm_destroy_id_resp { events_reported: reported };
            memory::respond(response, &reported.to_vec())
        }
        Command::Bind { id, address: SocketAddress::Ib(address) } => {
            let mut state = process.state();
            state.ids.find_mut(id, channel.cookie)?.ib_address = Some(address);
            Ok(())
        }
        Command::Bind { id, address } => find(id)?.bind(ip(address)?).map_err(failed),
        Command::ResolveAddress { id, source, destination, timeout_ms } => {
            let source = source.map(ip).transpose()?;
            let timeout = Duration::from_millis(timeout_ms.into());
            find(id)?.resolve_addr(source, ip(destination)?, timeout).map_err(failed)
        }
        Command::ResolveRoute { id, .. } => find(id)?.resolve_route().map_err(failed),
        Command::QueryRoute { id, response } => {
            let (id, addresses) = addresses(id)?;
            memory::respond(response, &queries::route(&id, addresses).to_vec())
        }
        Command::Query { id, what, response } => {
            let (id, addresses) = addresses(id)?;
            memory::respond(response, &queries::query(&id, addresses, what, response.len))
        }
        Command::Connect { id, parameters, .. } => {
            find(id)?.connect(&connection(&parameters)?).map_err(failed)
        }
        Command::Listen { id, backlog } => {
            let id = {
                let state = process.state();
                let identifier = state.ids.find(id, channel.cookie)?;
                if identifier.ib_address.is_some() {
                    return Err(ENODEV);
                }
                identifier.id.clone()
            };
            id.listen(backlog).map_err(failed)
        }
        Command::Accept { id, parameters: None, .. } => {
            let identifier = find(id)?;
            let done = match events::is_datagram(&identifier) {
                // As the kernel, which names no queue pair then.
                true => identifier.accept(&connection(&rdma_ucm_conn_param::default())?),
                false => identifier.establish(),
            };
            done.map_err(|error| {
                tell_peer_of_refusal(&identifier);
                failed(error)
            })
        }
        Command::Accept { id, uid, parameters: Some(parameters), .. } => {
            let parameters = connection(&parameters)?;
            // Until both are done no event is fetched: what the peer answers belongs to the `uid`.
            let mut state = process.state();
            let identifier = state.ids.find_mut(id, channel.cookie)?;
            // See `next_event.rs`. The peer may answer before the call returns.
            let is_new = identifier.uid == 0;
            identifier.id.ignore_events(false);
            if let Err(error) = identifier.id.accept(&parameters) {
                identifier.id.ignore_events(is_new);
                tell_peer_of_refusal(&identifier.id);
                return Err(failed(error));
            }
            identifier.uid = uid;
            Ok(())
        }
        Command::Reject { id, reason, private_data } => {
            let reason = match reason {
                0 => RejectReason::CONSUMER,
                CONSUMER | NO_VENDOR_OPTION => RejectReason(reason.into()),
                _ => return Err(EINVAL),
            };
            find(id)?.reject(reason, &private_data).map_err(failed)
        }
        Command::Disconnect { id } => find(id)?.disconnect().map_err(failed),
        Command::InitQpAttr { id, qp_state, response } => {
            memory::respond(response, &queries::attributes(&find(id)?, qp_state)?.to_vec())
        }
        Command::SetOption { id, level, name, address, len } => {
            options::set(&find(id)?, level, name, address, len)
        }
        Command::Notify { id, event } => match event.cast_signed() {
            IBV_EVENT_COMM_EST => find(id)?.notify_established().map_err(failed),
            _ => Err(EINVAL),
        },
        Command::MigrateId { id, fd, response } => {
            let reported = migrate(process, channel, id, fd.cast_signed())?;
            let reported = rdma_ucm_migrate_resp { events_reported: reported };
            memory::respond(response, &reported.to_vec())
        }
        Command::WriteCmEvent { id, event, status, argument } => {
            find(id)?;
            let is_raised = channel.raise(RaisedEvent { id, event, status, argument });
            if is_raised { Ok(()) } else { Err(ENOMEM) }
        }
        // As without a subnet administrator.
        Command::ResolveIbService => Err(EOPNOTSUPP),
        Command::JoinMulticast { id, uid, address, send_only, response } => {
            let mode = if send_only { JoinMode::SendOnly } else { JoinMode::FullMember };
            let number = join(process, channel, id, uid, ip(address)?.ip(), mode)?;
            memory::respond(response, &rdma_ucm_create_id_resp { id: number }.to_vec())
        }
        Command::LeaveMulticast { id, response } => {
            let reported = leave(process, channel, id)?;
            let reported = rdma_ucm_destroy_id_resp { events_reported: reported };
            memory::respond(response, &reported.to_vec())
        }
        // `write` has carried it out.
        Command::GetEvent { .. } => Err(EINVAL),
    }
}

/// Reasons for which a program may refuse a connection.
const CONSUMER: u8 = 28;
const NO_VENDOR_OPTION: u8 = 35;

fn failed(error: Error) -> c_int {
    error.errno()
}

fn create(
    process: &Process,
    channel: &Channel,
    uid: u64,
    port_space: u16,
    qp_type: u8,
) -> Result<u32, c_int> {
    let is_known = match port_space {
        RDMA_PS_TCP | RDMA_PS_UDP | RDMA_PS_IPOIB => true,
        RDMA_PS_IB => i32::from(qp_type) == IBV_QPT_RC,
        _ => false,
    };
    if !is_known {
        return Err(EINVAL);
    }
    let id = channel.events.create_id(PortSpace(port_space), 0).map_err(failed)?;
    let mut state = process.state();
    match state.ids.add(id.clone(), uid, channel.cookie) {
        Some(number) => Ok(number),
        None => {
            drop(state);
            id.destroy();
            Err(ENOMEM)
        }
    }
}

/// Rejects the peer's message whose answer has failed, or takes back this end's: as with the kernel the peer does
/// not go on waiting.
fn tell_peer_of_refusal(id: &Id) {
    // Nothing is to be told in other states.
    let _nothing = id.reject(RejectReason::CONSUMER, &[]);
}

/// Destroys an identifier, and returns how many events of it the program has fetched.
fn destroy(process: &Process, channel: &Channel, number: u32) -> Result<u32, c_int> {
    let mut state = process.state();
    let identifier = state.ids.take(number, channel.cookie)?;
    channel.take_raised_for(number);
    state.joins.remove_those_of(number);
    identifier.id.destroy();
    Ok(identifier.reported)
}

/// Joins a multicast group, and returns the number of the join.
fn join(
    process: &Process,
    channel: &Channel,
    number: u32,
    uid: u64,
    group: IpAddr,
    mode: JoinMode,
) -> Result<u32, c_int> {
    let (id, join) = {
        let mut state = process.state();
        let id = state.ids.find(number, channel.cookie)?.id.clone();
        let cookie = channel.cookie;
        let join = JoinedGroup { id: number, channel: cookie, uid, group, reported: 0 };
        (id, state.joins.add(join)?)
    };
    // The event may come before this returns: it leads back to the join by its number.
    id.join(group, mode, join.into()).map(|()| join).map_err(|error| {
        let _unused = process.state().joins.take(join, channel.cookie);
        failed(error)
    })
}

/// Leaves a multicast group, and returns how many events of the join the program has fetched.
fn leave(process: &Process, channel: &Channel, number: u32) -> Result<u32, c_int> {
    let mut state = process.state();
    let join = state.joins.take(number, channel.cookie)?;
    let id = &state.ids.find(join.id, channel.cookie)?.id;
    // With the lock: an event that waits is counted before, or gone.
    id.leave(join.group, number.into()).map_err(failed)?;
    Ok(join.reported)
}

/// Moves an identifier to this channel, and returns how many events of it the program has fetched.
fn migrate(process: &Process, to: &Channel, number: u32, fd: c_int) -> Result<u32, c_int> {
    let Lookup::Channel(_, from) = process::find(fd) else { return Err(EINVAL) };
    let reported = {
        let mut state = process.state();
        let identifier = state.ids.find_mut(number, from.cookie)?;
        identifier.id.migrate(&to.events);
        if identifier.channel != to.cookie {
            identifier.moved_from = Some(identifier.channel);
        }
        identifier.channel = to.cookie;
        for event in from.take_raised_for(number) {
            to.raise(event);
        }
        let reported = identifier.reported;
        state.joins.migrate(number, to.cookie);
        reported
    };
    from.bell.settle(fd);
    Ok(reported)
}

/// Translates what the program tells its peer.
fn connection(asked: &rdma_ucm_conn_param) -> Result<ConnectionParameters<'_>, c_int> {
    let qpn = Qpn::new(asked.qp_num).ok_or(EINVAL)?;
    Ok(ConnectionParameters {
        responder_resources: asked.responder_resources,
        initiator_depth: asked.initiator_depth,
        flow_control: asked.flow_control != 0,
        retry_count: asked.retry_count & 7,
        rnr_retry_count: asked.rnr_retry_count & 7,
        srq: asked.srq != 0,
        q_key: (asked.qkey != 0).then_some(asked.qkey),
        private_data: asked.private_data(),
        ..ConnectionParameters::new(qpn)
    })
}
