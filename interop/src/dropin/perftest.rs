//! The programs of the package perftest.

use super::program::Program;

/// Behind it stands the unit: `MB/sec`, or `MiB/sec` as newer ones have it.
const WIDTH: &[&str] = &["BW average[M"];
const TIME: &[&str] = &["t_avg[usec]"];

/// Every program with every size.
pub(super) const SIZES: &[Program] = &[
    Program::pair("ib_send_bw -a -n 50", WIDTH).quick(),
    Program::pair("ib_write_bw -a -n 50", WIDTH).quick(),
    Program::pair("ib_read_bw -a -n 50", WIDTH).quick(),
    Program::pair("ib_atomic_bw -n 1000", WIDTH).quick(),
    Program::pair("ib_send_lat -a -n 20", TIME),
    Program::pair("ib_write_lat -a -n 20", TIME),
    Program::pair("ib_read_lat -a -n 20", TIME),
    Program::pair("ib_atomic_lat -n 1000", TIME).quick(),
];

/// Every program against rxe.
pub(super) const RXE: &[Program] = &[
    Program::pair("ib_send_bw -n 500", WIDTH).and_rxe().quick(),
    Program::pair("ib_write_bw -n 500", WIDTH).and_rxe().quick(),
    Program::pair("ib_read_bw -n 500", WIDTH).and_rxe(),
    Program::pair("ib_atomic_bw -n 500", WIDTH).and_rxe(),
    Program::pair("ib_send_lat -n 200", TIME).and_rxe(),
    Program::pair("ib_write_lat -n 200", TIME).and_rxe().quick(),
    Program::pair("ib_read_lat -n 200", TIME).and_rxe(),
    Program::pair("ib_atomic_lat -n 200", TIME).and_rxe(),
    Program::pair("ib_send_bw -c UC -s 2048 -n 100", WIDTH).and_rxe(),
    Program::pair("ib_send_lat -c UD -s 1024 -n 200", TIME).and_rxe(),
];

/// Every program with connections of rdma_cm. Against rxe as the client alone: perftest's client connects a
/// second time when the first exchange has ended, and the server in the emulated guest may not listen again yet.
pub(super) const CONNECTED: &[Program] = &[
    Program::pair("ib_send_bw -R -n 500", WIDTH).and_rxe_client().quick(),
    Program::pair("ib_write_bw -R -n 500", WIDTH).and_rxe_client().quick(),
    Program::pair("ib_read_bw -R -n 500", WIDTH).and_rxe_client(),
    Program::pair("ib_atomic_bw -R -n 500", WIDTH).and_rxe_client(),
    Program::pair("ib_send_lat -R -n 200", TIME).and_rxe_client().quick(),
    Program::pair("ib_write_lat -R -n 200", TIME).and_rxe_client().quick(),
    Program::pair("ib_read_lat -R -n 200", TIME).and_rxe_client(),
    Program::pair("ib_atomic_lat -R -n 200", TIME).and_rxe_client(),
    Program::pair("ib_write_bw -R -q 4 -n 200", WIDTH),
    Program::pair("ib_write_bw -R -T 104 -n 200", WIDTH),
    Program::pair("ib_write_bw -R -q 8 -n 200", WIDTH),
    Program::pair("ib_send_bw -R --use-srq -n 500", WIDTH),
    Program::pair("ib_send_bw -R --use-srq -q 4 -n 200", WIDTH),
    Program::pair("ib_send_lat -R -c UD -s 1024 -n 200", TIME),
    Program::pair("ib_send_bw -R -c UD -s 1024 -n 100", WIDTH),
    Program::pair("ib_write_bw -R -c UC", &[]).refused("UC is not supported in librdmacm"),
];

/// The options. With UC and UD a sender does not wait for the receiver, which waits for ever for
/// what is lost: so bandwidth tests send no more than the ring of a device holds, 128 frames. Of
/// 400 some were lost in one run of ten, where the receiver had no processor.
pub(super) const OPTIONS: &[Program] = &[
    Program::pair("ib_send_bw -b -n 1000", WIDTH),
    Program::pair("ib_write_bw -b -n 1000", WIDTH).quick(),
    Program::pair("ib_read_bw -b -n 1000", WIDTH),
    Program::pair("ib_atomic_bw -b -n 1000", WIDTH),
    Program::pair("ib_write_bw -D 1", WIDTH),
    Program::pair("ib_send_bw -D 1", WIDTH),
    Program::pair("ib_read_bw -D 1", WIDTH),
    Program::pair("ib_write_bw -s 8 -D 1", WIDTH),
    Program::pair("ib_send_bw -e -n 1000", WIDTH).quick(),
    Program::pair("ib_write_bw -e -n 1000", &[]).refused("Events feature not available on WRITE"),
    Program::pair("ib_read_lat -e -n 200", TIME).quick(),
    Program::pair("ib_send_lat -e -n 1000", TIME).quick(),
    Program::pair("ib_write_bw --odp -n 1000", WIDTH).quick(),
    Program::pair("ib_read_bw --odp -n 1000", WIDTH),
    Program::pair("ib_send_bw --odp -n 1000", WIDTH),
    Program::pair("ib_atomic_bw --odp -n 1000", WIDTH).or_refused("ODP does not support ATOMICS"),
    Program::pair("ib_write_bw -l 32 -n 3200 -s 64", WIDTH).quick(),
    Program::pair("ib_send_bw -l 32 -n 3200 -s 64", WIDTH),
    Program::pair("ib_read_bw -l 32 -n 3200 -s 64", WIDTH),
    Program::pair("ib_write_bw -q 8 -n 500", WIDTH).quick(),
    Program::pair("ib_send_bw -q 8 -n 500", WIDTH),
    Program::pair("ib_read_bw -q 8 -n 500", WIDTH),
    Program::pair("ib_write_bw -I 64 -s 64 -n 1000", WIDTH),
    Program::pair("ib_write_lat -I 220 -s 200 -n 1000", TIME),
    Program::pair("ib_send_lat -I 64 -s 64 -n 1000", TIME),
    Program::pair("ib_write_bw -x 1 -n 500", WIDTH).quick(),
    Program::pair("ib_send_bw -x 1 -n 500", WIDTH),
    Program::pair("ib_write_bw -m 512 -n 500", WIDTH),
    Program::pair("ib_send_bw -m 256 -n 500", WIDTH),
    Program::pair("ib_send_bw -c UC -s 2048 -n 100", WIDTH).quick(),
    Program::pair("ib_write_bw -c UC -n 1000", WIDTH),
    Program::pair("ib_send_lat -c UC -n 1000", TIME),
    Program::pair("ib_write_lat -c UC -n 1000", TIME),
    Program::pair("ib_send_bw -c UD -s 1024 -n 100", WIDTH).quick(),
    Program::pair("ib_send_lat -c UD -s 1024 -n 1000", TIME),
    Program::pair("ib_send_bw --use-srq -n 1000", WIDTH).quick(),
    Program::pair("ib_send_bw --use-srq -q 4 -n 500", WIDTH),
    Program::pair("ib_send_lat --use-srq -n 500", TIME),
    Program::pair("ib_atomic_bw -A CMP_AND_SWAP -n 1000", WIDTH),
];
