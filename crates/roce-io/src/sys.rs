//! The crate's `unsafe` code: system calls and memory shared with the kernel.

#![allow(unsafe_code)]

pub(crate) mod bpf;
pub(crate) mod descriptors;
pub(crate) mod fork;
pub(crate) mod interface;
pub(crate) mod mmsg;
pub(crate) mod own;
pub(crate) mod passing;
pub(crate) mod prefetch;
pub(crate) mod ring;
mod shared_memory;
pub(crate) mod socket;
pub(crate) mod udp;
pub(crate) mod xsk;
