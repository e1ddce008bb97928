//! The system calls of the raw programs, and memory shared with the kernel.
//!
//! Everything outside this module is safe code. It repeats some of what `roce-io` does, on
//! purpose: a yardstick that used the code it measures would measure nothing.

#![allow(unsafe_code)]

mod memory;
mod prefetch;
mod ring;
mod socket;

pub(crate) use memory::Memory;
pub(crate) use prefetch::{prefetch, prefetch_to_write};
pub(crate) use ring::{Frame, Ring};
pub(crate) use socket::{Interface, MAX_BATCH, PacketSocket, hold_udp_port, interface};

/// Bytes of the virtio header in front of each frame.
pub(crate) const VIRTIO_LEN: usize = 10;
