//! fio's engine `rdma`, which connects by rdma_cm and says at connection time which verb the client uses.
//! It compares no data.

use super::program::Program;

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[
    Program::pair(
        "a={peer?}; o='--name=t --ioengine=rdma --port=7777 --verb=write --bs=64k --size=8m --iodepth=8'; \
         if [ -z $a ]; then exec fio $o --rw=read; fi; exec fio $o --rw=write --hostname=$a",
        &["WRITE: bw=", "io=8192KiB"],
    ),
    // To fio, a client that reads from the server's memory is one that writes.
    Program::pair(
        "a={peer?}; o='--name=t --ioengine=rdma --port=7777 --verb=read --bs=64k --size=8m --iodepth=8'; \
         if [ -z $a ]; then exec fio $o --rw=read; fi; exec fio $o --rw=write --hostname=$a",
        &["WRITE: bw=", "io=8192KiB"],
    ),
    // The client sends no message before the one before it is received: its queue pair repeats none for which
    // the server has no receive.
    Program::pair(
        "a={peer?}; o='--name=t --ioengine=rdma --port=7777 --verb=send --bs=64k --size=8m'; \
         if [ -z $a ]; then exec fio $o --iodepth=16 --rw=read; fi; \
         exec fio $o --iodepth=1 --rw=write --hostname=$a",
        &["WRITE: bw=", "READ: bw=", "io=8192KiB"],
    ),
];
