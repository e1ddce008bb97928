//! iSER, iSCSI over RDMA: the target of tgt and the initiator of libiscsi, which connect by rdma_cm.

use super::program::Program;

/// A disk of random bytes, whose target is ended with the run, and an initiator that logs in until there is
/// a target. The target itself compares what the initiator has read with the disk (VERIFY with data).
///
/// With this `MALLOC_PERTURB_` the C library gives new memory out filled with zeros. Without it
/// `iscsi-test-cu` of Debian 12 ends by SIGSEGV in a thread of libiscsi, in code of libiscsi itself.
const VERIFIED: &str = "a={peer?}; i=iqn.2026-01.test:disk; h=iqn.2026-01.test:host; \
     t() { tgtadm --lld iser --mode \"$@\"; }; \
     if [ $a ]; then export MALLOC_PERTURB_=255; n=0; \
     until iscsi-inq -i $h iser://$a/$i/1; do n=$((n + 1)); [ $n -lt 50 ] || exit 1; sleep 0.2; done; \
     exec iscsi-test-cu -i $h -n -d -t ALL.Verify16.Simple iser://$a/$i/1; fi; \
     d=$(mktemp -d); head -c 16777216 /dev/urandom > $d/disk; tgtd -f > $d/log 2>&1 & p=$!; \
     trap 'kill -KILL $p; rm -r $d' TERM; \
     until t sys --op show > $d/sys 2>&1; do sleep 0.1; done; t target --op new --tid 1 -T $i; \
     t logicalunit --op new --tid 1 --lun 1 -b $d/disk; t target --op bind --tid 1 -I ALL; \
     t target --op bind --tid 1 -Q $h; wait $p";

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[Program::pair(
    VERIFIED,
    &[
        "Product:VIRTUAL-DISK",
        "tests      1      1      1      0        0",
        "asserts   1024   1024   1024      0",
    ],
)];
