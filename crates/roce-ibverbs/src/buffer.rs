//! Buffers that the library allocates for the program.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use libc::{EINVAL, ENODATA, ENOMEM};
use roce_abi::ibv_buf;

use crate::errno;
use crate::protection_domain::{PdInner, ProtectionDomain};

/// A buffer of whole pages.
pub(crate) struct Buffer {
    address: *mut c_void,
    size: usize,
    pd: Arc<PdInner>,
}

/// Borrows a buffer of the program.
///
/// # Safety
/// `buffer` comes from [`alloc`] and is not freed during the use of the reference.
pub(crate) unsafe fn lend<'a>(buffer: *mut ibv_buf) -> &'a Buffer {
    // SAFETY: the caller's promise.
    unsafe { &*buffer.cast::<Buffer>() }
}

impl Buffer {
    /// Returns true if the buffer was allocated with this domain.
    pub(crate) fn belongs_to(&self, pd: &ProtectionDomain) -> bool {
        Arc::ptr_eq(&self.pd, pd.inner())
    }

    /// Returns true if `length` bytes from `address` are in the buffer.
    pub(crate) fn holds(&self, address: usize, length: usize) -> bool {
        let offset = address.checked_sub(self.address as usize);
        offset.and_then(|it| it.checked_add(length)).is_some_and(|end| end <= self.size)
    }
}

/// `ibv_alloc_buf`
pub(crate) extern "C" fn alloc(
    pd: &ProtectionDomain,
    size: usize,
    buffer: &mut *mut ibv_buf,
) -> *mut c_void {
    if size == 0 {
        return errno::null(EINVAL);
    }
    // SAFETY: a fresh anonymous mapping touches nothing that exists.
    let address = unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(ptr::null_mut(), size, rights, flags, -1, 0)
    };
    if address == libc::MAP_FAILED {
        return errno::null(ENOMEM);
    }
    let made = Buffer { address, size, pd: Arc::clone(pd.inner()) };
    *buffer = Box::into_raw(Box::new(made)).cast();
    address
}

/// `ibv_export_buf_dmabuf_fd`: no buffer has a DMA buffer behind it.
pub(crate) extern "C" fn export_descriptor(_buffer: *mut ibv_buf) -> c_int {
    errno::set(ENODATA);
    -1
}

/// `ibv_free_buf`
pub(crate) unsafe extern "C" fn free(buffer: *mut ibv_buf) {
    // SAFETY: made by `alloc`, and the program does not use it any more.
    unsafe {
        let buffer = Box::from_raw(buffer.cast::<Buffer>());
        libc::munmap(buffer.address, buffer.size);
    }
}
