//! The binary interface of libibverbs, as C programs see it, and that of the device of librdmacm
//! ([`rdma_cm`]).
//!
//! Names, fields and values are those of `<infiniband/verbs.h>`; its manual pages describe them. The
//! layout is that of the newest release known here (rdma-core 65), which serves programs that were
//! compiled for older ones: structures that a program allocates have not changed since, or their
//! size is passed with them, and [`verbs_context`] grows at its front.
//!
//! Values that come from C are integers, never Rust enums: a program may pass any number.
//!
//! [`export!`] gives functions the names and symbol versions of the library.
//!
//! ```
//! use roce_abi::{IBV_SEND_SIGNALED, IBV_WR_SEND, ibv_send_wr};
//!
//! // SAFETY: integers and pointers, for which all bytes may be zero.
//! let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
//! wr.opcode = IBV_WR_SEND;
//! wr.send_flags = IBV_SEND_SIGNALED;
//! assert_eq!(size_of_val(&wr), 128);
//! ```

#![allow(missing_docs)] // The names are those of verbs.h, which describes them.
#![allow(non_camel_case_types)]
// Function pointers have no useful `Debug`.
#![allow(missing_debug_implementations)]

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")))]
compile_error!(
    "the C library needs Linux on x86-64 or arm64; another architecture needs its own jump instruction \
     in crates/roce-abi/src/export.rs and a check of the layouts in crates/roce-abi/tests"
);

mod export;
pub mod rdma_cm;
mod verbs;

pub use export::{PRIVATE_NODES, PUBLIC_NODES, version_script};
pub use verbs::*;
