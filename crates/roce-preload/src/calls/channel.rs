//! Descriptors of `/dev/infiniband/rdma_cm`, whose commands `libibverbs.so.1` carries out.
//!
//! Opening that path gives the descriptor of a socket which the library makes. From then on `write`
//! and `close` of its number go to the library, and `fstat` says that it is a device, as librdmacm
//! wants it. The numbers are marked in a table: a call on any other descriptor costs one load. The
//! library compares the socket too, so that a number that a program gives to something else, by
//! `dup2` for instance, is not taken for the device.
//!
//! A library that is loaded in another way than by `roce run` may lack the functions; then the path
//! is opened as any other.
//!
//! The real `write` and `close` are looked up when the library is loaded: the first call may come
//! from the handler of a signal, or from a child after `vfork`. Both are cancellation points, from
//! which a thread is unwound: no frame here has a destructor.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;

use libc::ssize_t;

use super::next_function;
use crate::mark::Mark;
use crate::next::Found;
use crate::view::set_errno;

/// The device.
const PATH: &CStr = c"/dev/infiniband/rdma_cm";

/// Descriptor numbers that may be channels; an opening that gets a greater one fails.
const MAX_DESCRIPTORS: usize = 65_536;

/// A mark for each descriptor number. It stays where the program replaces the channel without `close`.
static MARKS: [Mark; MAX_DESCRIPTORS] = [const { Mark::new() }; MAX_DESCRIPTORS];

/// What the library returns for a descriptor that is no channel of this process.
const FOREIGN: c_int = -2;

/// `roce_ucma_open`: makes a channel. Takes the flags of `open`, returns as it does.
static OPEN: Found = Found::new(c"roce_ucma_open");
/// `roce_ucma_write`: carries out a command. Returns as `write` does, or [`FOREIGN`].
static WRITE: Found = Found::new(c"roce_ucma_write");
/// `roce_ucma_close`: closes a channel. Returns as `close` does, or [`FOREIGN`].
static CLOSE: Found = Found::new(c"roce_ucma_close");
/// `roce_ucma_owns`: returns 1 for a channel of this process, 0 for any other descriptor.
static OWNS: Found = Found::new(c"roce_ucma_owns");

type OnDescriptor = unsafe extern "C-unwind" fn(c_int) -> c_int;
type Write = unsafe extern "C-unwind" fn(c_int, *const c_void, usize) -> ssize_t;

fn next_write() -> Option<Write> {
    next_function!(write, Write)
}

fn next_close() -> Option<OnDescriptor> {
    next_function!(close, OnDescriptor)
}

extern "C" fn look_up() {
    crate::view::find_root();
    let _found = (next_write(), next_close());
}

/// Run by the loader.
#[used]
// SAFETY: a pointer to a function without parameters, as the section has them.
#[unsafe(link_section = ".init_array")]
static LOOK_UP: extern "C" fn() = look_up;

/// Returns the mark of a descriptor number.
fn mark_of(fd: c_int) -> Option<&'static Mark> {
    MARKS.get(usize::try_from(fd).ok()?)
}

/// Returns true if the number may be that of a channel. Costs one load.
#[inline]
fn may_be_channel(fd: c_int) -> bool {
    mark_of(fd).and_then(Mark::seen).is_some()
}

/// Returns true if a descriptor is a channel of this process.
#[cold]
fn is_channel(fd: c_int) -> bool {
    // SAFETY: null is the niche of `Option`; the library's function of this name has this type.
    let owns = unsafe { transmute::<*mut c_void, Option<OnDescriptor>>(OWNS.address()) };
    // SAFETY: takes any number.
    owns.is_some_and(|owns| unsafe { owns(fd) } == 1)
}

/// Opens a channel if `path` is that of the device, and the library has one.
///
/// # Safety
/// `path` is null or ends with a zero.
pub(super) unsafe fn open(path: *const c_char, flags: c_int) -> Option<c_int> {
    // SAFETY: not null, so it ends with a zero, as the other does.
    if path.is_null() || unsafe { libc::strcmp(path, PATH.as_ptr()) } != 0 {
        return None;
    }
    let address = OPEN.address();
    // SAFETY: as in `is_channel`.
    let open = unsafe { transmute::<*mut c_void, Option<OnDescriptor>>(address) }?;
    // SAFETY: takes any flags.
    let fd = unsafe { open(flags) };
    match mark_of(fd) {
        Some(mark) => mark.set(),
        None if fd >= 0 => {
            let address = CLOSE.address();
            // SAFETY: as in `is_channel`.
            let close = unsafe { transmute::<*mut c_void, Option<OnDescriptor>>(address) };
            // SAFETY: the descriptor is new, so nothing else uses it.
            close.map(|close| unsafe { close(fd) });
            set_errno(libc::EMFILE);
            return Some(-1);
        }
        None => {}
    }
    Some(fd)
}

/// As in the C library; a command, if the descriptor is a channel.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn write(
    fd: c_int,
    bytes: *const c_void,
    len: usize,
) -> ssize_t {
    if may_be_channel(fd) {
        // SAFETY: as in `is_channel`.
        let write = unsafe { transmute::<*mut c_void, Option<Write>>(WRITE.address()) };
        if let Some(write) = write {
            // SAFETY: the caller's promise.
            let result = unsafe { write(fd, bytes, len) };
            if result != FOREIGN as ssize_t {
                return result;
            }
        }
    }
    let Some(next) = next_write() else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: the caller's promise.
    unsafe { next(fd, bytes, len) }
}

/// As in the C library; ends what the channel has, if the descriptor is one.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    let mark = mark_of(fd).and_then(|mark| Some((mark, mark.seen()?)));
    // A child that shares this memory, after `vfork`, leaves the mark to its parent.
    if let Some((mark, seen)) = mark.filter(|_| is_channel(fd)) {
        // SAFETY: as in `is_channel`.
        let close = unsafe { transmute::<*mut c_void, Option<OnDescriptor>>(CLOSE.address()) };
        if let Some(close) = close {
            // SAFETY: the caller's promise.
            let result = unsafe { close(fd) };
            if result != FOREIGN {
                mark.clear(seen);
                return result;
            }
        }
    }
    let Some(next) = next_close() else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: the caller's promise.
    unsafe { next(fd) }
}

/// Lets the status of a channel be that of the device.
///
/// # Safety
/// `status` was filled in for the descriptor.
unsafe fn show_device(fd: c_int, status: *mut libc::stat) {
    if may_be_channel(fd) && is_channel(fd) {
        // SAFETY: the caller's promise.
        let status = unsafe { &mut *status };
        status.st_mode = libc::S_IFCHR | 0o666;
        // That of /dev/null, as which the path appears.
        status.st_rdev = libc::makedev(1, 3);
    }
}

/// Returns the type of a parameter that is there.
macro_rules! version {
    ($name:ident) => {
        c_int
    };
}

/// Defines functions that ask about descriptors.
macro_rules! interpose_status {
    ($( fn $name:ident ($($version:ident)?); )*) => {$(
        /// As in the C library, with channels of rdma_cm.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            $($version: c_int,)?
            fd: c_int,
            status: *mut libc::stat,
        ) -> c_int {
            type Function = unsafe extern "C" fn(
                $(version!($version),)?
                c_int,
                *mut libc::stat,
            ) -> c_int;
            let Some(next) = next_function!($name, Function) else {
                set_errno(libc::ENOSYS);
                return -1;
            };
            // SAFETY: the caller's promise; the status is filled in where the call succeeds.
            unsafe {
                let result = next($($version,)? fd, status);
                if result == 0 {
                    show_device(fd, status);
                }
                result
            }
        }
    )*};
}

// The structures of the two forms are the same on 64-bit systems. Programs built with a C library before
// 2.33 call those with a version.
interpose_status! {
    fn fstat();
    fn fstat64();
    fn __fxstat(version);
    fn __fxstat64(version);
}

/// As in the C library, but there is no netlink of RDMA devices: librdmacm would compare the
/// numbers that the kernel has for its own `rdma_cm` with those of a channel.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    type Function = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
    const NETLINK_RDMA: c_int = 20;
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA && !OPEN.address().is_null() {
        set_errno(libc::EPROTONOSUPPORT);
        return -1;
    }
    let Some(next) = next_function!(socket, Function) else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: the caller's promise.
    unsafe { next(domain, kind, protocol) }
}
