//! Lessons and ladders: RDMA packet by packet, in virtual time.

#![forbid(unsafe_code)]
