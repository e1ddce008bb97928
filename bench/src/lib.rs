//! Measurements beside other programs, and what they measure with.

#![forbid(unsafe_code)]

pub mod traffic;
