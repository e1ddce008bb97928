//! Memory that this process shares with the kernel.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
};

use super::fork::{self, Generation};

/// Memory that is mapped until this is dropped, readable and writable. Children do not have it: a mapping of a
/// socket would keep the socket open.
#[derive(Debug)]
pub(super) struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
    generation: Generation,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Maps memory of a descriptor from an offset on, or new memory, all zeros. `flags` are those of `mmap`
    /// beyond `MAP_SHARED`.
    pub(super) fn map(
        len: usize,
        flags: i32,
        of: Option<(BorrowedFd<'_>, u64)>,
    ) -> io::Result<Self> {
        let (fd, offset) = match of {
            Some((fd, offset)) => (fd.as_raw_fd(), offset),
            None => (-1, 0),
        };
        let flags = libc::MAP_SHARED | flags | if of.is_none() { libc::MAP_ANONYMOUS } else { 0 };
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let generation = Generation::current();
        let base = fork::between_forks(|| {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
            let base = unsafe { libc::mmap(ptr::null_mut(), len, rights, flags, fd, offset) };
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the advice is for this mapping alone. Every kernel has it.
            unsafe { libc::madvise(base, len, libc::MADV_DONTFORK) };
            Ok(base)
        })?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { base, len, generation })
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // A child may have memory of its own there.
        if self.generation.is_current() {
            // SAFETY: this is the whole mapping, and no borrow of it is left.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}
