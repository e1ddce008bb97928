//! Ceph's messenger over RDMA: a cluster on one host, and its client on the other.

use super::program::Program;

/// A cluster and its client.
const fn cluster(line: &'static str) -> Program {
    let prints: &[&str] = &[
        "[1] 1 bytes are the same",
        "[1] 65536 bytes are the same",
        "[1] 9000000 bytes are the same",
        "[1] the device sent them",
    ];
    Program::pair(line, prints).behind(include_str!("ceph/cluster.sh"))
}

/// All lines: how the messenger connects its queue pairs.
pub(super) const PROGRAMS: &[Program] =
    &[cluster("cluster tcp"), cluster("cluster rdma_cm").quick()];
