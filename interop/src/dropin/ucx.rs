//! The programs of UCX.

use super::program::Program;

/// The last line of a table of ucx_perftest.
const FINAL: &[&str] = &["Final:"];

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[
    Program::alone("ucx_info -d", &["rc_verbs", "ud_verbs", "roce0:1"]).quick(),
    Program::pair(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest -t tag_lat -n 2000",
        FINAL,
    ).quick(),
    Program::pair(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest -t tag_bw -s 4194304 -n 100",
        FINAL,
    ).quick(),
    Program::pair(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest -t tag_lat -E sleep -n 500",
        FINAL,
    ),
    Program::pair(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest -t ucp_put_lat -n 2000",
        FINAL,
    ),
    Program::pair(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest -t ucp_put_bw -s 65536 -n 500",
        FINAL,
    ),
    Program::pair(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest -t ucp_get -s 4096 -n 1000",
        FINAL,
    ),
    Program::pair(
        "env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest -t ucp_fadd -n 1000",
        FINAL,
    ),
    Program::pair(
        "env UCX_TLS=ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest -t tag_lat -n 2000",
        FINAL,
    ).quick(),
    Program::pair(
        "env UCX_TLS=ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest -t tag_bw -s 4194304 -n 100",
        FINAL,
    ),
    Program::pair(
        "env UCX_TLS=ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest -t tag_lat -E sleep -n 500",
        FINAL,
    ),
    Program::pair(
        "env UCX_TLS=ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest -t ucp_put_lat -n 2000",
        FINAL,
    ),
    Program::pair(
        "env UCX_TLS=ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest -t ucp_put_bw -s 65536 -n 500",
        FINAL,
    ),
    Program::pair(
        "env UCX_TLS=ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest -t ucp_get -s 4096 -n 1000",
        FINAL,
    ),
    Program::pair(
        "env UCX_TLS=ud_verbs,self UCX_NET_DEVICES=roce0:1 ucx_perftest -t ucp_fadd -n 1000",
        FINAL,
    ),
];
