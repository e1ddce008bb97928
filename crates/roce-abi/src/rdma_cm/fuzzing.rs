//! The body of the fuzz target `ucma_commands`, for the fuzzer and for the test that replays its
//! corpus; not part of the crate's interface.

use super::*;

/// Checks that any bytes are refused as a command, or read as one: from what the header says
/// belongs to it alone, so that its structure, written again, is read as the same.
///
/// # Panics
/// If that is not so.
pub fn ucma_commands(bytes: &[u8]) {
    let read = Command::decode(bytes);
    let Some(header) = bytes.get(..8).map(rdma_ucm_cmd_hdr::read) else {
        assert_eq!(read, Err(libc::EINVAL));
        return;
    };
    let end = 8 + usize::from(header.r#in);
    let Some(structure) = bytes.get(8..end) else {
        assert_eq!(read, Err(libc::EINVAL));
        return;
    };
    assert_eq!(Command::decode(&bytes[..end]), read);
    assert_eq!(Command::decode(&bytes[..end - 1]), Err(libc::EINVAL));
    let Ok(command) = read else { return };
    let written = written_again(header.cmd, structure);
    let header = rdma_ucm_cmd_hdr { r#in: written.len() as u16, ..header };
    let again = Command::decode(&[header.to_vec(), written].concat());
    assert_eq!(again.as_ref(), Ok(&command));
    match command {
        Command::Bind { address, .. } | Command::JoinMulticast { address, .. } => check(address),
        Command::ResolveAddress { source, destination, .. } => {
            source.into_iter().chain([destination]).for_each(check);
        }
        Command::Connect { parameters, .. } => {
            let len = usize::from(parameters.private_data_len);
            assert_eq!(parameters.private_data().len(), len);
        }
        _ => {}
    }
}

/// Checks that an address is read as it was written.
fn check(address: SocketAddress) {
    let mut bytes = [0; 128];
    assert_eq!(usize::from(address.write(&mut bytes)), address.size());
    assert_eq!(SocketAddress::read(&bytes), Some(address));
}

/// Returns the bytes of a command's structure, as it was read.
fn written_again(command: u32, structure: &[u8]) -> Vec<u8> {
    fn again<T: Plain>(structure: &[u8]) -> Vec<u8> {
        let bytes = T::read(structure).to_vec();
        let common = bytes.len().min(structure.len());
        assert_eq!(bytes[..common], structure[..common]);
        bytes
    }
    match command {
        RDMA_USER_CM_CMD_CREATE_ID => again::<rdma_ucm_create_id>(structure),
        RDMA_USER_CM_CMD_DESTROY_ID | RDMA_USER_CM_CMD_LEAVE_MCAST => {
            again::<rdma_ucm_destroy_id>(structure)
        }
        RDMA_USER_CM_CMD_BIND_IP => again::<rdma_ucm_bind_ip>(structure),
        RDMA_USER_CM_CMD_RESOLVE_IP => again::<rdma_ucm_resolve_ip>(structure),
        RDMA_USER_CM_CMD_RESOLVE_ROUTE => again::<rdma_ucm_resolve_route>(structure),
        RDMA_USER_CM_CMD_QUERY_ROUTE | RDMA_USER_CM_CMD_QUERY => again::<rdma_ucm_query>(structure),
        RDMA_USER_CM_CMD_CONNECT => again::<rdma_ucm_connect>(structure),
        RDMA_USER_CM_CMD_LISTEN => again::<rdma_ucm_listen>(structure),
        RDMA_USER_CM_CMD_ACCEPT => again::<rdma_ucm_accept>(structure),
        RDMA_USER_CM_CMD_REJECT => again::<rdma_ucm_reject>(structure),
        RDMA_USER_CM_CMD_DISCONNECT => again::<rdma_ucm_disconnect>(structure),
        RDMA_USER_CM_CMD_INIT_QP_ATTR => again::<rdma_ucm_init_qp_attr>(structure),
        RDMA_USER_CM_CMD_GET_EVENT => again::<rdma_ucm_get_event>(structure),
        RDMA_USER_CM_CMD_SET_OPTION => again::<rdma_ucm_set_option>(structure),
        RDMA_USER_CM_CMD_NOTIFY => again::<rdma_ucm_notify>(structure),
        RDMA_USER_CM_CMD_JOIN_IP_MCAST => again::<rdma_ucm_join_ip_mcast>(structure),
        RDMA_USER_CM_CMD_MIGRATE_ID => again::<rdma_ucm_migrate_id>(structure),
        RDMA_USER_CM_CMD_BIND => again::<rdma_ucm_bind>(structure),
        RDMA_USER_CM_CMD_RESOLVE_ADDR => again::<rdma_ucm_resolve_addr>(structure),
        RDMA_USER_CM_CMD_JOIN_MCAST => again::<rdma_ucm_join_mcast>(structure),
        RDMA_USER_CM_CMD_WRITE_CM_EVENT => again::<rdma_ucm_write_cm_event>(structure),
        _ => structure.to_vec(),
    }
}
