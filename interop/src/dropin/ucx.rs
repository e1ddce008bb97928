//! The programs of UCX. `ucx_perftest` finds its peer by TCP; `io_demo` connects to an address, by UCX's
//! connection manager `rdmacm`, and with `-q` compares what it reads with what it has written.

use super::program::Program;

/// The last line of a table of ucx_perftest.
const FINAL: &[&str] = &["Final:"];

/// Sets `p`, an option of ucx_perftest where it is built with MPI: there a standard input that is no terminal
/// means that mpirun has started it.
const WITHOUT_MPI: &str =
    "p=; if ldd $(command -v ucx_perftest) | grep -q libmpi; then p='-P 0'; fi;";

/// Returns a line of ucx_perftest.
const fn perftest(line: &'static str) -> Program {
    Program::pair(line, FINAL).behind(WITHOUT_MPI)
}

/// What a client of io_demo prints that got all its data.
const INTACT: &[&str] = &["Connected to server [0]", "Client exit with status 'OK'"];

/// Connections by rdma_cm.
pub(super) const CONNECTED: &[Program] = &[
    Program::pair(
        "export UCX_TLS=rc,ud UCX_NET_DEVICES=roce0:1 UCX_SOCKADDR_TLS_PRIORITY=rdmacm; \
         exec io_demo -q -i 300 -d 1000:200000 -o read,write {peer?}",
        INTACT,
    )
    .quick(),
    Program::pair(
        "export UCX_TLS=rc,ud UCX_NET_DEVICES=roce0:1 UCX_SOCKADDR_TLS_PRIORITY=rdmacm; \
         exec io_demo -A -q -i 300 -d 1000:200000 -o read,write {peer?}",
        INTACT,
    ),
    Program::pair(
        "export UCX_TLS=ud UCX_NET_DEVICES=roce0:1 UCX_SOCKADDR_TLS_PRIORITY=rdmacm; \
         exec io_demo -q -i 300 -d 1000:200000 -o read,write {peer?}",
        INTACT,
    )
    .quick(),
    Program::pair(
        "export UCX_TLS=ud UCX_NET_DEVICES=roce0:1 UCX_SOCKADDR_TLS_PRIORITY=rdmacm; \
         exec io_demo -A -q -i 300 -d 1000:200000 -o read,write {peer?}",
        INTACT,
    ),
];

/// A message goes over both devices at once.
const TWO_RAILS: &str = "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1,roce1:1 \
     UCX_MAX_RNDV_RAILS=2 ucx_perftest $p -t tag_bw -s 1048576 -n 200 {peer?}";

/// Connections by TCP.
pub(super) const PROGRAMS: &[Program] = &[
    Program::alone("ucx_info -d", &["rc_verbs", "ud_verbs", "roce0:1"]).quick(),
    perftest(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t tag_lat -n 2000 {peer?}",
    ).quick(),
    perftest(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t tag_bw -s 4194304 -n 100 {peer?}",
    ).quick(),
    perftest(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t tag_lat -E sleep -n 500 {peer?}",
    ),
    perftest(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t ucp_put_lat -n 2000 {peer?}",
    ),
    perftest(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t ucp_put_bw -s 65536 -n 500 {peer?}",
    ),
    perftest(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t ucp_get -s 4096 -n 1000 {peer?}",
    ),
    perftest(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t ucp_fadd -n 1000 {peer?}",
    ),
    perftest(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t ucp_cswap -n 1000 {peer?}",
    ),
    perftest(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t ucp_add -n 1000 {peer?}",
    ),
    perftest(TWO_RAILS).under(&["--rails", "2"]),
    // UCX has no other way for a rail that stays away, and ends then.
    perftest(TWO_RAILS).under(&[
        "--rails",
        "2",
        "--fault",
        "rail 1 down at packet 3000 on rail 1 for 100ms",
    ]),
    // Atomic operations of the device. Those above are messages to UCX at the peer, since rc_verbs has not all
    // operations that UCP wants of a device.
    perftest("ucx_perftest $p -d roce0:1 -x rc_verbs -t fadd -n 1000 {peer?}").quick(),
    perftest("ucx_perftest $p -d roce0:1 -x rc_verbs -t cswap -n 1000 {peer?}"),
    perftest(
        "env UCX_TLS=ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t tag_lat -n 2000 {peer?}",
    ).quick(),
    perftest(
        "env UCX_TLS=ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t tag_bw -s 4194304 -n 100 {peer?}",
    ),
    perftest(
        "env UCX_TLS=ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t tag_lat -E sleep -n 500 {peer?}",
    ),
    perftest(
        "env UCX_TLS=ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t ucp_put_lat -n 2000 {peer?}",
    ),
    perftest(
        "env UCX_TLS=ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t ucp_put_bw -s 65536 -n 500 {peer?}",
    ),
    perftest(
        "env UCX_TLS=ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t ucp_get -s 4096 -n 1000 {peer?}",
    ),
    perftest(
        "env UCX_TLS=ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest $p -t ucp_fadd -n 1000 {peer?}",
    ),
];
