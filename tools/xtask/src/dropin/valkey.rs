//! Valkey with RDMA on our libibverbs: its server, its own test, its client and its benchmark, which connect
//! by rdma_cm. The server forks to save its data while clients write.
//!
//! Debian's packages are built without RDMA, so it is built from the source of Debian's package.

use std::path::Path;
use std::time::Instant;

use roce_netns::Host;

use super::releases::{Program, judge};
use crate::Result;
use crate::debian_root::{DebianRoot, SID};

/// What the root has besides the essential packages.
const PACKAGES: &str =
    "g++,gcc,ibverbs-providers,libc6-dev,libibverbs-dev,librdmacm-dev,make,pkgconf,xz-utils";

/// Builds it in `/valkey`. An archive that is a copy of some day is no longer valid by its own date.
const BUILD: &str = "sed s/^deb/deb-src/ /etc/apt/sources.list > /etc/apt/sources.list.d/source.list; \
     apt=\"apt-get -qq -o Acquire::Check-Valid-Until=false\"; $apt update; \
     mkdir /valkey; cd /valkey; $apt source --download-only valkey; \
     tar xf valkey_*.orig.tar.* --strip-components=1; \
     make -s -j2 BUILD_RDMA=yes MALLOC=libc OPTIMIZATION=-O1; make -s -C tests/rdma";

/// Starts the server, or pings it until it answers, and runs its test and its benchmark.
const VALKEY: Program = Program {
    name: "valkey",
    hosts: 2,
    line: "a={peer?}; cd /valkey/src; \
           if [ -z $a ]; then exec ./valkey-server --port 0 --protected-mode no --appendonly no --dir /tmp \
           --rdma-port 6379 --rdma-bind {address}; fi; \
           n=0; until ./valkey-cli -h $a --rdma ping; do n=$((n + 1)); [ $n -lt 50 ] || exit 1; sleep 0.2; done; \
           ../tests/rdma/rdma-test --thread 4 -h $a; \
           ./valkey-benchmark -h $a --rdma -n 20000 -c 10 -d 64 -t set,get --csv; \
           exec ./valkey-benchmark -h $a --rdma -n 2000 -c 4 -d 100000 -t set,get --csv",
    shows: &[
        "PONG",
        "BGSAVE [OK]",
        "Valkey Over RDMA test [OK]",
        "[1] \"SET\",\"",
        "[1] \"GET\",\"",
    ],
};

/// Makes the root if it is missing, and runs the server with its clients there.
///
/// # Errors
/// If it cannot be built, or does not print what it should.
pub(super) fn run(host: &Host, files: &Path) -> Result<()> {
    let root = DebianRoot::built("suite-valkey", SID, PACKAGES, BUILD)?;
    let started = Instant::now();
    judge(&VALKEY, &root, host, files)?;
    println!("valkey with RDMA: ok ({:.1} s)", started.elapsed().as_secs_f32());
    Ok(())
}
