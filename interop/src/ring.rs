//! Rings of ranks of both kinds: `roce allreduce` in hosts of ours, and `interop/ring_allreduce.c`
//! on rxe in guests.
//!
//! Rank 0 is always ours: the C program has no bootstrap server. A ring in which the other ranks
//! are turned is another one: the first chunks are longer, each rank finishes another chunk, and
//! rank 0 has other neighbours. So every choice of rxe
//! ranks among 1 .. size−1 is a ring of its own, and all are run: three of three ranks, seven of
//! four. Every rxe rank sits in its own guest, since rxe hands what goes to its own address straight
//! back.

mod job;
mod ranks;
mod table;
mod world;

pub use job::Job;
pub use ranks::{Ended, Kind, Ranks};
pub(crate) use table::expect_exact;
pub use world::RingWorld;
