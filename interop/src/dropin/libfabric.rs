//! The programs of libfabric, whose `verbs;ofi_rxd` makes reliable messages of datagrams and finds
//! its peers without rdma_cm. Its endpoints of the type `msg` are connected by rdma_cm, and so is
//! `verbs;ofi_rxm`, which makes messages between any endpoints of those. The `;` in the name needs a
//! shell.

use super::program::Program;

/// The rows of the least and the greatest size, which both ends print.
const ALL_SIZES: &[&str] = &["64      100     =100", "1m      100     =100"];

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[
    Program::alone("fi_info -p verbs", &["domain: roce0-dgram", "FI_PROTO_IB_UD"]).quick(),
    Program::pair("fi_pingpong -p 'verbs;ofi_rxd' -e rdm -c -I 100 {peer?}", ALL_SIZES).quick(),
    Program::pair(
        "fi_pingpong -p 'verbs;ofi_rxd' -e rdm -m tagged -c -I 2000 -S 4096 {peer?}",
        &["4k      2k      =2k"],
    ),
    Program::pair("fi_pingpong -p verbs -e msg -c -I 100 {peer?}", ALL_SIZES).quick(),
    Program::pair("fi_pingpong -p 'verbs;ofi_rxm' -e rdm -c -I 100 {peer?}", ALL_SIZES).quick(),
    Program::pair("fi_pingpong -p 'verbs;ofi_rxm' -e rdm -m tagged -c -I 100 {peer?}", ALL_SIZES),
];
