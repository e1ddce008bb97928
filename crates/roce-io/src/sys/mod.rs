//! What needs `unsafe`: system calls and memory shared with the kernel.
