//! qperf, which connects queue pairs by rdma_cm with `-cm 1`, and without it without a GID.
//!
//! Every RoCE device refuses the latter, the kernel's `rdma_rxe` too: lines without `-cm` pass only
//! where a device is too lenient.

use super::program::Program;

const RC: &str = "if [ -z \"{peer?}\" ]; then exec qperf; fi; exec qperf {peer?} -i roce0 rc_bw";
const UC: &str = "if [ -z \"{peer?}\" ]; then exec qperf; fi; exec qperf {peer?} -i roce0 uc_bw";
const UD: &str = "if [ -z \"{peer?}\" ]; then exec qperf; fi; exec qperf {peer?} -i roce0 ud_bw";

const CONNECTED: &str = "a={peer?}; if [ -z $a ]; then exec qperf; fi; exec qperf $a -t 1 -cm 1 rc_bw rc_lat rc_rdma_write_bw quit";

const CONNECTED_REST: &str = "a={peer?}; if [ -z $a ]; then exec qperf; fi; exec qperf $a -t 1 -cm 1 rc_bi_bw rc_rdma_read_bw rc_rdma_read_lat rc_rdma_write_lat rc_rdma_write_poll_lat rc_fetch_add_mr rc_compare_swap_mr ver_rc_fetch_add ver_rc_compare_swap quit";
/// Its tests of UC and UD take no connection manager, with which it only warns.
const UD_CONNECTED: &str =
    "a={peer?}; if [ -z $a ]; then exec qperf; fi; exec qperf $a -t 1 -cm 1 ud_bw quit";

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[
    Program::pair(CONNECTED, &["rc_bw:", "rc_lat:", "rc_rdma_write_bw:"]).quick(),
    Program::pair(
        CONNECTED_REST,
        &["rc_rdma_read_lat:", "rc_rdma_write_poll_lat:", "ver_rc_compare_swap:"],
    ),
    Program::pair(UD_CONNECTED, &[]).refused("warning: -cm set but not used in test ud_bw"),
    Program::pair(RC, &[]).refused("failed to modify QP to RTR"),
    Program::pair(UC, &[]).refused("failed to modify QP to RTR"),
    Program::pair(UD, &[]).refused("failed to create address handle"),
];
