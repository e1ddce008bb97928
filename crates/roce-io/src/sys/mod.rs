//! What needs `unsafe`: system calls and memory shared with the kernel.
//!
//! Everything outside this module is safe code and sees slices, integers and errors.

#![allow(unsafe_code)]

pub(crate) mod interface;
pub(crate) mod mmsg;
pub(crate) mod prefetch;
pub(crate) mod ring;
pub(crate) mod socket;
