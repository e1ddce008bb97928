#!/bin/sh
# Starts a rank bound to one processor, in turn: `bind.sh PROCESSORS COMMAND...`. See
# `roce_bench::mpi`; Open MPI's own binding takes each namespace for a machine of its own.
processors=$1
shift
exec taskset -c $((OMPI_COMM_WORLD_RANK % processors)) "$@"
