//! The programs of the package rdmacm-utils, which connect by rdma_cm. Server and client have different
//! arguments, for which a line needs a shell.

use super::program::Program;

/// Defines `serve`, which runs rping's server. The server closes the channel without regard to its thread that
/// waits there: if that thread has told of the last event but does not wait again yet, it finds a closed
/// descriptor, and ends the program with 255. Nothing is wrong then, on any device.
const SERVE: &str = "a={peer?}; serve() { log=$(mktemp); rping -s \"$@\" > $log 2>&1; ended=$?; cat $log; \
     if [ $ended = 255 ] && grep -q 'DISCONNECT EVENT' $log && \
     tail -n 1 $log | grep -q 'rdma_get_cm_event: Bad file descriptor'; then ended=0; fi; \
     rm $log; return $ended; };";

/// Sets `o`, the options of cmtime's end. In newer releases both ends name the server's address and their own.
const CMTIME: &str = "a={peer?}; o=\"${a:+-s} $a\"; if cmtime -h 2>&1 | grep -q -- '-C controller'; then \
     o=\"-b {address} -C ${a:-{address}}\"; [ $a ] || o=\"$o -L\"; fi;";

/// What rping prints for the ping of a number with its data.
const PINGS: &[&str] = &["ping data: rdma-ping-0: ", "ping data: rdma-ping-9: "];

/// What ucmatose and udaddy print at both ends.
const DONE: &[&str] = &["test complete", "return status 0"];

/// A group with a member at each end. Its programs connect nothing, so that a server of another program
/// shows when the first one runs; they send after three seconds.
const JOINED: &str = "a={peer?}; own=$(ip -4 -o address show scope global | tr -s ' ' | cut -d' ' -f4 | cut -d/ -f1); \
     if [ $a ]; then exec mckey -m 239.1.2.3 -b $own -C 20 -S 1000 -s; fi; \
     rping -s & shown=$!; mckey -m 239.1.2.3 -b $own -C 20 -S 1000; ended=$?; kill $shown; exit $ended";

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[
    Program::pair(
        "if [ $a ]; then exec rping -c -a $a -v -V -C 10; else serve -v -V -C 10; fi",
        PINGS,
    )
    .behind(SERVE)
    .and_rxe()
    .quick(),
    Program::pair(
        "if [ $a ]; then exec rping -c -a $a -V -C 100 -S 65000; else serve -C 100 -S 65000; fi",
        &[],
    )
    .behind(SERVE),
    Program::pair(
        "if [ $a ]; then exec rping -c -a $a -q -v -V -C 10; else serve -q -v -C 10; fi",
        PINGS,
    )
    .behind(SERVE),
    Program::pair(
        "ip address add fd00::$(({rank} + 1))/64 dev eth0 nodad; \
         if [ $a ]; then exec rping -c -a fd00::1 -v -V -C 10; else serve -a ::0 -v -C 10; fi",
        PINGS,
    )
    .behind(SERVE),
    Program::pair("a={peer?}; exec ucmatose ${a:+-s} $a", DONE).and_rxe().quick(),
    Program::pair("a={peer?}; exec ucmatose -c 20 -C 50 -S 4000 ${a:+-s} $a", DONE),
    Program::pair("a={peer?}; exec ucmatose -c 5 -m ${a:+-s} $a", DONE),
    // Its server never ends by itself.
    Program::pair("exec cmtime -c 50 $o", &["connect", "disconnect"]).behind(CMTIME).quick(),
    Program::pair(
        "a={peer?}; if [ -z $a ]; then exec rdma_server; fi; exec rdma_client -s $a",
        &["rdma_server: end 0", "rdma_client: end 0"],
    )
    .and_rxe()
    .quick(),
    Program::pair(
        "a={peer?}; if [ -z $a ]; then exec rdma_xserver; fi; exec rdma_xclient -s $a",
        &["rdma_xserver: end 0", "rdma_xclient: end 0"],
    ),
    Program::pair(
        "a={peer?}; if [ -z $a ]; then exec rdma_xserver -c x; fi; exec rdma_xclient -c x -s $a",
        &[],
    )
    .refused("rdma_create_ep: "),
    Program::pair("a={peer?}; exec udaddy ${a:+-s} $a", DONE).and_rxe().quick(),
    Program::pair(JOINED, &["mckey: joined dgid: ::ffff:239.1.2.3 ", "data transfers complete"])
        .and_rxe()
        .quick(),
    // Two members of an IPv6 group, and a sender that is none.
    Program {
        hosts: 3,
        ..Program::pair(
            "s=; if [ {rank} = 0 ]; then s='-s -o'; fi; \
             exec mckey -m ff15::1:2 -b fd00::$(({rank} + 1)) -C 20 -S 1000 $s",
            &["mckey: joined dgid: ff15::1:2 ", "data transfers complete", "return status 0"],
        )
    },
    // Without an own address the route decides.
    Program::pair(
        "ip route add 239.0.0.0/8 dev eth0; s=; if [ {rank} = 0 ]; then s=-s; fi; \
         exec mckey -m 239.1.2.3 -c 4 -C 5 $s",
        &["mckey: joined dgid: ::ffff:239.1.2.3 ", "data transfers complete", "return status 0"],
    ),
    // Like every datagram test it waits for ever for what is lost: so few are sent at a time.
    Program::pair("a={peer?}; exec udaddy -c 4 -C 10 ${a:+-s} $a", DONE),
];
