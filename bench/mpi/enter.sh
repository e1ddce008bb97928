#!/bin/sh
# Starts Open MPI's daemon in the network namespace of a host, as `ssh` would start it on one.
# Called by mpirun as `enter.sh ADDRESS COMMAND...`; see `roce_bench::mpi`. ROCE_BENCH_NAMESPACES
# says where each address lives: "10.0.0.1=/proc/123/ns/net 10.0.0.2=/proc/124/ns/net".
address=$1
shift
for entry in $ROCE_BENCH_NAMESPACES; do
    case $entry in
    "$address="*) exec nsenter --net="${entry#*=}" -- sh -c "$*" ;;
    esac
done
echo "enter.sh: ROCE_BENCH_NAMESPACES has no namespace for $address" >&2
exit 1
