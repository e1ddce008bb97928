//! Programs of TCP over rsockets, by librspreload: their bytes must be counted by our queue pairs, and none
//! by TCP.
//!
//! rsockets of version 44, which Debian 12 has, wait up to five seconds for a connection that has come while
//! the program was about to call poll(2): their service thread takes the event, and wakes nothing. Such a
//! program runs, and is slow to begin.

use super::program::Program;

/// Defines `over`, which runs a program over rsockets, and `counted`: it fails unless the device has sent or
/// received so many bytes, and prints how many connections TCP has opened and accepted.
const FUNCTIONS: &str = "over() { LD_PRELOAD=\"$LD_PRELOAD /usr/lib/x86_64-linux-gnu/rsocket/librspreload.so\" \"$@\"; }; \
     counted() { n=0; until [ $(($(cat /sys/class/infiniband/roce0/ports/1/counters/port_$1_data) * 4)) -ge $2 ]; \
     do n=$((n + 1)); [ $n -lt 50 ] || return 1; sleep 0.1; done; \
     set -- $(grep Tcp: /proc/net/snmp | tail -n 1); echo TCP connections: $6 $7; }; a={peer?};";

/// What `counted` prints if there were none.
const NONE_BY_TCP: &str = "TCP connections: 0 0";

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[
    Program::pair(
        "if [ $a ]; then over iperf3 -n 20M -c $a && counted xmit 20971520; else over iperf3 -s -1; fi",
        &["iperf Done.", NONE_BY_TCP],
    )
    .behind(FUNCTIONS),
    Program::pair(
        "if [ $a ]; then over iperf3 -R -P 2 -n 20M -c $a && counted rcv 20971520; else over iperf3 -s -1; fi",
        &["iperf Done.", NONE_BY_TCP],
    )
    .behind(FUNCTIONS),
    // A small HTTP server. It sleeps a second whenever the connection takes no more.
    Program::pair(
        "d=$(mktemp -d); seq 1 100000 > $d/file; chmod -R a+rX $d; \
         if [ $a ]; then over curl -sS -o $d/got http://$a:8080/file && cmp $d/file $d/got && \
         counted rcv 588895; else over merecat -n -p 8080 -f /dev/null $d; fi; e=$?; rm -r $d; exit $e",
        &[NONE_BY_TCP],
    )
    .behind(FUNCTIONS)
    .quick(),
    // A server that forks for each connection: librspreload accepts it by TCP, and lets the child connect an
    // rsocket then. The server never ends by itself.
    Program::pair(
        "export RDMAV_FORK_SAFE=1; o='-T v -T f -S 70000 -C 100'; \
         if [ $a ]; then over rstream $o -s $a && counted xmit 7000000; else over rstream $o; fi",
        &["[0] custom", "[1] custom", "TCP connections: 1 0"],
    )
    .behind(FUNCTIONS),
    // No socket of the library itself becomes an rsocket.
    Program::alone("over ibv_devinfo", &["hca_id:\troce0", "PORT_ACTIVE"]).behind(FUNCTIONS),
    Program::pair("over rping ${a:--s} ${a:+-c -a $a} -v -V -C 10", &["ping data: rdma-ping-9: "])
        .behind(FUNCTIONS),
];
