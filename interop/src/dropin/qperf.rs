//! qperf, whose server runs until a client tells it to quit.

use super::program::Program;

const RC: &str = "if [ -z \"{peer?}\" ]; then exec qperf; fi; exec qperf {peer?} -w 10 -t 1 -i roce0 \
                  rc_bw rc_lat rc_bi_bw rc_rdma_read_bw rc_rdma_read_lat rc_rdma_write_bw \
                  rc_rdma_write_lat rc_rdma_write_poll_lat quit";
const UC: &str = "if [ -z \"{peer?}\" ]; then exec qperf; fi; exec qperf {peer?} -w 10 -t 1 -i roce0 \
                  uc_bw uc_lat uc_bi_bw uc_rdma_write_bw uc_rdma_write_lat \
                  uc_rdma_write_poll_lat quit";
const UD: &str = "if [ -z \"{peer?}\" ]; then exec qperf; fi; exec qperf {peer?} -w 10 -t 1 -i roce0 \
                  -m 1K ud_bw ud_lat ud_bi_bw quit";

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[
    Program::pair(RC, &["rc_rdma_write_poll_lat:"]),
    Program::pair(UC, &["uc_rdma_write_poll_lat:"]),
    Program::pair(UD, &["ud_bi_bw:"]),
];
