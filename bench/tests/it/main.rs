//! The programs of the benchmark, and what they print.

mod congestion;
mod programs;
mod suite;
