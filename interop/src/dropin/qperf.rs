//! qperf, which connects queue pairs by rdma_cm with `-cm 1`, and without it without a GID.
//!
//! Every RoCE device refuses the latter, the kernel's `rdma_rxe` too: lines without `-cm` pass only
//! where a device is too lenient.

use super::program::Program;

const RC: &str = "if [ -z \"{peer?}\" ]; then exec qperf; fi; exec qperf {peer?} -i roce0 rc_bw";
const UC: &str = "if [ -z \"{peer?}\" ]; then exec qperf; fi; exec qperf {peer?} -i roce0 uc_bw";
const UD: &str = "if [ -z \"{peer?}\" ]; then exec qperf; fi; exec qperf {peer?} -i roce0 ud_bw";

const CONNECTED: &str = "a={peer?}; if [ -z $a ]; then exec qperf; fi; exec qperf $a -t 1 -cm 1 rc_bw rc_lat rc_rdma_write_bw quit";

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[
    Program::pair(CONNECTED, &["rc_bw:", "rc_lat:", "rc_rdma_write_bw:"]).quick(),
    Program::pair(RC, &[]).refused("failed to modify QP to RTR"),
    Program::pair(UC, &[]).refused("failed to modify QP to RTR"),
    Program::pair(UD, &[]).refused("failed to create address handle"),
];
