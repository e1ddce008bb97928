//! What the program asks about an identifier: addresses, path, and attributes of its queue pair.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::EINVAL;
use roce_abi::rdma_cm::{
    AF_IB, PathRecord, Plain, Query, SocketAddress, ib_path_rec_data, rdma_ucm_query_addr_resp,
    rdma_ucm_query_path_resp, rdma_ucm_query_route_resp, sockaddr_ib,
};
use roce_abi::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS,
    IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, RATES, ib_uverbs_ah_attr,
    ib_uverbs_qp_attr,
};
use roce_verbs::cm::{Error, Id, Route};
use roce_verbs::{Gid, PortRate};

use super::events::is_datagram;
use crate::device_list::ListedDevice;

/// The index of a device that the kernel has no number for.
const NO_INDEX: u32 = u32::MAX;

/// Addresses of an identifier.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    source: Option<SocketAddress>,
    destination: Option<SocketAddress>,
}

impl Addresses {
    /// Returns the addresses. `ib_source` is one of InfiniBand that the identifier was bound to.
    pub(super) fn of(id: &Id, ib_source: Option<sockaddr_ib>) -> Self {
        let source = id.local_address().map(SocketAddress::Ip);
        // As with the kernel an identifier that is bound has a peer of its family without an address.
        let none = || id.local_address().map(|it| SocketAddr::new(unspecified(it.ip()), 0));
        let destination = id.peer_address().or_else(none).map(SocketAddress::Ip);
        Self { source: ib_source.map(SocketAddress::Ib).or(source), destination }
    }
}

/// Returns the unspecified address of the family of an address.
fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Answers `RDMA_USER_CM_CMD_QUERY_ROUTE`.
pub(super) fn route(id: &Id, addresses: Addresses) -> rdma_ucm_query_route_resp {
    let mut response = rdma_ucm_query_route_resp::default();
    let write = |address: Option<SocketAddress>, out: &mut [u8]| {
        address.map(|address| address.write(out));
    };
    write(addresses.source, &mut response.src_addr);
    write(addresses.destination, &mut response.dst_addr);
    let Some((route, device)) = path_of(id) else { return response };
    response.node_guid = device.node_guid();
    response.port_num = 1;
    response.ibdev_index = NO_INDEX;
    let record = path_record(&route, device.rate());
    if route.has_path {
        response.num_paths = 1;
        response.ib_route[0] = record.for_user();
    } else {
        response.ib_route[0].sgid = record.sgid;
        response.ib_route[0].dgid = record.dgid;
        response.ib_route[0].pkey = record.pkey.to_be();
    }
    response
}

/// Answers `RDMA_USER_CM_CMD_QUERY` with as many bytes as the program has space for.
pub(super) fn query(id: &Id, addresses: Addresses, what: Query, space: u16) -> Vec<u8> {
    match what {
        Query::Addresses => of_addresses(id, addresses).to_vec(),
        Query::Gids => of_addresses(id, gids(id, addresses)).to_vec(),
        Query::Paths => {
            let path = path_of(id).filter(|(route, _)| route.has_path);
            let record = path.map(|(route, device)| path_record(&route, device.rate()).packed());
            let count = u32::from(record.is_some());
            let mut response = rdma_ucm_query_path_resp { num_paths: count, reserved: 0 }.to_vec();
            let left = usize::from(space).saturating_sub(response.len());
            if let Some(record) = record.filter(|_| left >= size_of::<ib_path_rec_data>()) {
                response.extend(record.to_vec());
            }
            response
        }
    }
}

fn of_addresses(id: &Id, addresses: Addresses) -> rdma_ucm_query_addr_resp {
    let mut response = rdma_ucm_query_addr_resp::default();
    if let Some(address) = addresses.source {
        response.src_size = address.write(&mut response.src_addr);
    }
    if let Some(address) = addresses.destination {
        response.dst_size = address.write(&mut response.dst_addr);
    }
    if let Some((_, device)) = path_of(id) {
        response.node_guid = device.node_guid();
        response.port_num = 1;
        response.pkey = DEFAULT_PARTITION_KEY.to_be();
        response.ibdev_index = NO_INDEX;
    }
    response
}

/// Returns the GIDs of both ends as addresses of InfiniBand.
fn gids(id: &Id, addresses: Addresses) -> Addresses {
    let Ok(route) = id.route() else {
        let none = SocketAddress::Ib(sockaddr_ib { sib_family: AF_IB, ..Default::default() });
        let source = addresses.source.filter(|it| matches!(it, SocketAddress::Ib(_)));
        return Addresses { source: source.or(Some(none)), destination: Some(none) };
    };
    let space = u64::from(id.space().0);
    let address = |gid: Gid, of: Option<SocketAddress>| {
        let port = match of {
            Some(SocketAddress::Ip(address)) => u64::from(address.port()),
            _ => 0,
        };
        SocketAddress::Ib(sockaddr_ib {
            sib_family: AF_IB,
            sib_pkey: DEFAULT_PARTITION_KEY.to_be(),
            sib_addr: gid.0,
            sib_sid: (space << 16 | port).to_be(),
            ..Default::default()
        })
    };
    let remote = route.remote.unwrap_or(Gid([0; 16]));
    Addresses {
        source: Some(address(route.local, addresses.source)),
        destination: Some(address(remote, addresses.destination)),
    }
}

/// Returns path and device of an identifier that is bound to one.
fn path_of(id: &Id) -> Option<(Route, &'static ListedDevice)> {
    let route = id.route().ok()?;
    let device = ListedDevice::of_interface(&route.interface).ok()?;
    Some((route, device))
}

/// The partition key of every queue pair.
const DEFAULT_PARTITION_KEY: u16 = 0xffff;

//= rule cm-path-record: cma.c: cma_resolve_iboe_route
//# The path to a peer has the hop limit 64, and a packet life time of 4.096 µs times two to the
//# power of 18.
fn path_record(route: &Route, rate: PortRate) -> PathRecord {
    let mbps = u64::from(rate.hundred_megabits()) * 100;
    let rate = RATES.iter().find(|rate| u64::from(rate.mbps.unsigned_abs()) == mbps);
    PathRecord {
        dgid: route.remote.map_or([0; 16], |gid| gid.0),
        sgid: route.local.0,
        pkey: DEFAULT_PARTITION_KEY,
        flow_label: 0,
        hop_limit: 64,
        traffic_class: route.traffic_class,
        mtu: route.path_mtu.map_or(0, |path_mtu| path_mtu as u8),
        rate: rate.map_or(0, |rate| rate.code as u8),
        packet_life_time: 18,
    }
}

/// Answers `RDMA_USER_CM_CMD_INIT_QP_ATTR` for a state, as the kernel's `rdma_init_qp_attr`.
///
/// # Errors
/// An `errno` value.
pub(super) fn attributes(id: &Id, state: u32) -> Result<ib_uverbs_qp_attr, c_int> {
    let failed = |error: Error| error.errno();
    // Also one of datagrams, whose attributes are the same in every state.
    if id.device().is_none() || state > IBV_QPS_ERR.cast_unsigned() {
        return Err(EINVAL);
    }
    let mut it = ib_uverbs_qp_attr { qp_state: state, ..Default::default() };
    let mut mask = IBV_QP_STATE;
    match state.cast_signed() {
        _ if is_datagram(id) => {
            it.qkey = id.q_key().unwrap_or_default();
            it.port_num = 1;
            mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
        }
        // Before there is a connection every state has what INIT has.
        state if state == IBV_QPS_INIT || !id.has_connection() => {
            let asked = id.init_attributes().map_err(failed)?;
            let flags = [
                (asked.remote_write, IBV_ACCESS_REMOTE_WRITE),
                (asked.remote_read, IBV_ACCESS_REMOTE_READ),
                (asked.remote_atomic, IBV_ACCESS_REMOTE_ATOMIC),
            ];
            let set = flags.iter().filter(|(is_set, _)| *is_set);
            it.qp_access_flags = set.fold(0, |flags, (_, flag)| flags | flag);
            it.port_num = 1;
            mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        }
        IBV_QPS_RTR => {
            let asked = id.rtr_attributes().map_err(failed)?;
            let route = id.route().map_err(failed)?;
            it.ah_attr = ib_uverbs_ah_attr {
                dgid: Gid::from(asked.remote).0,
                flow_label: asked.flow_label,
                sgid_index: route.gid_index,
                hop_limit: asked.hop_limit,
                traffic_class: asked.traffic_class,
                is_global: 1,
                port_num: 1,
                ..Default::default()
            };
            it.path_mtu = asked.path_mtu as u32;
            it.dest_qp_num = asked.dest_qpn.get();
            it.rq_psn = asked.rq_psn.get();
            mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
            if let Some(reliable) = asked.reliable {
                it.max_dest_rd_atomic = reliable.max_dest_rd_atomic;
                it.min_rnr_timer = reliable.min_rnr_timer;
                mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
            }
        }
        IBV_QPS_RTS => {
            let asked = id.rts_attributes().map_err(failed)?;
            it.sq_psn = asked.sq_psn.get();
            mask |= IBV_QP_SQ_PSN;
            if let Some(reliable) = asked.reliable {
                it.max_rd_atomic = reliable.max_rd_atomic;
                it.retry_cnt = reliable.retry_count;
                it.rnr_retry = reliable.rnr_retry;
                it.timeout = reliable.ack_timeout.code();
                mask |=
                    IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT;
            }
        }
        _ => return Err(EINVAL),
    }
    it.qp_attr_mask = mask.cast_unsigned();
    Ok(it)
}

/// Returns an address of IPv4 or IPv6.
///
/// # Errors
/// `ENODEV` for one of InfiniBand, where no device has addresses.
pub(super) fn ip(address: SocketAddress) -> Result<SocketAddr, c_int> {
    match address {
        SocketAddress::Ip(address) => Ok(address),
        SocketAddress::Ib(_) => Err(libc::ENODEV),
    }
}

#[cfg(test)]
mod tests {
    use roce_verbs::PathMtu;

    use super::*;

    #[test]
    //= test cm-path-record
    fn a_path_has_both_gids_and_the_values_that_the_kernel_gives_every_path() {
        let [local, remote] = [1, 2].map(|byte| Gid([byte; 16]));
        let route = Route {
            interface: "eth0".to_owned(),
            gid_index: 1,
            local,
            remote: Some(remote),
            path_mtu: Some(PathMtu::B1024),
            traffic_class: 8,
            has_path: true,
        };
        let record = path_record(&route, PortRate::of(Some(40_000)));
        assert_eq!((record.sgid, record.dgid, record.pkey), ([1; 16], [2; 16], 0xffff));
        assert_eq!((record.mtu, record.traffic_class, record.rate), (3, 8, 7));
        assert_eq!((record.hop_limit, record.packet_life_time), (64, 18));
    }
}
