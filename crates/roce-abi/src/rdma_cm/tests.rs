//! Commands of every length, responses, and the corpus of the fuzz target.

use libc::{EINVAL, ENOSPC, ENOSYS};
use roce_fuzz_support::{check_seed, replay};

use super::fuzzing::ucma_commands;
use super::*;

/// Returns a command of librdmacm: the header and the structure.
fn written(cmd: u32, out: u16, structure: &impl Plain) -> Vec<u8> {
    let structure = structure.to_vec();
    let header = rdma_ucm_cmd_hdr { cmd, r#in: structure.len() as u16, out };
    [header.to_vec(), structure].concat()
}

fn address(text: &str) -> SocketAddress {
    SocketAddress::Ip(text.parse().unwrap())
}

/// Returns the bytes of an address, filled up with zeros.
fn stored<const N: usize>(address: SocketAddress) -> [u8; N] {
    let mut bytes = [0; N];
    address.write(&mut bytes);
    bytes
}

const RESPONSE: u64 = 0x7fff_0000_1000;

fn space(len: u16) -> ResponseSpace {
    ResponseSpace { address: RESPONSE, len }
}

fn parameters() -> rdma_ucm_conn_param {
    rdma_ucm_conn_param {
        qp_num: 0x11,
        private_data: [7; 256],
        private_data_len: 56,
        responder_resources: 1,
        initiator_depth: 2,
        retry_count: 7,
        rnr_retry_count: 6,
        valid: 1,
        ..Default::default()
    }
}

/// Returns each command under a name: what is written, and what is read.
pub(super) fn samples() -> Vec<(&'static str, Vec<u8>, Command)> {
    let (here, there) = (address("10.0.0.1:0"), address("[fe80::2%3]:7174"));
    let ib = SocketAddress::Ib(sockaddr_ib { sib_family: AF_IB, sib_sid: 1, ..Default::default() });
    let ece = Ece { vendor_id: 1, attr_mod: 2 };
    let create = rdma_ucm_create_id {
        uid: 9,
        response: RESPONSE,
        ps: RDMA_PS_TCP,
        qp_type: 2,
        ..Default::default()
    };
    let destroy = rdma_ucm_destroy_id { response: RESPONSE, id: 3, reserved: 0 };
    let bind_ip = rdma_ucm_bind_ip { id: 3, addr: stored(there), ..Default::default() };
    let bind = |address: SocketAddress| rdma_ucm_bind {
        id: 3,
        addr_size: address.size() as u16,
        addr: stored(address),
        ..Default::default()
    };
    let resolve_ip = rdma_ucm_resolve_ip {
        dst_addr: stored(there),
        id: 3,
        timeout_ms: 2000,
        ..Default::default()
    };
    let resolve = rdma_ucm_resolve_addr {
        id: 3,
        timeout_ms: 2000,
        src_size: 16,
        dst_size: 28,
        src_addr: stored(here),
        dst_addr: stored(there),
        ..Default::default()
    };
    let query = |option| rdma_ucm_query { response: RESPONSE, id: 3, option };
    let connect = rdma_ucm_connect { conn_param: parameters(), id: 3, reserved: 0, ece };
    let accept =
        rdma_ucm_accept { uid: 10, conn_param: parameters(), id: 3, ece, ..Default::default() };
    let establish = rdma_ucm_accept { id: 3, ..Default::default() };
    let reject = rdma_ucm_reject {
        id: 3,
        private_data_len: 2,
        reason: 28,
        private_data: [8; 256],
        ..Default::default()
    };
    let attributes = rdma_ucm_init_qp_attr { response: RESPONSE, id: 3, qp_state: 2 };
    let option = rdma_ucm_set_option { optval: 4, id: 3, level: 0, optname: 3, optlen: 1 };
    let join_ip = rdma_ucm_join_ip_mcast {
        response: RESPONSE,
        uid: 9,
        addr: stored(address("239.0.0.1:0")),
        id: 3,
    };
    let join = rdma_ucm_join_mcast {
        response: RESPONSE,
        uid: 9,
        id: 3,
        addr_size: 28,
        join_flags: RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        addr: stored(there),
    };
    let migrate = rdma_ucm_migrate_id { response: RESPONSE, id: 3, fd: 5 };
    let mut raised = rdma_ucm_write_cm_event { id: 3, event: 16, status: 1, ..Default::default() };
    raised.param[..8].copy_from_slice(&12u64.to_ne_bytes());
    let resolved = |source, destination| Command::ResolveAddress {
        id: 3,
        source,
        destination,
        timeout_ms: 2000,
    };
    let queried = |what, len| Command::Query { id: 3, what, response: space(len) };
    let joined = |address, send_only| Command::JoinMulticast {
        id: 3,
        uid: 9,
        address,
        send_only,
        response: space(4),
    };
    let with_parameters = Some(Box::new(parameters()));
    vec![
        (
            "create_id",
            written(0, 4, &create),
            Command::CreateId { uid: 9, port_space: RDMA_PS_TCP, qp_type: 2, response: space(4) },
        ),
        ("destroy_id", written(1, 4, &destroy), Command::DestroyId { id: 3, response: space(4) }),
        ("bind_ip", written(2, 0, &bind_ip), Command::Bind { id: 3, address: there }),
        ("bind", written(20, 0, &bind(here)), Command::Bind { id: 3, address: here }),
        ("bind_ib", written(20, 0, &bind(ib)), Command::Bind { id: 3, address: ib }),
        ("resolve_ip", written(3, 0, &resolve_ip), resolved(None, there)),
        ("resolve_addr", written(21, 0, &resolve), resolved(Some(here), there)),
        (
            "resolve_route",
            written(4, 0, &rdma_ucm_resolve_route { id: 3, timeout_ms: 9 }),
            Command::ResolveRoute { id: 3, timeout_ms: 9 },
        ),
        (
            "query_route",
            written(5, 208, &query(0)),
            Command::QueryRoute { id: 3, response: space(208) },
        ),
        ("query_addr", written(19, 280, &query(0)), queried(Query::Addresses, 280)),
        ("query_path", written(19, 440, &query(1)), queried(Query::Paths, 440)),
        ("query_gid", written(19, 280, &query(2)), queried(Query::Gids, 280)),
        (
            "connect",
            written(6, 0, &connect),
            Command::Connect { id: 3, parameters: Box::new(parameters()), ece },
        ),
        (
            "listen",
            written(7, 0, &rdma_ucm_listen { id: 3, backlog: 5 }),
            Command::Listen { id: 3, backlog: 5 },
        ),
        (
            "accept",
            written(8, 0, &accept),
            Command::Accept { id: 3, uid: 10, parameters: with_parameters, ece },
        ),
        (
            "establish",
            written(8, 0, &establish),
            Command::Accept { id: 3, uid: 0, parameters: None, ece: Ece::default() },
        ),
        (
            "reject",
            written(9, 0, &reject),
            Command::Reject { id: 3, reason: 28, private_data: vec![8; 2] },
        ),
        (
            "disconnect",
            written(10, 0, &rdma_ucm_disconnect { id: 3 }),
            Command::Disconnect { id: 3 },
        ),
        (
            "init_qp_attr",
            written(11, 144, &attributes),
            Command::InitQpAttr { id: 3, qp_state: 2, response: space(144) },
        ),
        (
            "get_event",
            written(12, 336, &rdma_ucm_get_event { response: RESPONSE }),
            Command::GetEvent { response: space(336) },
        ),
        (
            "set_option",
            written(14, 0, &option),
            Command::SetOption { id: 3, level: 0, name: 3, address: 4, len: 1 },
        ),
        (
            "notify",
            written(15, 0, &rdma_ucm_notify { id: 3, event: 4 }),
            Command::Notify { id: 3, event: 4 },
        ),
        ("join_ip_mcast", written(16, 4, &join_ip), joined(address("239.0.0.1:0"), false)),
        ("join_mcast", written(22, 4, &join), joined(there, true)),
        (
            "leave_mcast",
            written(17, 4, &destroy),
            Command::LeaveMulticast { id: 3, response: space(4) },
        ),
        (
            "migrate_id",
            written(18, 4, &migrate),
            Command::MigrateId { id: 3, fd: 5, response: space(4) },
        ),
        ("resolve_ib_service", written(23, 0, &[0u8; 88]), Command::ResolveIbService),
        (
            "write_cm_event",
            written(24, 0, &raised),
            Command::WriteCmEvent { id: 3, event: 16, status: 1, argument: 12 },
        ),
    ]
}

#[test]
fn every_command_is_read_as_it_was_written() {
    for (name, bytes, command) in samples() {
        assert_eq!(Command::decode(&bytes), Ok(command.clone()), "{name}");
        // What follows is no part of it.
        let longer = [&bytes[..], &[0xff; 40]].concat();
        assert_eq!(Command::decode(&longer), Ok(command), "{name}");
    }
}

#[test]
fn a_prefix_of_a_command_is_refused_and_so_is_a_structure_that_is_too_short() {
    for (name, bytes, command) in samples() {
        for len in 0..bytes.len() {
            assert_eq!(Command::decode(&bytes[..len]), Err(EINVAL), "{len} bytes of {name}");
        }
        // Only a structure that was shorter once may be.
        let optional = match command {
            Command::Connect { .. } | Command::Accept { .. } => size_of::<rdma_ucm_ece>(),
            Command::ResolveIbService => bytes.len(),
            _ => 0,
        };
        for len in 0..(bytes.len() - 8).saturating_sub(optional) {
            let mut shorter = bytes.clone();
            shorter[4..6].copy_from_slice(&(len as u16).to_ne_bytes());
            assert_eq!(Command::decode(&shorter), Err(EINVAL), "{name} in {len} bytes");
        }
    }
}

#[test]
fn connections_of_programs_without_vendor_options_are_read() {
    for (name, mut bytes, _) in
        samples().into_iter().filter(|it| ["connect", "accept"].contains(&it.0))
    {
        let len = bytes.len() - 8 - size_of::<rdma_ucm_ece>();
        bytes[4..6].copy_from_slice(&(len as u16).to_ne_bytes());
        bytes.truncate(8 + len);
        match Command::decode(&bytes) {
            Ok(Command::Connect { ece, .. } | Command::Accept { ece, .. }) => {
                assert_eq!(ece, Ece::default());
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn a_response_needs_space_for_what_every_version_has() {
    for (name, bytes, command) in samples() {
        let min = match command {
            Command::CreateId { .. }
            | Command::DestroyId { .. }
            | Command::JoinMulticast { .. }
            | Command::LeaveMulticast { .. }
            | Command::MigrateId { .. } => 4,
            Command::QueryRoute { .. } => 200,
            Command::Query { what: Query::Paths, .. } => 8,
            Command::Query { .. } => 272,
            Command::InitQpAttr { .. } => 144,
            Command::GetEvent { .. } => 324,
            _ => 0,
        };
        let with_space = |out: u16| {
            let mut bytes = bytes.clone();
            bytes[6..8].copy_from_slice(&out.to_ne_bytes());
            Command::decode(&bytes)
        };
        assert!(with_space(min).is_ok(), "{name}");
        assert!(min == 0 || with_space(min - 1) == Err(ENOSPC), "{name}");
    }
}

#[test]
fn wrong_values_and_unknown_commands_are_refused_as_by_the_kernel() {
    let bind = |size: u16, family: u16, reserved: u16| {
        let mut bind = rdma_ucm_bind { addr_size: size, reserved, ..Default::default() };
        bind.addr[..2].copy_from_slice(&family.to_ne_bytes());
        Command::decode(&written(RDMA_USER_CM_CMD_BIND, 0, &bind))
    };
    assert!(bind(16, libc::AF_INET as u16, 0).is_ok());
    for (size, family, reserved) in [(16, 2, 1), (28, 2, 0), (0, 2, 0), (16, 1, 0), (0, 0, 0)] {
        assert_eq!(bind(size, family, reserved), Err(EINVAL), "{size} {family} {reserved}");
    }
    let connect = rdma_ucm_connect::default();
    assert_eq!(Command::decode(&written(RDMA_USER_CM_CMD_CONNECT, 0, &connect)), Err(EINVAL));
    let query = rdma_ucm_query { option: 3, ..Default::default() };
    assert_eq!(Command::decode(&written(RDMA_USER_CM_CMD_QUERY, 280, &query)), Err(ENOSYS));
    let attributes = rdma_ucm_init_qp_attr { qp_state: 7, ..Default::default() };
    let attributes = written(RDMA_USER_CM_CMD_INIT_QP_ATTR, 144, &attributes);
    assert_eq!(Command::decode(&attributes), Err(EINVAL));
    let join = rdma_ucm_join_mcast {
        addr_size: 16,
        join_flags: 2,
        addr: stored(address("239.0.0.1:0")),
        ..Default::default()
    };
    assert_eq!(Command::decode(&written(RDMA_USER_CM_CMD_JOIN_MCAST, 4, &join)), Err(EINVAL));
    let option = [0u8; 24];
    assert_eq!(Command::decode(&written(RDMA_USER_CM_CMD_GET_OPTION, 0, &option)), Err(ENOSYS));
    for number in [25, 26, u32::MAX] {
        assert_eq!(Command::decode(&written(number, 400, &[0u8; 400])), Err(EINVAL));
    }
}

#[test]
fn an_event_has_its_fields_where_programs_read_them() {
    let mut event =
        rdma_ucm_event_resp { uid: 1, id: 2, event: 4, status: 3, ..Default::default() };
    parameters().write(&mut event.param);
    event.ece = Ece { vendor_id: 0xa, attr_mod: 0xb };
    let bytes = event.to_vec();
    assert_eq!(bytes.len(), 336);
    let word = |offset: usize| u32::read(&bytes[offset..]);
    assert_eq!([word(0), word(8), word(12), word(16), word(20)], [1, 2, 4, 3, 0x11]);
    assert_eq!((bytes[28], bytes[20 + 8 + 256], word(328), word(332)), (7, 56, 0xa, 0xb));
    // A program of an older version has less space.
    let mut short = [0; 324];
    event.write(&mut short);
    assert_eq!(short[..], bytes[..324]);
}

#[test]
fn a_path_is_the_same_in_both_forms() {
    let path = PathRecord {
        dgid: [2; 16],
        sgid: [1; 16],
        pkey: 0xfffe,
        flow_label: 0xa_bcde,
        hop_limit: 64,
        traffic_class: 0x68,
        mtu: 3,
        rate: 7,
        packet_life_time: 18,
    };
    let packed = path.packed();
    assert_eq!(packed.flags, 0x2b);
    let record = packed.path_rec;
    assert_eq!((record[..8].to_vec(), record[8..24].to_vec()), (vec![0; 8], vec![2; 16]));
    assert_eq!(record[24..40], [1; 16]);
    let tail = [0, 0, 0, 0, 0x0a, 0xbc, 0xde, 64, 0x68, 0x81, 0xff, 0xfe, 0, 0, 0x83, 0x87, 0x92];
    assert_eq!(record[40..57], tail);
    let user = path.for_user().to_vec();
    assert_eq!((user[..16].to_vec(), user[16..32].to_vec()), (vec![2; 16], vec![1; 16]));
    assert_eq!(user[40..44], [0, 0x0a, 0xbc, 0xde]);
    assert_eq!(user[52..64], [0xff, 0xfe, 64, 0x68, 1, 0, 2, 2, 7, 2, 18, 0]);
}

#[test]
fn every_command_in_the_corpus_is_refused_or_read() {
    replay("ucma_commands", samples().len(), ucma_commands);
}

/// The seeds are a command of each kind. `ROCE_WRITE_SEEDS=1` writes them.
#[test]
fn the_seeds_are_a_command_of_each_kind() {
    for (name, bytes, _) in samples() {
        check_seed("ucma_commands", name, &bytes);
    }
}
