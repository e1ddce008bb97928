//! What a program has written to the device.
//!
//! Reading is apart from doing, so that the bytes of any program are fuzzed without a device: [`Command`] is the table
//! of both, and the compiler sees that each of its commands is carried out.

use std::ffi::c_int;

use libc::{EINVAL, ENOSPC, ENOSYS};

use super::plain::Plain;
use super::socket_address::SocketAddress;
use super::structures::*;
use super::values::*;

/// A command of any program, for instance of librdmacm of any version.
///
/// Numbers are those of the program: no identifier needs to exist, and no address to be valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Makes an identifier.
    CreateId {
        /// What events of the identifier carry.
        uid: u64,
        /// Port space.
        port_space: u16,
        /// Type of the queue pair, for the port space of InfiniBand.
        qp_type: u8,
        /// For a [`rdma_ucm_create_id_resp`].
        response: ResponseSpace,
    },
    /// Ends an identifier.
    DestroyId {
        /// The identifier.
        id: u32,
        /// For a [`rdma_ucm_destroy_id_resp`].
        response: ResponseSpace,
    },
    /// Gives an identifier an address of this host.
    Bind {
        /// The identifier.
        id: u32,
        /// Address and port.
        address: SocketAddress,
    },
    /// Looks for the device of a route.
    ResolveAddress {
        /// The identifier.
        id: u32,
        /// Address and port of this host; `None` leaves the choice to the device.
        source: Option<SocketAddress>,
        /// The peer's address and port.
        destination: SocketAddress,
        /// Time limit in milliseconds.
        timeout_ms: u32,
    },
    /// Looks for the path to the resolved address.
    ResolveRoute {
        /// The identifier.
        id: u32,
        /// Time limit in milliseconds.
        timeout_ms: u32,
    },
    /// Asks for addresses, device and path.
    QueryRoute {
        /// The identifier.
        id: u32,
        /// For a [`rdma_ucm_query_route_resp`].
        response: ResponseSpace,
    },
    /// Asks for addresses, paths or GIDs.
    Query {
        /// The identifier.
        id: u32,
        /// What is asked for.
        what: Query,
        /// For a [`rdma_ucm_query_addr_resp`] or a [`rdma_ucm_query_path_resp`].
        response: ResponseSpace,
    },
    /// Asks a peer for a connection or for its queue pair.
    Connect {
        /// The identifier.
        id: u32,
        /// The program's queue pair, and what the peer is told.
        parameters: Box<rdma_ucm_conn_param>,
        /// Options of the vendor.
        ece: Ece,
    },
    /// Waits for requests of peers.
    Listen {
        /// The identifier.
        id: u32,
        /// Requests that may wait.
        backlog: u32,
    },
    /// Accepts a request, or a response.
    Accept {
        /// The identifier.
        id: u32,
        /// What events of the identifier carry from now on, if it accepts a request.
        uid: u64,
        /// What the peer is told; `None` accepts a response.
        parameters: Option<Box<rdma_ucm_conn_param>>,
        /// Options of the vendor.
        ece: Ece,
    },
    /// Refuses a request or a response.
    Reject {
        /// The identifier.
        id: u32,
        /// Reason; 0 is that of the program.
        reason: u8,
        /// What the peer is told.
        private_data: Vec<u8>,
    },
    /// Ends a connection, or agrees to its end.
    Disconnect {
        /// The identifier.
        id: u32,
    },
    /// Asks for the attributes that the queue pair needs for a state.
    InitQpAttr {
        /// The identifier.
        id: u32,
        /// The state, as a number of verbs.
        qp_state: u32,
        /// For a [`ib_uverbs_qp_attr`](crate::ib_uverbs_qp_attr).
        response: ResponseSpace,
    },
    /// Fetches an event.
    GetEvent {
        /// For a [`rdma_ucm_event_resp`].
        response: ResponseSpace,
    },
    /// Sets an option.
    SetOption {
        /// The identifier.
        id: u32,
        /// Level of the option.
        level: u32,
        /// The option.
        name: u32,
        /// Address of the value.
        address: u64,
        /// Bytes of the value.
        len: u32,
    },
    /// Tells of an event of the queue pair.
    Notify {
        /// The identifier.
        id: u32,
        /// The event, as a number of verbs.
        event: u32,
    },
    /// Joins a group.
    JoinMulticast {
        /// The identifier.
        id: u32,
        /// What events of the group carry.
        uid: u64,
        /// Address of the group.
        address: SocketAddress,
        /// The program only sends to the group.
        send_only: bool,
        /// For a [`rdma_ucm_create_id_resp`].
        response: ResponseSpace,
    },
    /// Leaves a group.
    LeaveMulticast {
        /// What joining returned.
        id: u32,
        /// For a [`rdma_ucm_destroy_id_resp`].
        response: ResponseSpace,
    },
    /// Moves an identifier to this channel.
    MigrateId {
        /// The identifier.
        id: u32,
        /// Descriptor of the channel that it is on.
        fd: u32,
        /// For a [`rdma_ucm_migrate_resp`].
        response: ResponseSpace,
    },
    /// Looks for services in the subnet.
    ResolveIbService,
    /// Raises an event of the program's own.
    WriteCmEvent {
        /// The identifier.
        id: u32,
        /// The event.
        event: u32,
        /// Its status.
        status: u32,
        /// What it carries: the first eight of the bytes in an event's structure.
        argument: u64,
    },
}

/// Where the response of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseSpace {
    /// Address in the memory of the program.
    pub address: u64,
    /// Bytes that the response may have.
    pub len: u16,
}

/// What [`Command::Query`] asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// Addresses and device.
    Addresses,
    /// Paths.
    Paths,
    /// Addresses as GIDs.
    Gids,
}

/// Options of a vendor for a connection.
pub type Ece = rdma_ucm_ece;

impl Command {
    /// Reads what a program has written.
    ///
    /// # Errors
    /// As the kernel: `EINVAL` for an unknown command, a structure that is longer than what was
    /// written or shorter than the command needs, or wrong values; `ENOSPC` if the response has too
    /// little space; `ENOSYS` for what the device does not have.
    pub fn decode(written: &[u8]) -> Result<Self, c_int> {
        let (header, behind) =
            written.split_at_checked(size_of::<rdma_ucm_cmd_hdr>()).ok_or(EINVAL)?;
        let header = rdma_ucm_cmd_hdr::read(header);
        let structure = behind.get(..usize::from(header.r#in)).ok_or(EINVAL)?;
        decode(header.cmd, Structure(structure), header.out)
    }
}

/// The structure behind the header.
#[derive(Clone, Copy)]
struct Structure<'a>(&'a [u8]);

impl Structure<'_> {
    /// Reads the structure.
    fn read<T: Plain>(self) -> Result<T, c_int> {
        self.read_prefix(size_of::<T>())
    }

    /// Reads a structure of which programs may have the first `min` bytes only.
    fn read_prefix<T: Plain>(self, min: usize) -> Result<T, c_int> {
        if self.0.len() < min { Err(EINVAL) } else { Ok(T::read(self.0)) }
    }
}

fn decode(number: u32, structure: Structure<'_>, out: u16) -> Result<Command, c_int> {
    let space = |address: u64, min: usize| match usize::from(out) < min {
        true => Err(ENOSPC),
        false => Ok(ResponseSpace { address, len: out }),
    };
    let id_space = |address| space(address, size_of::<rdma_ucm_create_id_resp>());
    Ok(match number {
        RDMA_USER_CM_CMD_CREATE_ID => {
            let it: rdma_ucm_create_id = structure.read()?;
            let response = id_space(it.response)?;
            Command::CreateId { uid: it.uid, port_space: it.ps, qp_type: it.qp_type, response }
        }
        RDMA_USER_CM_CMD_DESTROY_ID => {
            let it: rdma_ucm_destroy_id = structure.read()?;
            Command::DestroyId { id: it.id, response: id_space(it.response)? }
        }
        RDMA_USER_CM_CMD_LEAVE_MCAST => {
            let it: rdma_ucm_destroy_id = structure.read()?;
            Command::LeaveMulticast { id: it.id, response: id_space(it.response)? }
        }
        RDMA_USER_CM_CMD_BIND_IP => {
            let it: rdma_ucm_bind_ip = structure.read()?;
            Command::Bind { id: it.id, address: ip(&it.addr)? }
        }
        RDMA_USER_CM_CMD_BIND => {
            let it: rdma_ucm_bind = structure.read()?;
            if it.reserved != 0 {
                return Err(EINVAL);
            }
            Command::Bind { id: it.id, address: sized(&it.addr, it.addr_size)? }
        }
        RDMA_USER_CM_CMD_RESOLVE_IP => {
            let it: rdma_ucm_resolve_ip = structure.read()?;
            let has_source = u16::read(&it.src_addr) != 0;
            Command::ResolveAddress {
                id: it.id,
                source: has_source.then(|| ip(&it.src_addr)).transpose()?,
                destination: ip(&it.dst_addr)?,
                timeout_ms: it.timeout_ms,
            }
        }
        RDMA_USER_CM_CMD_RESOLVE_ADDR => {
            let it: rdma_ucm_resolve_addr = structure.read()?;
            if it.reserved != 0 {
                return Err(EINVAL);
            }
            let has_source = it.src_size != 0;
            Command::ResolveAddress {
                id: it.id,
                source: has_source.then(|| sized(&it.src_addr, it.src_size)).transpose()?,
                destination: sized(&it.dst_addr, it.dst_size)?,
                timeout_ms: it.timeout_ms,
            }
        }
        RDMA_USER_CM_CMD_RESOLVE_ROUTE => {
            let it: rdma_ucm_resolve_route = structure.read()?;
            Command::ResolveRoute { id: it.id, timeout_ms: it.timeout_ms }
        }
        RDMA_USER_CM_CMD_QUERY_ROUTE => {
            let it: rdma_ucm_query = structure.read()?;
            let min = std::mem::offset_of!(rdma_ucm_query_route_resp, ibdev_index);
            Command::QueryRoute { id: it.id, response: space(it.response, min)? }
        }
        RDMA_USER_CM_CMD_QUERY => {
            let it: rdma_ucm_query = structure.read()?;
            let addresses = std::mem::offset_of!(rdma_ucm_query_addr_resp, ibdev_index);
            let (what, min) = match it.option {
                RDMA_USER_CM_QUERY_ADDR => (Query::Addresses, addresses),
                RDMA_USER_CM_QUERY_PATH => (Query::Paths, size_of::<rdma_ucm_query_path_resp>()),
                RDMA_USER_CM_QUERY_GID => (Query::Gids, addresses),
                _ => return Err(ENOSYS),
            };
            Command::Query { id: it.id, what, response: space(it.response, min)? }
        }
        RDMA_USER_CM_CMD_CONNECT => {
            // Without `ece` before rdma-core 32.
            let min = std::mem::offset_of!(rdma_ucm_connect, ece);
            let it: rdma_ucm_connect = structure.read_prefix(min)?;
            if it.conn_param.valid == 0 {
                return Err(EINVAL);
            }
            Command::Connect { id: it.id, parameters: Box::new(it.conn_param), ece: it.ece }
        }
        RDMA_USER_CM_CMD_LISTEN => {
            let it: rdma_ucm_listen = structure.read()?;
            Command::Listen { id: it.id, backlog: it.backlog }
        }
        RDMA_USER_CM_CMD_ACCEPT => {
            let min = std::mem::offset_of!(rdma_ucm_accept, ece);
            let it: rdma_ucm_accept = structure.read_prefix(min)?;
            let parameters = (it.conn_param.valid != 0).then(|| Box::new(it.conn_param));
            Command::Accept { id: it.id, uid: it.uid, parameters, ece: it.ece }
        }
        RDMA_USER_CM_CMD_REJECT => {
            let it: rdma_ucm_reject = structure.read()?;
            let private_data = it.private_data.iter().take(usize::from(it.private_data_len));
            let private_data = private_data.copied().collect();
            Command::Reject { id: it.id, reason: it.reason, private_data }
        }
        RDMA_USER_CM_CMD_DISCONNECT => {
            let it: rdma_ucm_disconnect = structure.read()?;
            Command::Disconnect { id: it.id }
        }
        RDMA_USER_CM_CMD_INIT_QP_ATTR => {
            let it: rdma_ucm_init_qp_attr = structure.read()?;
            let response = space(it.response, size_of::<crate::ib_uverbs_qp_attr>())?;
            if it.qp_state > crate::IBV_QPS_ERR as u32 {
                return Err(EINVAL);
            }
            Command::InitQpAttr { id: it.id, qp_state: it.qp_state, response }
        }
        RDMA_USER_CM_CMD_GET_EVENT => {
            let it: rdma_ucm_get_event = structure.read()?;
            let min = std::mem::offset_of!(rdma_ucm_event_resp, reserved);
            Command::GetEvent { response: space(it.response, min)? }
        }
        RDMA_USER_CM_CMD_SET_OPTION => {
            let it: rdma_ucm_set_option = structure.read()?;
            let rdma_ucm_set_option { optval: address, id, level, optname: name, optlen: len } = it;
            Command::SetOption { id, level, name, address, len }
        }
        RDMA_USER_CM_CMD_NOTIFY => {
            let it: rdma_ucm_notify = structure.read()?;
            Command::Notify { id: it.id, event: it.event }
        }
        RDMA_USER_CM_CMD_JOIN_IP_MCAST => {
            let it: rdma_ucm_join_ip_mcast = structure.read()?;
            let (response, address) = (id_space(it.response)?, ip(&it.addr)?);
            Command::JoinMulticast { id: it.id, uid: it.uid, address, send_only: false, response }
        }
        RDMA_USER_CM_CMD_JOIN_MCAST => {
            let it: rdma_ucm_join_mcast = structure.read()?;
            let response = id_space(it.response)?;
            let address = sized(&it.addr, it.addr_size)?;
            let send_only = match it.join_flags {
                RDMA_MC_JOIN_FLAG_FULLMEMBER => false,
                RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => true,
                _ => return Err(EINVAL),
            };
            Command::JoinMulticast { id: it.id, uid: it.uid, address, send_only, response }
        }
        RDMA_USER_CM_CMD_MIGRATE_ID => {
            let it: rdma_ucm_migrate_id = structure.read()?;
            Command::MigrateId { id: it.id, fd: it.fd, response: id_space(it.response)? }
        }
        RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE => Command::ResolveIbService,
        RDMA_USER_CM_CMD_WRITE_CM_EVENT => {
            let it: rdma_ucm_write_cm_event = structure.read()?;
            let argument = u64::read(&it.param);
            Command::WriteCmEvent { id: it.id, event: it.event, status: it.status, argument }
        }
        // The kernel has a number for it, and nothing behind it.
        RDMA_USER_CM_CMD_GET_OPTION => return Err(ENOSYS),
        _ => return Err(EINVAL),
    })
}

/// Reads an address of IPv4 or IPv6.
fn ip(bytes: &[u8; 28]) -> Result<SocketAddress, c_int> {
    let address = SocketAddress::read(bytes);
    address.filter(|address| matches!(address, SocketAddress::Ip(_))).ok_or(EINVAL)
}

/// Reads an address that has as many bytes as the program says.
fn sized(bytes: &[u8; 128], size: u16) -> Result<SocketAddress, c_int> {
    let address = SocketAddress::read(bytes);
    address.filter(|address| address.size() == usize::from(size)).ok_or(EINVAL)
}
