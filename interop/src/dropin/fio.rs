//! fio's engine `rdma`, which connects by rdma_cm and says at connection time which verb the client uses.
//! It compares no data.

use super::program::Program;

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[Program::pair(
    "a={peer?}; o='--name=t --ioengine=rdma --port=7777 --verb=write --bs=64k --size=8m --iodepth=8'; \
         if [ -z $a ]; then exec fio $o --rw=read; fi; exec fio $o --rw=write --hostname=$a",
    &["WRITE: bw=", "io=8192KiB"],
)];
