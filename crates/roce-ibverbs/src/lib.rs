//! `libibverbs.so.1` over roce: RDMA programs run on it as they are.
//!
//! This library has the binary interface of libibverbs and nothing of the protocol: each function
//! translates its arguments, calls `roce-verbs` and translates the result. It exports C functions
//! only; see `exports.rs`.
//!
//! # The border
//!
//! Arguments of exported functions are references where verbs.h has pointers to objects or to
//! attributes; `object.rs` says why that is sound. A panic ends the process with one line
//! (`panic.rs`). After `fork`, functions on a parent's objects return `EIO`, and those that destroy
//! them free memory and return 0; nothing waits for a lock.

// The border to C: see above. Each use has its reason.
#![allow(unsafe_code)]
// Tests export nothing, so most functions have no caller.
#![cfg_attr(test, allow(dead_code))]

mod acks;
mod address_handle;
mod address_vector;
mod async_event;
mod attributes_as_set;
mod buffer;
mod cancellation;
mod completion_channel;
mod completion_queue;
mod configuration;
mod context;
mod device_list;
mod device_memory;
mod dma_buffer;
mod errno;
#[cfg(not(test))] // The linker knows the versions of the library alone.
mod exports;
mod extended;
mod kernel_structures;
mod link_layer;
mod memory_region;
mod memory_reserve;
mod memory_window;
mod message;
mod multicast;
mod object;
mod open;
mod operations;
mod panic;
mod poll_cursor;
mod post;
mod protection_domain;
mod qp_attributes;
mod query;
mod queue_pair;
mod rate;
mod receive_list;
mod refused;
mod registration;
mod send_list;
mod shared_receive_queue;
mod staging;
mod text;
mod ucma;
mod wait;
