//! Programs without a protocol, over packet sockets: what the packet path can carry.
//!
//! They use none of `roce-io`, so that they measure the path and not our code, but set their
//! socket up as it does: `PACKET_VNET_HDR`, a TPACKET_V2 receive ring with slots of 64 KiB, past
//! the queueing discipline on the way out, a packet filter, and UDP port 4791 held by a socket
//! with `UDP_GRO` on. Otherwise the kernel would have less to do for one than for the other.
//!
//! [`gso`] is the ceiling of throughput, [`pingpong`] the floor of latency, [`allreduce`] that of a small
//! collective, and [`exchange`] that of a large one.

pub mod allreduce;
mod crc_tables;
pub mod exchange;
mod frame;
pub mod gso;
pub mod pingpong;
mod port;
mod sys;
