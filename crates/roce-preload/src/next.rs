//! Functions of other libraries.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The function of this name in the libraries behind this one: the real one.
pub(crate) type Next = Function<false>;

/// The function of this name in any library.
pub(crate) type Found = Function<true>;

/// The function of a name, in all libraries or in those behind this one.
#[derive(Debug)]
pub(crate) struct Function<const IN_ALL: bool> {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl<const IN_ALL: bool> Function<IN_ALL> {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the address; null if no library has the function, as an older C library may not. The
    /// first call looks it up.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let libraries = if IN_ALL { libc::RTLD_DEFAULT } else { libc::RTLD_NEXT };
        // SAFETY: the name ends with a zero; `dlsym` has no other requirement.
        let found = unsafe { libc::dlsym(libraries, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}
