//! qperf, which connects queue pairs without a GID.
//!
//! Every RoCE device refuses that, the kernel's `rdma_rxe` too: its users pass `-cm 1`, so that
//! rdma_cm connects them. These lines pass without `-cm` only where a device is too lenient.

use super::program::Program;

const RC: &str = "if [ -z \"{peer?}\" ]; then exec qperf; fi; exec qperf {peer?} -i roce0 rc_bw";
const UC: &str = "if [ -z \"{peer?}\" ]; then exec qperf; fi; exec qperf {peer?} -i roce0 uc_bw";
const UD: &str = "if [ -z \"{peer?}\" ]; then exec qperf; fi; exec qperf {peer?} -i roce0 ud_bw";

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[
    Program::pair(RC, &[]).refused("failed to modify QP to RTR"),
    Program::pair(UC, &[]).refused("failed to modify QP to RTR"),
    Program::pair(UD, &[]).refused("failed to create address handle"),
];
