//! What is done in a cell of the matrix, by theme.

pub mod atomics;
pub mod beside;
pub mod invalidate;
pub mod killed;
pub mod pingpong;
pub mod protection;
pub mod ring;
pub mod ring_faults;
pub mod rnr;
pub mod sharing;
pub mod transfer;
