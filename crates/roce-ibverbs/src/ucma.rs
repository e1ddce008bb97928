//! The device of librdmacm, `/dev/infiniband/rdma_cm`, in this process.
//!
//! The preloaded library passes what programs do with that path and its descriptors to the four
//! functions here. A descriptor is one end of a pair of sockets, in which a byte lies for each
//! event, so that it is readable as long as one waits. A `write` is a command, which
//! [`roce_abi::rdma_cm`] reads; `commands.rs` carries it out by [`roce_verbs::cm`].
//!
//! | file | what it has |
//! |---|---|
//! | `process.rs` | the channels and identifiers of this process; after `fork` a child has its own |
//! | `cookies.rs` | which sockets are channels |
//! | `channel.rs` | a channel and its sockets |
//! | `identifiers.rs`, `joins.rs` | the numbers of identifiers, and of multicast groups that they join |
//! | `commands.rs`, `queries.rs`, `options.rs` | what commands do |
//! | `next_event.rs`, `events.rs` | how an event is fetched, and what it says |
//! | `memory.rs` | values and responses in memory of the program |

mod channel;
mod commands;
mod cookies;
mod events;
mod identifiers;
mod joins;
mod memory;
mod next_event;
mod options;
mod process;
mod queries;

use std::ffi::{c_int, c_void};
use std::os::fd::IntoRawFd;

use libc::{EFAULT, EIO, ssize_t};
use roce_abi::rdma_cm::{Command, ResponseSpace};

use crate::cancellation::Uncancellable;
use crate::{errno, memory_reserve, message, panic, wait};
use channel::Channel;
use process::{Lookup, Process};

/// What `write` and `close` return for a descriptor that is no channel of this process.
const FOREIGN: c_int = -2;

/// The longest command with its header.
const MAX_LEN: usize = 8 + u16::MAX as usize;

/// `roce_ucma_open`: makes a channel, with the flags of `open`. Returns its descriptor, or -1.
pub(crate) extern "C-unwind" fn open(flags: c_int) -> c_int {
    let _uncancellable = Uncancellable::begin();
    panic::end_process_on_panic();
    message::start_log();
    let Some(process) = Process::of_caller() else {
        errno::set(libc::ENODEV);
        return -1;
    };
    process.release_closed();
    match memory_reserve::check().and_then(|()| Channel::new(flags)) {
        Ok((channel, descriptor)) => {
            process.add(channel);
            descriptor.into_raw_fd()
        }
        Err(errno) => {
            errno::set(errno);
            -1
        }
    }
}

/// `roce_ucma_owns`: returns 1 if the descriptor is a channel of this process, else 0.
pub(crate) extern "C-unwind" fn owns(fd: c_int) -> c_int {
    let _uncancellable = Uncancellable::begin();
    c_int::from(matches!(process::find(fd), Lookup::Channel(..)))
}

/// `roce_ucma_close`: ends what a channel has, and closes its descriptor. Returns as `close` does, or
/// [`FOREIGN`].
pub(crate) extern "C-unwind" fn close(fd: c_int) -> c_int {
    let _uncancellable = Uncancellable::begin();
    let Lookup::Channel(process, channel) = process::find(fd) else { return FOREIGN };
    // Before the release, after which another thread's `write` would be one to a socket. SAFETY:
    // the descriptor is that of the channel, which the program gives up. The C library's function
    // would lead here again.
    let result = unsafe { libc::syscall(libc::SYS_close, fd) };
    process.release(&channel);
    if result == 0 { 0 } else { -1 }
}

/// What is left to do of a command.
#[derive(Clone, Copy)]
enum Outcome {
    /// Nothing. This is what `write` returns.
    Done(ssize_t),
    /// To fetch an event.
    NextEvent(ResponseSpace),
}

/// `roce_ucma_write`: carries out a command. Returns as `write` does, or [`FOREIGN`].
///
/// A thread may be cancelled while it waits for an event: see [`wait`].
///
/// # Safety
/// As for `write`; and addresses in the command are as it says.
pub(crate) unsafe extern "C-unwind" fn write(
    fd: c_int,
    bytes: *const c_void,
    len: usize,
) -> ssize_t {
    // SAFETY: the caller's promise.
    match unsafe { begin(fd, bytes, len) } {
        Outcome::Done(result) => result,
        Outcome::NextEvent(response) => {
            match wait::repeat(|woken| next_event::fetch(fd, woken, response)) {
                0 => len as ssize_t,
                failed => failed as ssize_t,
            }
        }
    }
}

/// Carries out a command that does not wait.
///
/// # Safety
/// As for [`write`].
unsafe fn begin(fd: c_int, bytes: *const c_void, len: usize) -> Outcome {
    let _uncancellable = Uncancellable::begin();
    let result = match process::find(fd) {
        Lookup::Foreign => return Outcome::Done(FOREIGN as ssize_t),
        Lookup::Inherited => Err(EIO),
        Lookup::Channel(..) if bytes.is_null() => Err(EFAULT),
        Lookup::Channel(process, channel) => {
            // SAFETY: the caller's promise, and not null.
            let written = unsafe { std::slice::from_raw_parts(bytes.cast(), len.min(MAX_LEN)) };
            match Command::decode(written) {
                Ok(Command::GetEvent { response }) => return Outcome::NextEvent(response),
                Ok(command) => {
                    let result = commands::carry_out(process, &channel, command);
                    channel.bell.settle(fd);
                    result
                }
                Err(errno) => Err(errno),
            }
        }
    };
    Outcome::Done(match result {
        Ok(()) => len as ssize_t,
        Err(errno) => {
            errno::set(errno);
            -1
        }
    })
}
