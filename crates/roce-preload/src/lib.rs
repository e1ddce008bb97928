//! A library for `LD_PRELOAD` that shows programs the files of emulated RDMA devices.
//!
//! It interposes the calls of the C library that take a path. A path below
//! `/sys/class/infiniband*` or `/dev/infiniband` is replaced by the same path below the folder `view` of the
//! folder that the environment variable `ROCE_RUN` names, if that one has a file `view-by-preload`: `roce run`
//! creates them. All other paths, and all paths without that file, are passed on as they are.
//!
//! It also interposes the calls that choose actions of signals (see `calls/signal.rs`), and those
//! by which librdmacm speaks with its device (see `calls/channel.rs`).
//!
//! The library is loaded into every process that `roce run` starts. So it has one constructor,
//! which looks up two functions and finds the view's folder, and no state but that, the addresses of functions, of
//! a hook, and a mark for each descriptor number; and it allocates nothing. A path outside the view costs a comparison
//! of its first bytes, a `write` to any file one load. The calls set `errno` as the real functions
//! do.
//!
//! Not served are programs without the C library's calls (static ones, and runtimes that make
//! system calls themselves, as Go's does), patterns of `glob` with wildcards before `infiniband`,
//! and libraries that are loaded with `RTLD_DEEPBIND`.

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!(
    "roce-preload is for Linux on x86-64 and arm64: `open` has a fixed number of parameters here, which must \
     be checked against the calling convention of variadic functions elsewhere, and `glob64` the \
     structures of `glob`"
);

// A test program must keep its own `open`.
#[cfg(not(test))]
mod calls;
mod mark;
#[cfg(not(test))]
mod next;
mod path;
#[cfg_attr(test, allow(dead_code))]
mod view;
