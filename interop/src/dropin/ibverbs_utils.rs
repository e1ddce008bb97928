//! The programs of the package ibverbs-utils.

use super::program::Program;

/// The summary that each end of a ping-pong prints.
const DONE: &[&str] = &["8192000 bytes in", "1000 iters in"];

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[
    Program::alone("ibv_devices", &["roce0"]).quick(),
    Program::alone("ibv_devinfo", &["hca_id:\troce0", "PORT_ACTIVE", "Ethernet"]).quick(),
    Program::alone("ibv_devinfo -v", &["max_qp:", "::ffff:10.0.0.1, RoCE v2"]).quick(),
    Program::alone("ibv_devinfo -l", &["1 HCA found"]),
    Program::alone("timeout 1 ibv_asyncwatch; test $? = 124", &["roce0"]),
    Program::pair("ibv_rc_pingpong -g 1 -c", DONE).and_rxe().quick(),
    Program::pair("ibv_rc_pingpong -g 1 -e -c", DONE).and_rxe().quick(),
    Program::pair("ibv_rc_pingpong -g 1 -n 5000 -s 100 -c", &["5000 iters in"]),
    Program::pair("ibv_rc_pingpong -g 1 -s 1000000 -n 100 -m 1024 -c", &["100 iters in"]).quick(),
    Program::pair("ibv_rc_pingpong -g 1 -N -c", DONE).quick(),
    Program::pair("ibv_rc_pingpong -g 1 -t -c", DONE).quick(),
    Program::pair("ibv_rc_pingpong -g 1 -o -c", DONE).quick(),
    Program::pair("ibv_rc_pingpong -g 1 -o -P -c", DONE),
    Program::pair("ibv_rc_pingpong -g 1 -O -c", DONE),
    Program::pair("ibv_uc_pingpong -g 1 -c", DONE).and_rxe().quick(),
    Program::pair("ibv_uc_pingpong -g 1 -e -c", DONE),
    Program::pair("ibv_ud_pingpong -g 1 -s 1024 -c", &["1000 iters in"]).and_rxe().quick(),
    Program::pair("ibv_ud_pingpong -g 1 -s 1024 -e -c", &["1000 iters in"]),
    Program::pair("ibv_srq_pingpong -g 1 -c", DONE).and_rxe().quick(),
    Program::pair("ibv_srq_pingpong -g 1 -q 8 -e -c", DONE),
    Program::pair("ibv_xsrq_pingpong -g 1", &[]).refused("XRC"),
];
