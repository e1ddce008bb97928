//! Whether a request names addresses and a path that this host has.

use std::net::IpAddr;

use roce_wire::PathMtu;
use roce_wire::management::{CmaHeader, RejectReason, Req, TransportService};

use crate::config::AgentConfig;

/// Returns the addresses of a request's private data.
///
/// # Errors
/// They are not rdma_cm's, or not those of this host and of one peer.
//= rule cm-request-addresses: cma.c: cma_save_net_info; cma.c: validate_ipv4_net_dev
//# A request whose private data does not begin with unicast addresses, of which the destination is the
//# receiver's, is rejected with the reason 28.
pub(crate) fn check_addresses(
    config: &AgentConfig,
    private_data: &[u8],
) -> Result<CmaHeader, RejectReason> {
    let header = CmaHeader::decode(private_data).map_err(|_| RejectReason::CONSUMER)?;
    let (source, destination) = (header.source(), header.destination());
    let is_broadcast = |address| match address {
        IpAddr::V4(it) => it.is_broadcast(),
        IpAddr::V6(_) => false,
    };
    let is_unicast = !source.is_unspecified() && !source.is_multicast() && !is_broadcast(source);
    // A loopback address reaches only itself.
    let is_consistent = source.is_loopback() == destination.is_loopback();
    if is_unicast && is_consistent && config.local_addresses.contains(&destination) {
        Ok(header)
    } else {
        Err(RejectReason::CONSUMER)
    }
}

/// Returns the addresses and the path MTU of a REQ.
///
/// # Errors
/// The connection that it asks for is not possible.
pub(crate) fn check_req(
    config: &AgentConfig,
    req: &Req,
) -> Result<(CmaHeader, PathMtu), RejectReason> {
    let header = check_addresses(config, &req.private_data)?;
    if !matches!(req.transport_service, TransportService::Rc | TransportService::Uc) {
        return Err(RejectReason::INVALID_TRANSPORT);
    }
    //= rule cm-no-alternate-path: cm.c: cm_req_handler
    //# A REQ with an alternate path is rejected: RoCE has none.
    if req.alternate_local_lid != 0 {
        return Err(RejectReason::CONSUMER);
    }
    // rxe accepts it, and the connection fails with its first long message.
    match PathMtu::from_code(req.path_mtu) {
        Some(mtu) if mtu <= config.path_mtu => Ok((header, mtu)),
        _ => Err(RejectReason::INVALID_MTU),
    }
}
