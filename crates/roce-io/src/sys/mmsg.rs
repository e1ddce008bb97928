//! Sends and receives several frames in one system call.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

/// Maximum number of frames of one call.
pub(crate) const MAX_BATCH: usize = 64;

/// Sends one frame, with its virtio header before it, in less time than `sendmmsg` takes.
///
/// Not by the C library's `send`, a cancellation point, which costs two locked instructions.
pub(crate) fn send_one(fd: BorrowedFd<'_>, frame: &[u8]) -> io::Result<()> {
    // SAFETY: the arguments are those of `sendto` without an address; the kernel only reads the
    // frame, which outlives this call.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_sendto,
            fd.as_raw_fd(),
            frame.as_ptr(),
            frame.len(),
            libc::MSG_DONTWAIT,
            ptr::null::<libc::sockaddr>(),
            0,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends as many of the first [`MAX_BATCH`] frames as the kernel takes now: at least one, or an
/// error. Each has its virtio header before it.
pub(crate) fn send<'a>(
    fd: BorrowedFd<'_>,
    frames: impl Iterator<Item = &'a [u8]>,
) -> io::Result<usize> {
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_BATCH];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_BATCH];
    let mut count = 0;
    for ((frame, vector), message) in frames.zip(&mut vectors).zip(&mut messages) {
        // The kernel only reads through this pointer.
        let base = frame.as_ptr().cast_mut().cast();
        let vector = vector.write(libc::iovec { iov_base: base, iov_len: frame.len() });
        message.write(message_of(vector));
        count += 1;
    }
    if count == 0 {
        return Ok(0);
    }
    // SAFETY: the first `count` messages are initialised; each points to one initialised vector,
    // which describes a slice that outlives this call ('a); the kernel only reads the frames.
    let sent = unsafe {
        libc::sendmmsg(
            fd.as_raw_fd(),
            messages.as_mut_ptr().cast(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// A received frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrival {
    /// Bytes in the buffer.
    pub(crate) len: usize,
    /// The frame was longer than the buffer.
    pub(crate) truncated: bool,
}

/// Receives waiting frames, one into each of the first [`MAX_BATCH`] buffers, and describes them in
/// `arrivals` (as many as buffers). Returns how many.
pub(crate) fn receive(
    fd: BorrowedFd<'_>,
    buffers: &mut [Vec<u8>],
    arrivals: &mut [Arrival],
) -> io::Result<usize> {
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_BATCH];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_BATCH];
    let mut count = 0;
    for ((buffer, vector), message) in buffers.iter_mut().zip(&mut vectors).zip(&mut messages) {
        let base = buffer.as_mut_ptr().cast();
        let vector = vector.write(libc::iovec { iov_base: base, iov_len: buffer.len() });
        message.write(message_of(vector));
        count += 1;
    }
    // SAFETY: the first `count` messages are initialised; each points to one initialised vector,
    // which describes a buffer of its own that is borrowed mutably for the length of this call.
    let received = unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            messages.as_mut_ptr().cast(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            ptr::null_mut(),
        )
    };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    let received = (received as usize).min(count);
    for ((message, arrival), buffer) in
        messages[..received].iter().zip(arrivals.iter_mut()).zip(buffers.iter())
    {
        // SAFETY: the first `count` messages were initialised above.
        let message = unsafe { message.assume_init_ref() };
        *arrival = Arrival {
            len: (message.msg_len as usize).min(buffer.len()),
            truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        };
    }
    Ok(received)
}

/// Returns a message with one vector.
pub(super) fn message_of(vector: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: an `mmsghdr` is plain data, for which all zeros is a value.
    let mut message: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_hdr.msg_iov = vector;
    message.msg_hdr.msg_iovlen = 1;
    message
}
