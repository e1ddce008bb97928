#!/bin/sh
# Records testdata/congested.pcapng anew: a sender has a link to itself until another sends to the same
# host. The capture has the connection of the first, as the receiver sees it.
#
#     cargo build --release -p roce -p roce-ibverbs -p roce-preload
#     ROCE=target/release/roce sh testdata/record_congested.sh FILE
#
# Needs no root where user namespaces are allowed, and takes two seconds.
set -eu
roce=${ROCE:-roce}
if [ $# -eq 1 ]; then
    # A packet takes 0.65 ms on such a link, so that threads that wait for a processor change little.
    exec "$roce" run --local 3 --view none --switch rate=4M,buffer=256K,ecn=1K:3K:1 -- \
        sh "$0" "$1" {rank} {peer?}
fi

# Times and steps for 4 Mbit/s: at most one CNP in the time of 60 packets, and increases in that of 240.
cc=dcqcn,paper,rp_max_rate=4,rp_ai_rate=1,rp_hai_rate=1,rp_byte_reset=0
cc=$cc,rp_time_reset=160000,rp_dce_tcp_rtt=60000,np_min_time_between_cnps=40000
sender="--mtu 256 --size 1024 --tx-depth 16 --tclass 106 --gso off --cc $cc"
case $2 in
0)
    "$roce" perf write bw --port 2 --cc $cc &
    "$roce" perf write bw --port 1 --cc $cc --pcap "$1"
    wait
    ;;
1) sleep 0.2 && exec "$roce" perf write bw --port 1 "$3" --iters 90 $sender ;;
2) sleep 0.25 && exec "$roce" perf write bw --port 2 "$3" --iters 100 $sender ;;
esac
