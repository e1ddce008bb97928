//! What librdmacm of each released version writes, by the sizes of its structures.
//!
//! Sizes and numbers were taken from `librdmacm/rdma_cma_abi.h` and `librdmacm/cma.c` of every release from
//! rdma-core 39.0 to 65.0. The kernel's header of the same releases agrees, but for
//! [`WRITE_CM_EVENT`](super::RDMA_USER_CM_CMD_WRITE_CM_EVENT): librdmacm writes eight bytes more, behind all
//! that the command reads.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::tests::samples;
use super::*;

/// The releases that were read, by their major number.
const RELEASES: RangeInclusive<u32> = 39..=65;

/// A command in the sizes of some releases.
struct Written {
    /// The command's sample.
    sample: &'static str,
    number: u32,
    /// The first of [`RELEASES`] that writes it so.
    since: u32,
    /// Bytes behind the header.
    len: u16,
    /// Bytes that the response may have.
    out: u16,
}

const fn since(since: u32, sample: &'static str, number: u32, len: u16, out: u16) -> Written {
    Written { sample, number, since, len, out }
}

const WRITTEN: &[Written] = &[
    since(39, "create_id", 0, 24, 4),
    since(39, "destroy_id", 1, 16, 4),
    since(39, "bind_ip", 2, 40, 0),
    since(39, "resolve_ip", 3, 64, 0),
    since(39, "resolve_route", 4, 8, 0),
    since(39, "query_route", 5, 16, 208),
    since(39, "connect", 6, 288, 0),
    since(39, "listen", 7, 8, 0),
    since(39, "accept", 8, 296, 0),
    since(39, "establish", 8, 296, 0),
    since(39, "reject", 9, 264, 0),
    since(39, "disconnect", 10, 4, 0),
    since(39, "init_qp_attr", 11, 16, 144),
    since(39, "get_event", 12, 8, 336),
    since(39, "set_option", 14, 24, 0),
    since(39, "notify", 15, 8, 0),
    since(39, "join_ip_mcast", 16, 48, 4),
    since(39, "leave_mcast", 17, 16, 4),
    since(39, "migrate_id", 18, 16, 4),
    since(39, "query_addr", 19, 16, 280),
    // Space for six paths.
    since(39, "query_path", 19, 16, 440),
    since(39, "query_gid", 19, 16, 280),
    since(39, "bind", 20, 136, 0),
    since(39, "bind_ib", 20, 136, 0),
    since(39, "resolve_addr", 21, 272, 0),
    since(39, "join_mcast", 22, 152, 4),
    since(60, "resolve_ib_service", 23, 88, 0),
    since(60, "write_cm_event", 24, 328, 0),
];

/// Returns what a release writes for a sample: as many bytes as its structure has, which are zero where
/// ours ends before.
fn bytes_of(written: &Written, sample: &[u8]) -> Vec<u8> {
    let header = rdma_ucm_cmd_hdr { cmd: written.number, r#in: written.len, out: written.out };
    let mut structure = sample[size_of::<rdma_ucm_cmd_hdr>()..].to_vec();
    structure.resize(written.len.into(), 0);
    [header.to_vec(), structure].concat()
}

#[test]
fn every_command_of_every_released_librdmacm_is_read() {
    let samples = samples();
    for release in RELEASES {
        for written in WRITTEN.iter().filter(|it| it.since <= release) {
            let name = written.sample;
            let (_, sample, command) = samples.iter().find(|it| it.0 == name).expect("a sample");
            let bytes = bytes_of(written, sample);
            assert_eq!(Command::decode(&bytes), Ok(command.clone()), "{name} of {release}");
        }
    }
}

#[test]
fn the_table_of_releases_has_every_command_that_is_read() {
    let table: BTreeSet<_> = WRITTEN.iter().map(|it| it.sample).collect();
    let samples: BTreeSet<_> = samples().iter().map(|it| it.0).collect();
    assert_eq!(table, samples);
}

#[test]
fn responses_are_as_long_as_every_released_librdmacm_wants_them() {
    let out = |name: &str| {
        let mut sizes = WRITTEN.iter().filter(|it| it.sample == name).map(|it| usize::from(it.out));
        let out = sizes.next().expect("a command");
        assert!(sizes.all(|other| other == out), "{name} has one size in all releases");
        out
    };
    assert_eq!(rdma_ucm_create_id_resp::default().to_vec().len(), out("create_id"));
    assert_eq!(rdma_ucm_create_id_resp::default().to_vec().len(), out("join_mcast"));
    assert_eq!(rdma_ucm_destroy_id_resp::default().to_vec().len(), out("destroy_id"));
    assert_eq!(rdma_ucm_migrate_resp::default().to_vec().len(), out("migrate_id"));
    assert_eq!(rdma_ucm_query_route_resp::default().to_vec().len(), out("query_route"));
    assert_eq!(rdma_ucm_query_addr_resp::default().to_vec().len(), out("query_addr"));
    assert_eq!(rdma_ucm_query_addr_resp::default().to_vec().len(), out("query_gid"));
    assert_eq!(crate::ib_uverbs_qp_attr::default().to_vec().len(), out("init_qp_attr"));
    assert_eq!(rdma_ucm_event_resp::default().to_vec().len(), out("get_event"));
    let paths = 6 * size_of::<ib_path_rec_data>();
    assert_eq!(size_of::<rdma_ucm_query_path_resp>() + paths, out("query_path"));
}
