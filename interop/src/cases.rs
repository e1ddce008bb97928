//! What is done in a case of the matrix, by theme.

pub mod atomics;
pub mod connection_management;
pub mod generator;
pub mod invalidate;
pub mod killed;
pub mod multicast;
pub mod pingpong;
pub mod placement;
pub mod protection;
pub mod ring;
pub mod ring_faults;
pub mod rnr;
pub mod rxe_on_same_host;
pub mod shared_receives;
pub mod sharing;
pub mod transfer;
pub mod unreliable;
pub mod windows;
