//! The programs of DAPL, over its provider that connects by rdma_cm.
//!
//! Providers are found by a file; `/etc/dat.conf` of the package names interfaces of InfiniBand.

use super::program::Program;

/// Adds the file of providers to the line of a program.
macro_rules! with_provider {
    ($line:literal) => {
        concat!(
            "a={peer?}; p=ofa-v2-cma; export DAT_OVERRIDE=$(mktemp); echo $p u2.0 nonthreadsafe ",
            "default libdaplofa.so.2 dapl.2.0 '\"eth0 0\"' '\"\"' > $DAT_OVERRIDE; ",
            $line,
            "; e=$?; rm $DAT_OVERRIDE; exit $e"
        )
    };
}

/// What dtest prints at both ends.
const PASSED: &[&str] = &["DAPL Test Complete. PASSED"];

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[
    // A message, a WRITE and a READ with texts that are printed; then times.
    Program::pair(
        with_provider!("dtest -P $p -b 65536 -B 50 ${a:--s} ${a:+-h $a}"),
        &[
            "DAPL Test Complete. PASSED",
            "CLIENT: RDMA write buffer contains: server RDMA write data...",
            "CLIENT: RCV RDMA read buffer contains: server RDMA read data...",
        ],
    )
    .quick(),
    Program::pair(with_provider!("dtest -P $p -p -b 65536 -B 50 ${a:--s} ${a:+-h $a}"), PASSED),
    Program::pair(with_provider!("dtest -P $p -W -D -b 4096 -B 50 ${a:--s} ${a:+-h $a}"), PASSED),
    Program::pair(
        with_provider!("dtestx -P $p ${a:--s} ${a:+-h $a}"),
        &["CMP_SWAP test - PASSED", "FETCH_ADD test - PASSED", "immed/atomic test PASSED"],
    ),
    Program::pair(with_provider!("dtestcm -P $p ${a:+-h $a}"), &["Num=1000"]),
    Program::pair(with_provider!("dtestsrq -P $p ${a:+-h $a}"), &["DAPL RC SRQ Test Complete."]),
];
