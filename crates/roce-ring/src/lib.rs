//! Collectives as pure computation: ring plans, reduction kernels, a rank's machine.

#![forbid(unsafe_code)]
