//! The programs of rdmacm-utils over rsockets, librdmacm's sockets of streams: WRITEs with immediate into
//! the peer's buffer, credits in the other direction.

use super::program::Program;

/// Copies a file to the server, which compares it. The server never ends by itself.
const COPIED: &str = "a={peer?}; d=$(mktemp -d); cd $d; seq 1 500000 > file; \
     if [ $a ]; then rcopy file $a:copy; e=$?; \
     else rcopy > log & p=$!; until grep -q done log; do sleep 0.1; done; kill $p; \
     cmp file copy; e=$?; echo rcopy: compared $e; fi; rm -r $d; exit $e";

/// The first words of what rstream and riostream print.
const TABLE: &[&str] = &["name      bytes   xfers", "custom"];

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[
    Program::pair("a={peer?}; exec rstream -T v -S 70000 -C 100 ${a:+-s} $a", TABLE)
        .and_rxe()
        .quick(),
    // Sleeps in each call.
    Program::pair("a={peer?}; exec rstream -T v -T b -S 3000 -C 10 -I 50 ${a:+-s} $a", TABLE)
        .and_rxe(),
    // The server polls. A client that polls would take the end of the connection for a failure.
    Program::pair("a={peer?}; exec rstream -T v ${a:--T a} -S 3000 -C 100 -I 5 ${a:+-s} $a", TABLE),
    // Small buffers, nothing inline.
    Program::pair("a={peer?}; exec rstream -T v -i 0 -B 8192 -S 20000 -C 20 ${a:+-s} $a", TABLE)
        .and_rxe(),
    Program::pair("a={peer?}; exec rstream -T v -T r -S 3000 -C 100 ${a:+-s} $a", TABLE),
    Program::pair(
        "a={peer?}; exec rstream -T v -T b -k 1 -S 64 -C 1 -I 5000 ${a:+-s} $a",
        &["Keepalive: ON", "custom"],
    ),
    Program::pair(
        "a={peer?}; b='-b ::'; if [ $a ]; then b='-s fd00::1'; fi; exec rstream -T v -S 3000 -C 100 $b",
        TABLE,
    ),
    // Writes into memory that the peer has mapped, and polls for the last byte.
    Program::pair("a={peer?}; exec riostream -T v -S 70000 -C 10 -I 5 ${a:+-s} $a", TABLE)
        .and_rxe()
        .quick(),
    Program::pair("a={peer?}; exec riostream -T v -T b -S 500 -C 100 ${a:+-s} $a", TABLE),
    Program::pair(COPIED, &["3388895 bytes in", "rcopy: compared 0"]).and_rxe().quick(),
    // librdmacm's datagram sockets make an address handle without a GRH, which no RoCE device takes. With
    // rdma_rxe it says the same.
    Program::alone("udpong -T e -S 64 -C 10 -s {address}", &[])
        .refused("rconnect: No such file or directory"),
];
