//! Accesses to registered memory that fail, instead of ending the process, where a page is not present.
//!
//! A card pins the pages of a region when it is registered. This stack copies, so a region whose
//! memory the program has unmapped, protected or truncated since makes the copy fault. The
//! functions of `guarded/x86_64.s` and `guarded/aarch64.s` may fault at any instruction:
//! [`fault_handler`](super::fault_handler) sees the program counter between their two ends and lets
//! them return 1.
//!
//! # Why a signal handler
//!
//! | way | cost of a copy of 64 B / 4 KiB in the caches | what it misses |
//! |---|---|---|
//! | a plain copy | 5 ns / 40 to 59 ns | every fault ends the process |
//! | guarded functions and a handler | 4 ns / 37 to 59 ns | nothing; a fault costs 1.2 µs |
//! | `process_vm_readv` of the own process | 390 ns / 430 ns | nothing, but atomics have no such call |
//! | `MADV_POPULATE_READ` before a copy | 170 ns more | memory that vanishes in between |
//! | pages checked once, at registration | none | all that happens later |
//!
//! Measured by `cargo bench -p roce-verbs --bench copies`. A call of the kernel for suspicious
//! regions alone needs a suspicion, and user space is told of no `munmap`.
//!
//! On other processors than x86-64 and arm64 the copies are not guarded: a fault there ends the process as
//! before.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::*;
