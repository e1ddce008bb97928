//! Groups of ranks: ring allreduce and its relatives over RDMA.

#![forbid(unsafe_code)]
